"""The contract of a shared ledger: what every server of one must keep."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.storage.shared.postgres import server
from memtier_plugin.storage.shared.postgres.ledger import PostgresLedger
from memtier_plugin.storage.shared.postgres.server import address, connect
from memtier_plugin.storage.shared.protocol import (
    AppendResult,
    Head,
    LeaseLost,
    MachineGrant,
    Moved,
    NewLine,
    Part,
    Refused,
    SharedLedger,
    SharedLine,
    Stream,
    Unreachable,
    Untrusted,
    line_key,
)
from tests.processes import wait_until
from tests.shared.engines import Engine, on_each_engine, open_for
from tests.shared.server import PostgresServer

pytestmark = pytest.mark.shared

STREAM = Stream("episodic", "openclaw.main")


def lines(*texts: str, day: str = "2026-01-05") -> list[NewLine]:
    """Make lines to append, each with its text as its key."""
    return [NewLine(day, line_key(text.encode()), text.encode() + b"\n") for text in texts]


@pytest.fixture
def anna(engine: Engine) -> Iterator[SharedLedger]:
    """Return the ledger of `harbor` for one machine."""
    ledger = open_for(engine, "anna")
    yield ledger
    ledger.close()


@pytest.fixture
def bert(engine: Engine) -> Iterator[SharedLedger]:
    """Return the same ledger for another machine."""
    ledger = open_for(engine, "bert")
    yield ledger
    ledger.close()


def test_a_forked_child_leaves_the_connection_alone(
    anna: SharedLedger, postgres: PostgresServer, database: str
) -> None:
    """A child asks through a connection of its own, and its end does not end its parent's."""
    anna.append(STREAM, 0, lines("a"))
    heard, spoken = os.pipe()
    leave, left = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(spoken, b"y" if anna.heads() == {STREAM: Head(1, 0)} else b"n")
            os.read(leave, 1)
        finally:  # not through the fixtures of the parent
            os._exit(0)
    assert os.read(heard, 1) == b"y"
    with connect(postgres.url(database)) as connection:
        count = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'anna'"
        connections = connection.execute(count).fetchone()
    os.write(left, b"y")
    os.waitpid(child, 0)
    assert connections == (2,)
    assert anna.append(STREAM, 1, lines("b")).head == 2
    for pipe in (heard, spoken, leave, left):
        os.close(pipe)


@on_each_engine
def test_lines_have_dense_offsets(anna: SharedLedger, bert: SharedLedger) -> None:
    """What a machine appends every machine reads, in order, from any offset on."""
    assert anna.heads() == {}
    assert anna.append(STREAM, 0, lines("a", "b")).head == 2
    assert bert.append(STREAM, 2, lines("c", day="2026-01-06")).head == 3
    assert anna.heads() == bert.heads() == {STREAM: Head(3, 0)}
    assert bert.read(STREAM, 1) == [
        SharedLine(2, "2026-01-05", b"b\n"),
        SharedLine(3, "2026-01-06", b"c\n"),
    ]
    assert [line.offset for line in bert.read(STREAM, 0, 2)] == [1, 2]
    assert [line.data for line in bert.day_lines(STREAM, "2026-01-05")] == [b"a\n", b"b\n"]
    assert bert.days_of(STREAM, [1, 3]) == {"2026-01-05", "2026-01-06"}


@on_each_engine
def test_who_expects_another_end_appends_nothing(anna: SharedLedger, bert: SharedLedger) -> None:
    """A writer that has not seen the last lines is told so, and nothing is written."""
    anna.append(STREAM, 0, lines("a"))
    with pytest.raises(Moved):
        bert.append(STREAM, 0, lines("b"))
    assert bert.heads()[STREAM].offset == 1


