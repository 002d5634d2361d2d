"""`memtier bench peers`: every memory gets the same turns and prompts, and has to answer itself."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.tests.test_bench import locomo
from bench.tests.test_bench_work import PROJECT
from memtier_bench.peers.embeddings import serve_embeddings
from memtier_bench.peers.install import PeerUnavailable, Requirements, install
from memtier_bench.peers.measure import count_lines, cut_lines
from memtier_bench.peers.run import run_peers
from memtier_bench.peers.systems import (
    ENCODER,
    PEERS,
    Bm25System,
    DriverSystem,
    MemTierSystem,
    MiniLmSystem,
    Peer,
    System,
    start_driver,
)
from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.records import Message
from memtier_plugin.ingest.messages import ImportedMessage, Session

LOOP = Path(start_driver.__code__.co_filename).parent / "drivers/loop.py"
AT = datetime(2026, 1, 5, 9, tzinfo=UTC)
ECHO = """
class Store:
    def __init__(self, folder):
        self.texts, self.folder = [], folder
    def add(self, session):
        self.texts += [turn["text"] for turn in session["turns"]]
        with open(self.folder + "/texts", "w") as file:
            file.write("1234")
    def ask(self, request):
        print("libraries print")
        return self.texts[: request["k"] or 1]
    def close(self):
        pass
"""


def session(*texts: str, name: str = "s") -> Session:
    """Return a session in which the user says these things."""
    turns = tuple(
        ImportedMessage(id=f"{number}", message=Message(role="user", content=text))
        for number, text in enumerate(texts)
    )
    return Session(session_id=name, observed_at=AT, turns=turns)


def assert_answers(system: System, folder: Path) -> None:
    """Let a memory store two sessions and a second store, and be asked for something in each."""
    for code, other in (("7731", "4482"), ("4482", "7731")):
        (folder / code).mkdir(parents=True)
        system.open(folder / code)
        system.add(session("I live in Leeds and work as a nurse.", "Good night."))
        system.add(session(f"The door code of the studio is {code}.", name="t"))
        answer = system.ask("What is the door code of the studio?", AT, None, None)
        text = "\n".join(answer.lines)
        assert code in text and other not in text and answer.ms > 0
    system.size()


@pytest.fixture
def work(tmp_path: Path) -> str:
    """Return a file of one project."""
    (tmp_path / "mine.yaml").write_text(PROJECT, "utf-8")
    return str(tmp_path / "mine.yaml")


@pytest.mark.parametrize("system", [MemTierSystem(), Bm25System()], ids=["memtier", "bm25"])
def test_each_store_begins_empty_and_answers(system: System, tmp_path: Path) -> None:
    """A system answers from the store that is open, and from no other."""
    with closing(system):
        assert_answers(system, tmp_path)


def test_a_budget_cuts_the_last_line(tmp_path: Path) -> None:
    """Lines are kept in their order as far as the budget goes; the last is cut to what is left."""
    lines = ["the first line", "a second line that is a good deal longer than the first", "a third"]
    assert cut_lines(lines, 1000) == lines
    cut = cut_lines(lines, 12)
    assert cut[0] == lines[0] and len(cut) == 2
    assert lines[1].startswith(cut[1].removesuffix(" [...]")) and count_lines(cut) <= 12
    assert cut_lines(lines, 0) == []


def test_the_report_has_both_tables(tmp_path: Path, work: str) -> None:
    """At equal tokens no peer shows more than MemTier in the mean; MemTier is its own measure."""
    data = locomo(tmp_path, (1, "What does Ada grow?", "D1:1"), (1, "?", "D1:2"), samples=2)
    report = run_peers(data, tmp_path / "peers", ["bm25"], chosen=work)
    ours, theirs = report["peers"]["memtier"], report["peers"]["bm25"]
    assert ours["default"]["right"] == ours["equal"]["right"]
    assert theirs["default"]["generic"] == 0 and theirs["bytes"] is None
    assert theirs["default"]["recall"] == 1.0  # seven turns, of which it shows ten
    assert ours["bytes"] > 0 and ours["ms"] > 0 and theirs["ms"] > 0
    assert theirs["equal"]["talk_tokens"] <= report["budgets"]["talk"]
    assert report["prompts"]["talk"] == 4 and report["prompts"]["work"] == 4


def test_who_asks_gets_their_own(tmp_path: Path, work: str) -> None:
    """A check is right if what is the asker's is shown, and nothing of another's."""
    (tmp_path / "identity.yaml").write_text(
        "cases:\n- {id: a, say: [{ann: I live in Leeds.}, {bob: I live in Cardiff.}], checks: "
        "[{as: ann, ask: 'Where do I live?', want: [Leeds], not: [Cardiff]}]}\n"
    )
    data = locomo(tmp_path, (1, "What does Ada grow?", "D1:1"))
    report = run_peers(data, tmp_path / "peers", ["bm25"], tmp_path, work)
    assert report["peers"]["memtier"]["default"]["who"] == 1.0
    assert report["peers"]["bm25"]["default"]["who"] == 0.0  # which shows both


def test_a_peer_that_cannot_be_had_says_why(
    tmp_path: Path, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are measured, and the table's notes name what was not run and why."""
    future = Requirements(pip=("mem0ai",), least=(3, 99))
    odd = Peer(name="odd", how="not at all", wanted=future, driver="peer_mem0")
    monkeypatch.setitem(PEERS, "odd", odd)
    data = locomo(tmp_path, (1, "What does Ada grow?", "D1:1"))
    arguments = ["--only", "odd,bm25", "--set", work, "--folder", str(tmp_path / "peers")]
    result = CliRunner().invoke(main, ["bench", "peers", "--data", str(data), *arguments])
    assert result.exit_code == 0, result.output
    flat = " ".join(result.output.split())
    assert "odd: mem0ai; not run: needs Python 3.99, which is not on the path" in flat
    assert "bm25" in flat


