"""Failing on purpose: what is asked for happens, and nothing else; and what was mended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core import files
from memtier_plugin.core.errors import LedgerWriteError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.memory import MemTier
from memtier_plugin.storage import home_files
from memtier_plugin.storage.index.connection import Index
from memtier_plugin.storage.index.sqlite import NEW_INDEX
from memtier_plugin.storage.ledger import jsonl, transaction
from tests.faults import injection
from tests.faults.injection import Fault
from tests.processes import child_environment, fork_and_run
from tests.proofs.checks import PACKAGE

# Appends three lines to an episodic ledger and tells how each went.
APPENDS = """
import json, sys, time
from pathlib import Path
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.core.errors import LedgerError
path = Path(sys.argv[1]) / "episodic" / "main" / "2026-01-05.jsonl"
path.parent.mkdir(parents=True)
for number in range(3):
    began = time.monotonic()
    try:
        jsonl.append_records(path, [{"number": number}], durability="sync")
        error = None
    except LedgerError as problem:
        error = str(problem)
    print(json.dumps([error, time.monotonic() - began]), flush=True)
"""


@pytest.fixture(autouse=True)
def disarmed() -> Any:
    """Let nothing fail in this process any more, whatever a test told it."""
    yield
    injection.arm()


def child(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, as somebody does who sets the variable."""
    return fork_and_run("-c", code, folder, env=child_environment(**environment))


@pytest.mark.parametrize(
    ("fault", "error", "there"),
    [
        ("append episodic:2=enospc", "No space left on device", [0, 2]),
        ("append episodic:2=eio", "Input/output error", [0, 2]),
        ("append episodic:2=short", "only 17 of 35 bytes fitted", [0, 2]),
        ("part of append episodic:2=enospc", "No space left on device", [0, 2]),
        ("after append episodic:2=eio", "Input/output error", [0, 2]),
        ("before fsync episodic:2=eio", "Input/output error", [0, 2]),
        ("append episodic:2+=enospc", "No space left on device", [0]),
        ("append episodic:2=short; truncate episodic=eio", "nor take back", [0, 2]),
    ],
)
def test_errors_happen(tmp_path: Path, fault: str, error: str, there: list[int]) -> None:
    """An error comes where and when it is told; it is raised, and only that line is not there."""
    done = child(APPENDS, tmp_path, TEST_MEMTIER_FAULT=fault)
    outcomes = [json.loads(line)[0] for line in done.stdout.splitlines()]
    assert outcomes[0] is None and error in outcomes[1], done.stderr
    assert (outcomes[2] is None) == (2 in there)
    lines, mark = jsonl.read_lines(path := tmp_path / "episodic" / "main" / "2026-01-05.jsonl")
    numbers = []
    for line in lines:
        try:
            numbers.append(jsonl.parse_line(line)["number"])
        except ValueError:
            assert "truncate" in fault  # torn, and alone on its line
    assert numbers == there
    assert not jsonl.has_torn_tail(path, mark)


@pytest.mark.parametrize(
    ("fault", "bytes_there"),
    [
        ("append episodic:2", 35),
        ("before append episodic:2", 35),
        ("part of episodic:2", 52),
        ("after append episodic:2=kill", 70),
        ("after fsync episodic", 35),
    ],
)
def test_kill_happens(tmp_path: Path, fault: str, bytes_there: int) -> None:
    """Without a kind a process dies by SIGKILL: before, in the middle of, or after a write."""
    done = child(APPENDS, tmp_path, TEST_MEMTIER_FAULT=fault)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "episodic/main/2026-01-05.jsonl").stat().st_size == bytes_there


def test_delay_happens(tmp_path: Path) -> None:
    """A delay takes its time, once, and changes nothing else."""
    done = child(APPENDS, tmp_path, TEST_MEMTIER_FAULT="append episodic:2=delay")
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [error for error, _ in outcomes] == [None] * 3
    assert outcomes[1][1] >= injection.DELAY > outcomes[2][1]