@on_each_engine
def test_a_second_delivery_appends_nothing(anna: SharedLedger, bert: SharedLedger) -> None:
    """The same lines again are acknowledged again; some of them beside new ones are not taken."""
    assert anna.append(STREAM, 0, lines("a", "b")).head == 2
    assert bert.append(STREAM, 0, lines("a", "b")) == AppendResult(2, False)
    with pytest.raises(Moved):
        bert.append(STREAM, 2, lines("b", "c"))
    assert bert.delivered(STREAM, [line.key for line in lines("b", "c")]) == {lines("b")[0].key}


@on_each_engine
def test_many_writers_leave_no_gap(engine: Engine) -> None:
    """Writers at the same time get offsets without a gap, and each line is there once."""

    def write(name: str) -> None:
        ledger = open_for(engine, "anna")
        head = 0
        for number in range(20):
            while True:
                try:
                    head = ledger.append(STREAM, head, lines(f"{name} {number}")).head
                    break
                except Moved:
                    head = ledger.heads()[STREAM].offset
        ledger.close()

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger = open_for(engine, "bert")
    rows = ledger.read(STREAM, 0)
    ledger.close()
    assert [row.offset for row in rows] == list(range(1, 81))
    assert len({row.data for row in rows}) == 80


@on_each_engine
def test_a_purge_reaches_whoever_follows(anna: SharedLedger, bert: SharedLedger) -> None:
    """Purged lines are replaced where they stand; who has not confirmed it is named."""
    anna.append(STREAM, 0, lines("a", "secret", "c"))
    bert.acknowledge(STREAM, 3, 0)
    assert anna.purge(STREAM, [(2, b"gone\n")], "purge") == 1
    assert bert.heads()[STREAM] == Head(3, 1)
    [purged] = bert.purged(STREAM, 0)
    assert (purged.epoch, purged.offsets, purged.reason) == (1, (2,), "purge")
    assert [line.data for line in bert.read(STREAM, 1)] == [b"gone\n", b"c\n"]
    assert [(p.machine, p.stream) for p in anna.pending()] == [("bert", STREAM)]
    bert.acknowledge(STREAM, 3, 1)
    assert anna.pending() == [] and bert.purged(STREAM, 1) == []


@on_each_engine
def test_a_purge_does_not_bring_back_what_another_removed(
    anna: SharedLedger, bert: SharedLedger
) -> None:
    """Lines made of what stood there before another purge are refused."""
    anna.append(STREAM, 0, lines("a", "b"))
    assert bert.purge(STREAM, [(1, b"gone\n")], "purge", 0) == 1
    with pytest.raises(Moved):
        anna.purge(STREAM, [(1, b"a, partly\n")], "purge", 0)
    assert anna.read(STREAM, 0)[0].data == b"gone\n"
    assert anna.purge(STREAM, [(2, b"gone\n")], "purge", 1) == 2


def test_several_streams_grow_together(anna: SharedLedger, bert: SharedLedger) -> None:
    """Lines for several streams are all there or none is, whoever was faster, and once."""
    assert anna.is_transactional and bert.is_transactional
    events, facts = Stream("journal", "_project"), Stream("semantic")
    parts = [Part(facts, 0, lines("f", "g")), Part(events, 0, lines("e"))]
    assert anna.append_all(parts) and not bert.append_all(parts)
    assert bert.heads() == {facts: Head(2, 0), events: Head(1, 0)}
    assert [line.data for line in bert.read(facts, 0)] == [b"f\n", b"g\n"]
    for moved in (
        [Part(facts, 2, lines("h")), Part(events, 0, lines("i"))],
        [Part(facts, 2, lines("h")), Part(events, 1, lines("e"))],
    ):
        with pytest.raises(Moved):
            bert.append_all(moved)
    lease = anna.lease("facts", 0.0)
    assert lease is not None and bert.lease("facts", 60.0) is not None
    with pytest.raises(LeaseLost):
        anna.append_all([Part(facts, 2, lines("k")), Part(events, 1, lines("l"))], [lease])
    assert bert.heads() == {facts: Head(2, 0), events: Head(1, 0)}