def test_an_unknown_peer_is_refused(tmp_path: Path) -> None:
    """The error names those that there are."""
    with pytest.raises(Unsupported, match="peer 'zep'; one of: memtier, bm25"):
        run_peers(tmp_path / "none.json", tmp_path, ["zep"])


def test_what_cannot_be_installed_names_the_package(tmp_path: Path) -> None:
    """An installation that fails leaves no mark that it is done, and says what failed."""
    wanted = Requirements(pip=("./no-such-package",))
    with pytest.raises(PeerUnavailable, match=r"cannot install: .*no-such-package"):
        install(tmp_path / "environment", wanted)
    assert not (tmp_path / "environment/installed.txt").exists()


def test_a_driver_talks_by_lines(tmp_path: Path) -> None:
    """Answers come by JSON lines, whatever the driver's libraries print."""
    (tmp_path / "echo.py").write_text(ECHO)
    system = DriverSystem(
        [sys.executable, str(LOOP), "echo"], tmp_path, {"PYTHONPATH": str(tmp_path)}
    )
    system.open(tmp_path / "home")
    system.add(session("The door code is 7731.", "Good night."))
    assert system.ask("?", AT, None, None).lines == ["user: The door code is 7731."]
    assert len(system.ask("?", AT, None, 2).lines) == 2
    assert system.size() == 4
    system.close()


def test_a_driver_that_fails_says_why(tmp_path: Path) -> None:
    """A driver whose peer is not in its environment is unavailable, with Python's message."""
    system = DriverSystem([sys.executable, str(LOOP), "peer_hermes"], tmp_path, {})
    with pytest.raises(PeerUnavailable, match="No module named 'plugins'"):
        system.open(tmp_path)
    system.close()


# -- the real peers, which `make test-peers` installs ----------------------------------------------


@pytest.fixture(scope="module")
def folder() -> Path:
    """Return where the peers are kept."""
    kept = os.environ.get("TEST_MEMTIER_PEERS") or "~/.cache/memtier-peers"
    return Path(kept).expanduser().absolute()


@pytest.fixture(scope="module")
def embeddings(folder: Path) -> Iterator[str]:
    """Serve MiniLM on loopback."""
    with serve_embeddings(install(folder / "encoder", ENCODER), folder / "cache") as url:
        yield url


@pytest.mark.runtime
@pytest.mark.timeout(1800)  # it may be installed first
@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer.driver])
def test_a_real_peer_answers(name: str, folder: Path, embeddings: str, tmp_path: Path) -> None:
    """Each peer is installed, stores turns and returns the one that answers."""
    peer = PEERS[name]
    assert peer.wanted is not None
    interpreter = install(folder / name, peer.wanted)
    with tempfile.TemporaryDirectory() as process:  # PostgreSQL must get there without our rights
        system = start_driver(peer, interpreter, Path(process), embeddings)
        with closing(system):
            assert_answers(system, tmp_path)


@pytest.mark.runtime
def test_minilm_keeps_silent_below_its_threshold(embeddings: str, tmp_path: Path) -> None:
    """A prompt that is near no turn gets none; that which is near gets the turn."""
    system = MiniLmSystem(embeddings, 0.4)
    assert_answers(system, tmp_path)
    system.open(tmp_path)
    system.add(session("The door code of the studio is 7731."))
    assert not system.ask("How do I bake sourdough bread?", AT, None, None).lines