def test_log(tmp_path: Path) -> None:
    """The log lists every point that was passed with its kinds, and where a fault happened."""
    log = tmp_path / "log"
    done = child(
        APPENDS,
        tmp_path,
        TEST_MEMTIER_FAULT_LOG=str(log),
        TEST_MEMTIER_FAULT="fsync episodic:3=eio",
    )
    assert done.returncode == 0, done.stderr
    passed = log.read_text().splitlines()
    assert passed[:5] == [
        "before append episodic\tkill enospc eio delay",
        "part of append episodic\tkill short enospc eio",
        "after append episodic\tkill eio delay",
        "before fsync episodic\tkill enospc eio delay",
        "after fsync episodic\tkill eio delay",
    ]
    assert f"{injection.FIRED}before fsync episodic:3=eio" in passed
    assert passed[-2:] == [
        "before truncate episodic\tkill enospc eio delay",
        "after truncate episodic\tkill eio delay",
    ]


def test_what_can_be_told() -> None:
    """A fault names a point, a time and a kind; what means nothing is refused, not passed over."""
    assert Fault.parse("after append episodic") == Fault("after append episodic", 1, False, "kill")
    assert Fault.parse(" part of _project:3 ") == Fault("part of append _project", 3, False, "kill")
    assert Fault.parse("append main:2+=short") == Fault("part of append main", 2, True, "short")
    for wrong in ("append x=explode", "append x:often", "append x:-1"):
        with pytest.raises(ValueError, match="TEST_MEMTIER_FAULT"):
            injection.arm(wrong)
    assert files.injector is None