def test_who_takes_part_is_known(anna: SharedLedger, bert: SharedLedger) -> None:
    """The machines of a project are named to each of them, with when each was last there."""
    anna.append(STREAM, 0, lines("a"))
    bert.acknowledge(STREAM, 1, 0)
    assert [(m.name, m.writes, m.seen is None) for m in anna.machines()] == [
        ("anna", True, True),
        ("bert", True, False),
    ]
    assert (anna.machine(), bert.machine()) == ("anna", "bert")


@on_each_engine
def test_a_lease_has_one_holder(anna: SharedLedger, bert: SharedLedger) -> None:
    """Only one machine has a lease; one that lost it writes nothing more with it."""
    lease = anna.lease("facts", 0.0)
    assert lease is not None
    later = bert.lease("facts", 60.0)
    assert later is not None and later.fence > lease.fence
    assert anna.lease("facts", 60.0) is None
    with pytest.raises(LeaseLost):
        anna.append(Stream("semantic"), 0, lines("a"), [lease])
    assert bert.append(Stream("semantic"), 0, lines("a"), [later]).now
    assert bert.renew(later, 60.0) and not anna.renew(lease, 60.0)
    bert.release(later)
    assert anna.lease("facts", 60.0) is not None


@on_each_engine
def test_a_change_ends_the_wait(anna: SharedLedger, bert: SharedLedger) -> None:
    """Who waits is told of a change at once, and of none when the time is over."""
    assert bert.wait(0.1)  # the first look
    assert not bert.wait(0.05)
    anna.append(STREAM, 0, lines("a"))
    wait_until(lambda: bert.wait(1.0))


def readable(ledger: SharedLedger) -> bool:
    """Tell whether a machine reads the stream: an engine shows nothing of it, or refuses."""
    try:
        return STREAM in ledger.heads() or bool(ledger.read(STREAM, 0))
    except LedgerError:
        return False


@on_each_engine
def test_a_machine_sees_what_it_was_granted(engine: Engine, anna: SharedLedger) -> None:
    """A machine reads and writes only the projects and agents that it was granted."""
    anna.append(STREAM, 0, lines("a"))
    anna.append(Stream("semantic"), 0, lines("fact"))
    engine.grant("carl", "x")
    engine.grant("dora", read_only=True)
    carl, dora = open_for(engine, "carl"), open_for(engine, "dora")
    assert [*carl.heads()] == [Stream("semantic")] and not readable(carl)
    assert carl.append(Stream("episodic", "x"), 0, lines("x")).head == 1
    for refused in (
        lambda: carl.append(STREAM, 1, lines("b")),
        lambda: carl.purge(STREAM, [(1, b"\n")], "purge"),
        lambda: dora.append(STREAM, 1, lines("b")),
        lambda: dora.lease("facts", 1.0),
    ):
        with pytest.raises(Refused):
            refused()
    assert len(dora.heads()) == 3
    engine.revoke("dora")
    assert not readable(dora)
    carl.close()
    dora.close()


BYPASSES = (
    "UPDATE memtier.lines SET data = 'x'",
    "DELETE FROM memtier.lines",
    "INSERT INTO memtier.grants VALUES('carl', 'harbor', '*', true)",
    "UPDATE memtier.grants SET agent = '*'",
    "INSERT INTO memtier.lines VALUES(1, 9, '2026-01-05', 'k', 'x')",
    "UPDATE memtier.streams SET head = 0",
    "TRUNCATE memtier.lines",
    "DROP POLICY granted ON memtier.lines",
    "ALTER TABLE memtier.lines DISABLE ROW LEVEL SECURITY",
    "SELECT memtier.open_stream('harbor', 'episodic', 'x')",
    "SET SESSION AUTHORIZATION postgres",
    "SET ROLE anna",
    "SELECT * FROM memtier.leases",
    "CREATE FUNCTION memtier.may(text, text, text, int) RETURNS bool LANGUAGE sql AS 'SELECT true'",
    "GRANT memtier_machine TO carl WITH ADMIN OPTION",
    "COPY memtier.lines TO PROGRAM 'cat'",
)


