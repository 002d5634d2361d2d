"""Two machines, each with a home of its own, share a project through a real server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.paths import ProjectFolder
from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.shared.bootstrap import join
from memtier_plugin.storage.shared.postgres.server import connect
from memtier_plugin.storage.shared.protocol import Refused, Unreachable
from memtier_plugin.storage.shared.sharing import Sharing
from tests.builders import say_each, write_config
from tests.processes import PATIENCE, wait_until
from tests.shared.engines import Engine, on_each_engine
from tests.shared.server import PostgresServer

pytestmark = pytest.mark.shared

PROJECT = "harbor"
NOW = datetime.now(UTC) + timedelta(minutes=5)


@pytest.fixture
def machine(engine: Engine, tmp_path: Path) -> Iterator[Callable[..., MemTier]]:
    """Return what opens the project on a machine, joined at its first opening."""
    opened: list[MemTier] = []

    def open_machine(name: str, agent: str = "a", url: str | None = None) -> MemTier:
        home = tmp_path / name
        where = {"shared": url or engine.url(name), "durability": engine.durability}
        write_config(home, {"ledger": where, "embedding": {"model": "none"}})
        folder = ProjectFolder.of(home, PROJECT)
        if not (folder.path / ".shared").exists():
            folder.make()
            join(folder, PROJECT)
        memory = MemTier.open(home, PROJECT, agent)
        opened.append(memory)
        return memory

    yield open_machine
    for memory in opened:
        memory.close()


def sharing(memory: MemTier) -> Sharing:
    """Return how a project is shared."""
    assert memory.store.sharing
    return memory.store.sharing


def sync(*memories: MemTier) -> None:
    """Deliver everything, then fetch everything."""
    for _ in range(2):
        for memory in memories:
            sharing(memory).sync()


def ledgers(memory: MemTier) -> dict[str, bytes]:
    """Return the bytes of every ledger file."""
    return {
        str(path.relative_to(memory.folder)): path.read_bytes()
        for path in sorted(memory.folder.rglob("*.jsonl"))
        if path.stat().st_size or "-spool" not in path.name
    }


def hits(memory: MemTier, query: str) -> list[tuple[str, float]]:
    """Return what a recall finds, with its scores."""
    recall = memory.recall(query, at=NOW)
    return [(hit.item.id, round(hit.score, 9)) for hit in recall.hits]


def turns_of(memory: MemTier, session: str = "s") -> list[int]:
    """Return the turns of a session as the log has them."""
    entries = [logged.entry for logged in memory.store.log.entries()]
    return sorted(entry.turn for entry in entries if entry and entry.session_id == session)


@on_each_engine
def test_machines_have_the_same_lines(machine: Callable[..., MemTier]) -> None:
    """What is said on one machine is, byte for byte and in recalls, the same on the other."""
    anna, bert = machine("anna"), machine("bert")
    say_each(anna, "The harbor opens at six.", "Mia likes green tea.")
    sharing(bert).sync()
    say_each(bert, "The crane is red.")
    anna.remember("The pier has two cranes.")
    sync(anna, bert)
    assert ledgers(anna) == ledgers(bert)
    assert turns_of(anna) == [1, 2, 3]
    for query in ("When does the harbor open?", "cranes", "tea"):
        assert hits(anna, query) == hits(bert, query) != []
    before = hits(bert, "cranes")
    bert.reindex()
    assert hits(bert, "cranes") == before


@on_each_engine
def test_two_machines_number_one_session(machine: Callable[..., MemTier]) -> None:
    """Machines that write into the same session get turns without gap or double."""
    anna, bert = machine("anna"), machine("bert")
    for number in range(5):
        say_each(anna, f"anna {number}")
        say_each(bert, f"bert {number}")
    sync(anna, bert)
    assert turns_of(anna) == turns_of(bert) == [*range(1, 11)]
    assert ledgers(anna) == ledgers(bert)


@on_each_engine
def test_a_run_delivered_on_two_machines_is_stored_once(machine: Callable[..., MemTier]) -> None:
    """A run that another machine has stored already is not stored again."""
    anna, bert = machine("anna"), machine("bert")
    assert len(say_each(anna, "The harbor opens at six.")) == 1
    assert say_each(bert, "The harbor opens at six.") == []
    assert turns_of(bert) == [1]


@on_each_engine
def test_what_is_said_while_the_server_is_away(
    machine: Callable[..., MemTier], engine: Engine
) -> None:
    """It is recalled at once, delivered once on return, and numbered after what came meanwhile."""
    anna, bert = machine("anna"), machine("bert")
    say_each(anna, "The harbor opens at six.")
    anna.close()
    anna = machine("anna", url=re.sub(r":\d+", ":1", engine.url("anna")))
    say_each(anna, "The crane is red.")
    assert say_each(anna, "The crane is red.") == []
    assert "crane is red" in anna.recall("crane").text
    say_each(bert, "Mia likes green tea.")
    assert sharing(anna).shared_status()["waiting"] >= 1
    anna.close()
    anna = machine("anna")
    sync(anna, bert)
    assert sharing(anna).shared_status()["waiting"] == 0
    assert turns_of(anna) == turns_of(bert) == [1, 2, 3]
    assert ledgers(anna) == ledgers(bert)
    assert hits(anna, "crane") == hits(bert, "crane")
    assert "crane is red" in bert.recall("crane").text


@on_each_engine
def test_a_server_that_stands_still(machine: Callable[..., MemTier], engine: Engine) -> None:
    """A server that takes the line and says nothing holds a run up for a second, and once."""
    anna = machine("anna")
    say_each(anna, "The harbor opens at six.")
    with engine.server.frozen():
        begun = time.monotonic()
        say_each(anna, "The crane is red.")
        first = time.monotonic() - begun
        say_each(anna, "The pier is long.")
        second = time.monotonic() - begun - first
        assert "crane is red" in anna.recall("crane").text
    assert 0.9 < first < PATIENCE / 2 and second < first
    wait_until(lambda: reaches(anna))  # it is not tried again for some seconds
    assert turns_of(anna) == [1, 2, 3] and sharing(anna).shared_status()["waiting"] == 0


def reaches(memory: MemTier) -> bool:
    """Tell whether a machine can synchronise now."""
    try:
        sharing(memory).sync()
    except Unreachable:
        return False
    return True


def test_a_server_that_only_reads(
    machine: Callable[..., MemTier], postgres: PostgresServer, database: str
) -> None:
    """On a server that takes no writes, or no more connections, what is said waits."""
    owner, anna, bert = postgres.url(database), machine("anna"), machine("bert")
    say_each(bert, "The harbor opens at six.")
    for off, on in (
        ("DATABASE {} SET default_transaction_read_only = on", "DATABASE {} RESET ALL"),
        ("ROLE anna CONNECTION LIMIT 0", "ROLE anna CONNECTION LIMIT -1"),
    ):
        with connect(owner) as connection:
            connection.execute(f"ALTER {off.format(database)}".encode())
        sharing(anna).ledger.close()
        say_each(anna, f"The crane is red, {on}")
        assert sharing(anna).shared_status()["waiting"] == 1
        with connect(owner) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER {on.format(database)}".encode())
        sharing(anna).ledger.close()
        wait_until(lambda: reaches(anna))
    sharing(bert).sync()
    assert ledgers(anna) == ledgers(bert) and turns_of(bert) == [1, 2, 3]


@on_each_engine
def test_a_project_with_a_past_joins(machine: Callable[..., MemTier], tmp_path: Path) -> None:
    """What was there before joining is delivered, in order, and found by all."""
    with MemTier.open(tmp_path / "anna", PROJECT, "a") as alone:
        say_each(alone, "The harbor opens at six.", "The crane is red.")
        before = [path.read_bytes() for path in alone.folder.glob("episodic/*/*.jsonl")]
    anna, bert = machine("anna"), machine("bert")
    sync(anna, bert)
    assert ledgers(anna) == ledgers(bert)
    assert [path.read_bytes() for path in bert.folder.glob("episodic/*/*.jsonl")] == before
    assert hits(anna, "crane") == hits(bert, "crane") != []


@on_each_engine
def test_a_purge_reaches_the_other_machine(machine: Callable[..., MemTier]) -> None:
    """What is purged on one machine is gone from the files and the index of the other."""
    anna, bert = machine("anna"), machine("bert")
    [entry] = say_each(anna, "The code is swordfish.", run_id="r")
    sync(anna, bert)
    assert hits(bert, "Which code?") != []
    anna.purge(Selection(ids=(entry.id,)))
    assert [pending.machine for pending in sharing(anna).ledger.pending()].count("bert") >= 1
    sync(anna, bert)
    assert sharing(anna).ledger.pending() == []
    for memory in (anna, bert):
        for path in memory.folder.rglob("*"):
            assert not path.is_file() or b"swordfish" not in path.read_bytes(), path
    assert ledgers(anna) == ledgers(bert)


@on_each_engine
def test_a_damaged_copy_is_mended(machine: Callable[..., MemTier]) -> None:
    """A file that was cut, deleted or torn is what the server has after the next round."""
    anna = machine("anna")
    say_each(anna, "The harbor opens at six.", "The crane is red.")
    [path] = (anna.folder / "episodic").rglob("*.jsonl")
    sound = path.read_bytes()
    for damage in (sound[:40], b"", sound + b'{"torn'):
        path.write_bytes(damage)
        say_each(anna, f"line {len(damage)}")
        sharing(anna).sync()
        assert path.read_bytes().startswith(sound)
        assert (
            path.read_bytes().count(b"\n")
            == sharing(anna).ledger.heads()[sharing(anna).replica.stream_of(path)[0]].offset
        )
        sound = path.read_bytes()


def test_a_server_that_lost_its_end(
    machine: Callable[..., MemTier], postgres: PostgresServer, database: str
) -> None:
    """Lines that a failover or a restore lost on the server are delivered again by who has them."""
    anna, bert = machine("anna"), machine("bert")
    say_each(anna, "one", "two", "three")
    sharing(bert).sync()
    with connect(postgres.url(database)) as connection:
        connection.execute('DELETE FROM memtier.lines WHERE "offset" > 1')
        connection.execute("UPDATE memtier.streams SET head = 1")
    say_each(bert, "four")
    sync(anna, bert)
    assert ledgers(anna) == ledgers(bert)
    entries = [logged.entry for logged in anna.store.log.entries()]
    assert sorted(entry.content for entry in entries if entry) == ["four", "one", "three", "two"]


def test_a_server_that_lost_its_end_and_got_another(
    machine: Callable[..., MemTier], postgres: PostgresServer, database: str
) -> None:
    """Lines that were lost are noticed although others have taken their places since."""
    anna, bert = machine("anna"), machine("bert")
    say_each(anna, "one", "two", "three")
    with connect(postgres.url(database)) as connection:
        connection.execute('DELETE FROM memtier.lines WHERE "offset" > 1')
        connection.execute("UPDATE memtier.streams SET head = 1")
    say_each(bert, "four", "five")
    anna.close()
    anna = machine("anna")  # as after a failover: by a new connection
    say_each(anna, "six")
    sync(anna, bert)
    assert ledgers(anna) == ledgers(bert)
    assert turns_of(anna) == [*range(1, 7)]
    texts = {logged.entry.content for logged in bert.store.log.entries() if logged.entry}
    assert texts == {"one", "two", "three", "four", "five", "six"}


@on_each_engine
def test_a_revoked_machine_keeps_its_copy(machine: Callable[..., MemTier], engine: Engine) -> None:
    """A machine whose grant is gone writes nothing, is told so, and loses no file."""
    anna = machine("anna")
    say_each(anna, "The harbor opens at six.")
    before = ledgers(anna)
    engine.revoke("anna")
    with pytest.raises(LedgerError, match=r"may not write|Authorization"):
        say_each(anna, "The crane is red.")
    with suppress(Refused):
        sharing(anna).sync()
    assert ledgers(anna) == before
    assert hits(anna, "harbor") != []


@on_each_engine
def test_background_work_is_done_once(machine: Callable[..., MemTier]) -> None:
    """What one machine has consolidated the other does not consolidate again."""
    anna, bert = machine("anna"), machine("bert")
    say_each(anna, "My name is Mia and I live in Lyon.")
    sync(anna, bert)
    anna.consolidate()
    bert.consolidate()
    sync(anna, bert)
    assert ledgers(anna) == ledgers(bert)
    with bert.store.session() as reader:
        values = [item.item.value for item in reader.facts(standing="remembered")]
    assert len(values) == len({*values}) > 0


@contextmanager
def _held(memory: MemTier, name: str) -> Iterator[Any]:
    with memory.store.try_exclusive(name) as held:
        yield held


@on_each_engine
def test_locks_are_held_among_machines(machine: Callable[..., MemTier]) -> None:
    """A lock that one machine holds no other gets until it is given back."""
    anna, bert = machine("anna"), machine("bert")
    with _held(anna, "facts") as first:
        assert first
        with _held(bert, "facts") as second:
            assert not second
    with _held(bert, "facts") as second:
        assert second