def test_nothing_told(tmp_path: Path) -> None:
    """Where nothing is to fail, an operation is itself alone, and no file is named or counted."""
    assert files.injector is None
    fd = os.open(path := tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    assert files.write_bytes("append", fd, b"bread", path) == 5
    assert files.run_step("unlink", path, path.unlink) is None
    os.close(fd)
    files.pass_point("anything")

    def seconds(do: Any) -> float:
        began = time.perf_counter()
        for _ in range(20_000):
            do()
        return time.perf_counter() - began

    nothing = min(seconds(lambda: None) for _ in range(5))
    assert min(seconds(lambda: files.pass_point("anything")) for _ in range(5)) < 20 * nothing


def test_inside_sqlite(home: Path) -> None:
    """A disk that is full for the index alone costs no entry; the next recall reads it again."""
    injection.arm("write index-wal=enospc")  # the first write of a memory opened from here on
    messages = [{"role": "user", "content": "The oven is called Vesuvio."}]
    with MemTier.open(home) as memory:
        with pytest.raises(Exception, match="TEST_MEMTIER_FAULT"):
            memory.store.reader()
        assert memory.record(messages, session_id="s", run_id="r")
        assert memory.record(messages, session_id="s", run_id="r") == []
        assert memory.recall("what is the oven called?").hits


# -- what the walk found, and stays mended -----------------------------------------------------


def test_an_append_that_cannot_be_taken_back(tmp_path: Path) -> None:
    """An append that failed and cannot be taken back is told as that, not as a bare OSError."""
    injection.arm("append semantic=short; truncate semantic=eio")
    path = tmp_path / "semantic" / "2026-01-05.jsonl"
    path.parent.mkdir()
    with pytest.raises(LedgerWriteError, match="nor take back what was written"):
        jsonl.append_records(path, [{"a": 1}])
    jsonl.append_records(path, [{"a": 2}])
    assert jsonl.parse_line(jsonl.read_lines(path)[0][1]) == {"a": 2}


def test_what_was_written_ahead_stays(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Facts are acknowledged although their plan cannot be removed; the next one removes it."""
    with MemTier.open(home) as memory:
        memory.remember("The oven is called Vesuvio.")
        injection.arm("unlink settling.json=eio")
        memory.remember("The yard is called Etna.")
        plan = memory.folder / transaction.TRANSACTION_FILE
        assert plan.exists() and "stays until the next writing" in caplog.text
        memory.remember("The roof is called Stromboli.")
        assert not plan.exists()
        assert len(memory.facts()) == 3


def test_a_whole_file_or_none(tmp_path: Path) -> None:
    """A file that is replaced is the old one or the new, also when a write stays short."""
    write_private_file(path := tmp_path / "file", "old")
    injection.arm("write file=short")
    write_private_file(path, "quite new")
    assert path.read_text() == "quite new"
    for fault in (
        "write file=enospc",
        "part of write file=eio",
        "fsync file=eio",
        "rename file=eio",
    ):
        injection.arm(fault)
        with pytest.raises(LedgerWriteError, match="TEST_MEMTIER_FAULT"):
            write_private_file(path, "never", durable=True)
        assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "quite new"


def test_resuming_fails(home: Path) -> None:
    """A project that cannot be switched on again says so as MemTier's own error."""
    with MemTier.open(home) as memory:
        memory.pause()
        injection.arm("unlink OFF=eio")
        with pytest.raises(LedgerWriteError, match="cannot remove"):
            memory.resume()
        memory.resume()
        assert not memory.paused


def test_closing_fails(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What fails when the index is closed is logged: all that counts is committed."""

    class Failing:
        filename = "index.sqlite3"

        def __init__(self, inner: Any) -> None:
            self.whole = inner

        def close(self) -> None:
            self.whole.close()
            import apsw

            raise apsw.IOError("the disk is gone")

    index = Index(home / "index.sqlite3")
    home.mkdir()
    index.connection()
    [held] = index._held
    object.__setattr__(held, "connection", Failing(held.connection))
    index.close()
    assert "the disk is gone" in caplog.text


def test_leftovers(home: Path) -> None:
    """What a dead process has half written is removed by the daily sweep, a living one's is not."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with MemTier.open(home) as memory:
        folder = memory.folder / "journal" / "main"
        folder.mkdir(parents=True)
        dead = folder / f".2026-01-05.jsonl.{ended.pid}.1.new"
        alive = folder / f".2026-01-05.jsonl.{os.getpid()}.1.new"
        mine = folder / ".my.own.new"
        built = memory.folder / NEW_INDEX
        (home / "queue").mkdir()
        (home / "hosts").mkdir()
        queued = home / "queue" / f".1-a.json.{ended.pid}.1.new"
        noted = home / "hosts" / f".hermes.waits.json.{ended.pid}.1.new"
        for path in (dead, alive, mine, built, queued, noted):
            path.write_text("secret")
        assert sorted(home_files.remove_unfinished(memory.store)) == sorted(
            (dead, built, queued, noted)
        )
        assert not queued.exists()
        assert [path.exists() for path in (dead, alive, mine, built)] == [False, True, True, False]


# -- the walk and the soak ---------------------------------------------------------------------


def walk(*arguments: str) -> dict[str, Any]:
    """Run `make faults` and return what it found."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--json", *arguments],
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.slow
def test_a_part_of_the_walk() -> None:
    """One operation fails at one point, in every way, and every promise holds."""
    report = walk("--times", "1", "--only", "part of append episodic:")
    assert report["broken"] == {} and report["never_reached"] == []
    assert report["done"] == report["cases"] == 4
    assert report["killed"] == 1 and report["told"] >= 2


@pytest.mark.slow
def test_a_sample_of_the_walk(tmp_path: Path) -> None:
    """Writes, fsyncs, renames, truncations, removals and commits fail in every way; all holds.

    One case in twenty, drawn by the seed TEST_MEMTIER_SEED [1]; `make faults` walks through all.
    """
    seed = os.environ.get("TEST_MEMTIER_SEED", "1")
    report = walk(
        "--results", str(tmp_path / "faults.jsonl"), "--afresh", "--sample", "0.05", "--seed", seed
    )
    print({name: value for name, value in report.items() if name != "broken"})  # noqa: T201
    assert report["broken"] == {} and report["never_reached"] == []
    assert report["done"] == report["cases"] > 40 and report["operations"] > 20


@pytest.mark.slow
def test_a_short_soak() -> None:
    """Twenty seconds of writers, readers and the daemon, killed at random: nothing is lost."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.soak", "--json", "--minutes", "0.34", "--seed", "3"],
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    print(report)  # noqa: T201
    assert sum(report["kills"].values()) > 5 and report["operations"]["runs"] > 20