def test_nothing_gets_past_the_grants(postgres: PostgresServer, database: str) -> None:
    """SQL of a machine's own neither reads nor changes what it was not granted."""
    import psycopg

    anna = PostgresLedger(postgres.url(database, "anna"), "harbor")
    anna.append(STREAM, 0, lines("secret"))
    server.grant(postgres.url(database), MachineGrant("carl", "harbor", agent="x"), "owner")
    with connect(postgres.url(database, "carl")) as connection:
        for statement in BYPASSES:
            with pytest.raises(psycopg.Error):
                connection.execute(statement.encode())
        connection.execute("SET row_security = off")
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT * FROM memtier.lines")
        connection.execute("SET row_security = on")
        connection.execute("SET ROLE memtier_machine")
        for statement in ("SELECT * FROM memtier.lines", "TABLE memtier.streams"):
            assert connection.execute(statement.encode()).fetchall() == []
    assert [line.data for line in anna.read(STREAM, 0)] == [b"secret\n"]
    anna.close()


@on_each_engine
def test_names_of_any_kind(anna: SharedLedger) -> None:
    """An owner may have any name, as on the disk."""
    for name in ("a/b", "ß 漢", "x\x00y", "%41", "*", "'; DROP", "\udc80"):
        anna.append(Stream("journal", name), 0, lines(repr(name)))
        assert Stream("journal", name) in anna.heads()


def test_tls_checks_the_server(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without other words the server must prove its name; another certificate is refused."""
    if not postgres.tls:
        pytest.skip("this PostgreSQL was built without TLS")
    certificate = postgres.folder / "server.crt"
    good = postgres.url(database, "anna", f"sslrootcert={certificate}")
    with connect(good) as connection:
        [(used,)] = connection.execute(
            "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        ).fetchall()
        assert used
    monkeypatch.setenv("HOME", str(postgres.folder))
    for url in (
        postgres.url(database, "anna", ""),
        good.replace("127.0.0.1", "localhost"),
    ):
        with pytest.raises(Untrusted, match="certificate"):
            connect(url)


def test_what_cannot_be_used_says_why(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is away, a wrong password, a missing and an unknown schema are told apart."""
    import psycopg

    url = postgres.url(database, "anna")
    with pytest.raises(Unreachable):
        PostgresLedger(url.replace(str(postgres.port), "1"), "harbor").heads()
    with pytest.raises(Refused, match="memtier shared init"):
        PostgresLedger(postgres.url("postgres", "anna"), "harbor").heads()
    with connect(postgres.url(database)) as connection:
        connection.execute("INSERT INTO memtier.schema_version VALUES(99)")
    with pytest.raises(Unreachable, match="newer MemTier"):
        PostgresLedger(url, "harbor").heads()
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(Refused, match="password"):
        PostgresLedger(url, "harbor").heads()
    with pytest.raises((LedgerError, psycopg.Error)):
        server.migrate(url)


def test_an_address_is_shown_without_its_user() -> None:
    """Messages name the servers of an address, one or several, and nothing else of it."""
    for url, shown in (
        ("postgresql://anna@db.example.org/memtier?sslmode=disable", "db.example.org:5432/memtier"),
        ("postgresql://anna@one:5433,two/memtier", "one:5433,two:5432/memtier"),
        ("postgresql:///memtier", "this machine:5432/memtier"),
    ):
        assert address(url) == shown


def test_migrations_are_applied_once(postgres: PostgresServer, database: str) -> None:
    """A database that has all migrations is left as it is."""
    owner: Any = postgres.url(database)
    assert server.migrate(owner) == []
