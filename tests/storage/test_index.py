"""The index follows the ledgers: always what a rebuild would give, and nobody else's file."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.records import JournalEvent, Source
from memtier_plugin.memory import MemTier
from memtier_plugin.storage import project_index, sessions, store
from memtier_plugin.storage.index import writer
from memtier_plugin.storage.index.connection import MIGRATIONS, Index, connect
from memtier_plugin.storage.index.postings import follow_plugins
from memtier_plugin.storage.index.sqlite import APPLICATION_ID
from memtier_plugin.storage.index.writer import IndexWriter, build_index
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.jsonl import ledger_files
from memtier_plugin.text.tokenizer import Tokenizer
from tests.builders import make_entry, make_fact, say, user_message
from tests.processes import fork_python

ROOT = Path(__file__).parents[2]
START = datetime(2026, 1, 5, 9, tzinfo=UTC)

# Everything in an index, by names: row numbers and the numbers of scopes are an index's own.
CONTENT = {
    "items": """SELECT items.id, tier, agent, sender, path, line, turn, role, speaker, observed,
                  key, retrievable, indexed, items.length, data,
                  (SELECT agent || '/' || name FROM sessions WHERE sessions.id = session)
                FROM items JOIN scopes ON scopes.id = scope JOIN files ON files.id = file""",
    "postings": """SELECT agent, sender, term, items.id, tf, postings.length FROM postings
                   JOIN scopes ON scopes.id = postings.scope JOIN items ON row = item""",
    "terms": "SELECT agent, sender, term, df FROM terms JOIN scopes ON id = scope",
    "gram_terms": "SELECT agent, sender, term, df FROM gram_terms JOIN scopes ON id = scope",
    "grams": """SELECT agent, sender, substr(term, instr(term, '.') + 1), items.id
                FROM gram_postings JOIN items ON row = doc
                JOIN scopes ON scopes.id = CAST(substr(term, 1, instr(term, '.') - 1) AS INT)""",
    "scopes": "SELECT agent, sender, entries, length FROM scopes",
    "sessions": "SELECT agent, name FROM sessions",
    "sources": "SELECT * FROM sources",
    "facts": "SELECT id, subject, relation, value FROM facts",
    "events": """SELECT events.id, stamp, kind, agent, run, path, line, data
                 FROM events JOIN files ON files.id = file""",
    "touches": "SELECT * FROM touches",
    "states": "SELECT * FROM states",
    "cursors": "SELECT * FROM cursors",
    "bad_lines": "SELECT path, line, reason FROM bad_lines JOIN files ON files.id = file",
    "files": "SELECT path, ledger, owner, size, offset, lines, tail FROM files",
}
COUNTED = (
    "items",
    "postings",
    "terms",
    "gram_terms",
    "gram_postings",
    "sources",
    "facts",
    "touches",
)


def content(connection: apsw.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Return everything in an index, in a fixed order."""
    rows = {name: sorted(connection.execute(sql), key=repr) for name, sql in CONTENT.items()}
    for name in COUNTED:  # what belongs to nothing would not show above
        [(number,)] = connection.execute(f"SELECT count(*) FROM {name}")  # noqa: S608
        rows[f"number of {name}"] = [(number,)]
    return rows


def rebuilt(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return what an index of a project's folder holds that is built from nothing."""
    path = folder / "rebuilt.sqlite3"
    with build_index(path, folder, Tokenizer()) as (connection, _):
        rows = content(connection)
    for file in folder.glob("rebuilt.sqlite3*"):
        file.unlink()
    return rows


def assert_as_rebuilt(memory: MemTier) -> None:
    """Hold the index of a memory equal to one that is built from nothing."""
    memory.catch_up()
    assert content(memory.store.index.connection()) == rebuilt(memory.folder)


def written(memory: MemTier) -> Path:
    """Return the day's ledger of the memory's agent."""
    [path] = (memory.folder / "episodic" / memory.agent_id).glob("*.jsonl")
    return path


# -- the schema -----------------------------------------------------------------------------------


def test_migrations_from_blank(tmp_path: Path) -> None:
    """A new index has the current schema and our mark; opening it again changes nothing."""
    path = tmp_path / "index.sqlite3"
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        schema = connection.execute("SELECT sql FROM sqlite_schema").fetchall()
    with closing(connect(path)) as connection:
        assert connection.execute("SELECT sql FROM sqlite_schema").fetchall() == schema


def test_opened_by_many_at_once(tmp_path: Path) -> None:
    """Processes that open a project for the first time together all get its index."""
    code = (
        "from pathlib import Path; from memtier_plugin.storage.index.connection import connect; "
        "connect(Path(%r))"
    )
    processes = [fork_python("-c", code % str(tmp_path / "index.sqlite3")) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4


# -- following the ledgers ------------------------------------------------------------------------


def test_catching_up_by_offset(home: Path) -> None:
    """Only the new lines of a file are read, by whoever comes next."""
    with MemTier.open(home) as memory, MemTier.open(home) as other:
        say(memory, "the fox sleeps")
        assert other.catch_up() == 0
        with written(memory).open("ab") as file:
            file.write(written(memory).read_bytes().replace(b"01", b"02").replace(b"fox", b"owl"))
        assert other.catch_up() == 1
        assert memory.catch_up() == 0
        assert len(memory.recall("fox owl").hits) == 2


def test_recalls_wait_to_be_indexed(home: Path) -> None:
    """Recalls index no recalls until there are many; whoever looks for one finds them all."""

    def indexed() -> int:
        return len(memory.store.reader().events(kinds=["recall"]))

    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps")
        memory.recall("fox")
        memory.catch_up()
        recalls = [memory.recall("fox") for _ in range(3)]
        assert indexed() == 1
        memory.explain(recalls[-1].id)
        assert indexed() == 4
        for _ in range(40):
            memory.recall("fox")
        assert 10 < indexed() < 44, "those of one time, as soon as there were 33"
        memory.forget(ids=[recalls[0].hits[0].id])
        assert not memory.recall("fox").hits
        assert_as_rebuilt(memory)


def test_a_journal_edited_behind_recalls_is_read_anew(home: Path) -> None:
    """What somebody edits in a journal is seen by the next recall, whatever was added behind it."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps")
        memory.recall("fox")
        memory.catch_up()
        memory.recall("fox")
        [path] = (memory.folder / "journal").rglob("*.jsonl")
        path.write_bytes(path.read_bytes().replace(b"fox", b"owl"))
        memory.recall("fox")
        assert {e.data["query"] for e in memory.store.reader().events(kinds=["recall"])} == {"owl"}


def test_append_within_a_tick_is_seen(home: Path) -> None:
    """Two appends with the same modification time are both read, a torn tail between them too."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps")
        path = written(memory)
        time = path.stat().st_mtime_ns
        line = path.read_bytes().replace(b"fox", b"owl").replace(b'"id": "01', b'"id": "02')
        for part in (line[:50], line[50:]):
            with path.open("ab") as file:
                file.write(part)
            os.utime(path, ns=(time, time))
            memory.catch_up()
        assert memory.recall("owl").hits
        assert not memory.status()["warnings"]


def test_long_files_are_read_to_their_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of many chunks, one line longer than a chunk, is read whole, and rebuilt whole."""
    chunk = 64 * 1024
    monkeypatch.setattr(writer, "CHUNK_BYTES", chunk)
    with MemTier.open(home) as memory:
        texts = [f"fox {number} " + "." * (chunk // 2) for number in range(6)]
        texts.insert(3, "owl" + "." * chunk)
        messages = [user_message(text) for text in texts]
        memory.record(messages, session_id="s")
        assert memory.status()["entries"] == len(texts)
        rows = content(memory.store.index.connection())
        assert memory.reindex()["lines"] == len(texts)
        assert content(memory.store.index.connection()) == rows


def test_bounded_catch_up_is_labelled(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recall reads a bounded part of what is new, says so, and the next one goes on."""
    with MemTier.open(home) as memory:
        say(memory, "the first fox")
        line = written(memory).read_bytes()
        with written(memory).open("ab") as file:
            for number in range(80):
                new = line.replace(b'"id": "01', b'"id": "%02d' % (number + 10))
                new = new.replace(b"first", b"%d " % number + b"." * 4000)
                file.write(new.replace(b'"run_id": "', b'"run_id": "%d' % number))
        for module in (project_index, sessions, store):
            monkeypatch.setattr(module, "REFRESH_BYTES", 100_000)
        first = memory.recall("fox")
        assert first.label == "degraded: index behind"
        while (recall := memory.recall("fox")).label != "hybrid":
            assert recall.label == "degraded: index behind"
        assert memory.status()["index"]["behind"] == []


@pytest.mark.parametrize(
    ("change", "what", "left"),
    [
        (lambda p, d: p.write_bytes(d.replace(b"fox 1", b"cat 1")), "edited", {"cat 1", "fox 2"}),
        (lambda p, d: p.write_bytes(d.splitlines(True)[0]), "truncated", {"fox 1"}),
        (
            lambda p, d: os.replace(copied(p, d, b"fox 2", b"cat 22"), p),
            "replaced",
            {"fox 1", "cat 22"},
        ),
        (lambda p, d: p.unlink(), "deleted", set()),
    ],
    ids=["edited", "truncated", "replaced", "deleted"],
)
def test_changed_ledger_is_read_anew(home: Path, change: Any, what: str, left: set[str]) -> None:
    """A file that a person changed is dropped and read from zero, with a warning in `status`."""
    with MemTier.open(home) as memory:
        say(memory, "fox 1", run_id="r1")
        say(memory, "fox 2", run_id="r2")
        path = written(memory)
        data = path.read_bytes()
        assert not memory.status()["warnings"]
        change(path, data)
        if path.exists():
            os.utime(path, (1, 1))  # not within the tick in which it was written
        memory.catch_up()
        [warning] = [w for w in memory.status()["warnings"] if f"was {what} by" in w]
        assert path.name in warning
        assert {hit.text for hit in memory.recall("fox cat").hits} == left
        assert_as_rebuilt(memory)


def copied(path: Path, data: bytes, old: bytes, new: bytes) -> Path:
    """Return a changed copy of a file, as an editor makes it before the swap."""
    fresh = path.with_suffix(".swp")
    fresh.write_bytes(data.replace(old, new))
    return fresh


def test_broken_file_does_not_stop_the_others(home: Path) -> None:
    """A ledger that cannot be read is named; every other one is followed all the same."""
    with MemTier.open(home, agent_id="a") as first, MemTier.open(home, agent_id="b") as second:
        say(first, "the fox")
        say(second, "the fox")
        folder = written(first).parent
        (folder / "2020-01-01.jsonl").symlink_to(written(second))
        line = written(second).read_bytes().replace(b'"id": "01', b'"id": "02')
        with written(second).open("ab") as file:
            file.write(line)
        assert "is a symlink" in str(first.status()["degraded"])
        assert len(second.recall("fox").hits) == 2
        assert any("is a symlink" in finding.what for finding in first.doctor())


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\x00\x01",
        b"[" * 100_000,
        b"null",
        b'{"schema": 1}',
        b'{"schema": 1, "id": 5}',
        b"1" * 5000,
    ],
)
def test_invalid_lines_are_named(home: Path, line: bytes) -> None:
    """A line that is no record costs only itself; `doctor` names its file and line."""
    with MemTier.open(home) as memory:
        say(memory, "the fox", run_id="r1")
        with written(memory).open("ab") as file:
            file.write(line + b"\n")
        say(memory, "the owl", run_id="r2")
        assert len(memory.recall("fox owl").hits) == 2
        assert "1 ledger lines could not be read" in str(memory.status()["warnings"])
        findings = [f for f in memory.doctor() if "cannot be read" in f.what]
        assert [f.where for f in findings] == [f"{written(memory)}:2"]


@pytest.mark.parametrize(
    "change",
    [
        {"sources": 5},
        {"sources": ["x"]},
        {"sources": []},
        {"sources": [{"entry": 1}]},
        {"valid_from": "yesterday"},
        {"subject": None},
        {"tier": "golden"},
        {"span": 3},
        {"confidence": {}},
        {"timestamp": "0001-01-01T00:00:00+23:59"},
        {"relation": []},
    ],
    ids=str,
)
def test_malformed_facts(home: Path, change: dict[str, Any]) -> None:
    """Whatever a fact's line holds, the index takes it whole or counts it, and goes on."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps")
        fact = memory.remember("the fox is red")
        [path] = (memory.folder / "semantic").glob("*.jsonl")
        with path.open("ab") as file:
            file.write(jsonl.to_line({**fact.to_json(), "id": "other", **change}))
        with MemTier.open(home, agent_id="other") as other:
            other.remember("the owl is grey")
        assert {"the fox is red", "the owl is grey"} <= {fact.text for fact in memory.facts()}
        assert_as_rebuilt(memory)


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "credit"},
        {"kind": "credit", "item": "x", "attempt": 1, "delta": "much"},
        {"kind": "credit", "item": "x", "attempt": 1, "delta": float("nan")},
        {"kind": "credit", "item": "x", "attempt": "first", "delta": 0.1},
        {"kind": "credit", "item": "x", "attempt": 10**30, "delta": 0.1},
        {"kind": "promote", "items": ["x"], "facts": ["f"]},
        {"kind": "promote", "items": ["x"], "facts": [{}], "agent": "a", "session": "s"},
        {"kind": "promote", "items": 5},
        {"kind": "supersede", "items": ["x"]},
        {"kind": "supersede", "items": ["x"], "by": 7},
        {"kind": "supersede", "items": ["x"], "by": "y", "valid_to": 7},
        {"kind": "forget"},
        {"kind": "forget", "items": [["x"]]},
        {"kind": "consolidate", "cursors": [1]},
        {"kind": "consolidate", "cursors": {"a": "b"}},
        {"kind": "consolidate", "cursors": {"a": 10**30}},
        {"kind": "never heard of", "items": 3},
        {"kind": 5},
    ],
    ids=str,
)
def test_malformed_events(home: Path, event: dict[str, Any]) -> None:
    """Whatever an event's line holds, the index takes it whole or counts it, and goes on."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps")
        fields = {key: entry.id if value == "x" else value for key, value in event.items()}
        line = {"id": "e1", "timestamp": "2026-01-05T09:00:00Z", "agent_id": "main", **fields}
        folder = memory.folder / "journal" / "main"
        folder.mkdir(parents=True, mode=0o700)
        credit = {"kind": "credit", "id": "e2", "item": entry.id, "attempt": 1, "delta": 0.25}
        jsonl.append_records(
            folder / "2026-01-05.jsonl", [line, {**line, **credit, "run_id": "other"}]
        )
        memory.catch_up()
        [hit] = memory.recall("fox").hits
        assert hit.weight in (0.25, 0.35)
        assert_as_rebuilt(memory)


def test_one_line_of_many_is_refused(home: Path) -> None:
    """Of lines read together one that proves malformed only when it is put in leaves nothing."""
    with MemTier.open(home) as memory:
        first = say(memory, "fox 0", run_id="r0")
        lines = [
            {**first.to_json(), "id": f"e{n}", "key": f"k{n}", "content": f"fox {n}", **change}
            for n, change in enumerate(
                [
                    {},
                    {"session_id": "s-of-a-refused-line", "sender": "sam", "id": first.id},
                    {"session_id": "s-of-another", "key": "\ud800"},
                    {"session_id": "s2"},
                    {"id": "e4", "session_id": "s3"},
                    {"session_id": "s2", "sender": "ann"},
                ],
                start=1,
            )
        ]
        jsonl.append_records(written(memory), lines)
        assert memory.catch_up() == len(lines)
        connection = memory.store.index.connection()
        assert [line for _, line, _ in memory.store.reader().bad_lines()] == [3, 4, 6]
        names = connection.execute("SELECT name FROM sessions ORDER BY name").fetchall()
        assert names == [("s",), ("s2",)]
        assert len(memory.recall("fox").hits) == 3
        assert_as_rebuilt(memory)


class Interrupted(IndexWriter):
    """A writer that lets another one work while it prepares what it has read."""

    other: IndexWriter | None = None

    def prepare(self, records: Any) -> Any:
        """Prepare, as every writer; the index is not locked meanwhile."""
        other, self.other = self.other, None
        if other:
            assert not self._db.in_transaction
            assert other.catch_up_all() == 2
        return super().prepare(records)


def test_preparing_locks_nobody_out(tmp_path: Path) -> None:
    """While a writer makes words and vectors others write; what they have put in comes once."""
    path = tmp_path / "episodic" / "a" / "2026-01-05.jsonl"
    path.parent.mkdir(parents=True)
    jsonl.append_records(path, [entry_line(n, "fox", "a", False, START)[1] for n in (0, 2)])
    index = tmp_path / "index.sqlite3"
    with closing(connect(index)) as connection, closing(connect(index)) as two:
        writer = Interrupted(connection, tmp_path, Tokenizer())
        writer.other = IndexWriter(two, tmp_path, Tokenizer())
        assert writer.catch_up_all() == 0
        assert content(connection) == rebuilt(tmp_path)
        jsonl.append_records(path, [entry_line(4, "owl", "a", False, START)[1]])
        assert writer.catch_up_all() == 1
        assert content(connection) == rebuilt(tmp_path)


def test_older_lines_stay_readable(home: Path) -> None:
    """A line with the paper's own eight fields is recalled beside ours."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps")
        old = {
            "id": "old-1",
            "timestamp": "2025-12-01T10:00:00Z",
            "session_id": "s0",
            "project": "default",
            "content": "the fox woke",
            "tokens": 3,
            "promoted": False,
            "cognitive_weight": 0.0,
        }
        jsonl.append_records(written(memory).with_name("2025-12-01.jsonl"), [old])
        assert {hit.text for hit in memory.recall("fox").hits} == {"the fox sleeps", "the fox woke"}


def test_own_rewriting_is_no_surprise(home: Path) -> None:
    """Dropping old recalls from the journal leaves no warning of a changed ledger behind."""
    with MemTier.open(home, clock=lambda: START) as memory:
        say(memory, "the fox sleeps")
        memory.recall("fox")
    with MemTier.open(home, clock=lambda: START + timedelta(days=100)) as memory:
        memory.catch_up()
        assert memory.expire_recalls() == 1
        memory.catch_up()
        assert memory.status()["warnings"] == []


# -- equal to a rebuild ---------------------------------------------------------------------------

WORDS = ["fox", "owl", "bear", "sleeps", "wakes", "世界", "Grüße"]
AGENTS = ("a", "b")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
entry_ids = st.sampled_from([f"e{number}" for number in range(6)])
fact_ids = st.sampled_from([f"f{number}" for number in range(4)])
moments = st.integers(0, 3).map(lambda hours: START + timedelta(hours=hours))


def entry_line(number: int, text: str, agent: str, system: bool, moment: datetime) -> Any:
    """Return an entry's ledger and line."""
    role = "system" if system else "user"
    people = {"sender": "sam" if number == 5 else None, "speaker": "Ann" if number % 2 else None}
    given = {"agent_id": agent, "turn": number, "session_id": f"s{number % 2}", "role": role}
    entry = make_entry(text, moment, id=f"e{number}", **given, **people)
    return f"episodic/{agent}/2026-01-0{5 + number % 2}.jsonl", entry.to_json()


def fact_line(number: int, text: str, entries: set[str]) -> Any:
    """Return a fact's ledger and line."""
    sources = tuple(Source(agent="a", session="s0", entry=entry) for entry in sorted(entries))
    status = "proposed" if number == 3 else "active"
    fact = make_fact(text, START, id=f"f{number}", sources=sources, status=status)
    return "semantic/2026-01-05.jsonl", fact.to_json()


event_data = st.one_of(
    st.builds(
        lambda item, attempt, delta: ("credit", {"item": item, "attempt": attempt, "delta": delta}),
        entry_ids | fact_ids, st.integers(1, 2), st.sampled_from([-0.5, 0.0, 0.7, 1.0]),
    ),
    st.builds(
        lambda items, facts: (
            "promote",
            {"items": sorted(items), "facts": sorted(facts), "agent": "a", "session": "s0"},
        ),
        st.sets(entry_ids, min_size=1, max_size=2), st.sets(fact_ids, max_size=2),
    ),
    st.builds(lambda old, by: ("supersede", {"items": [old], "by": by}), fact_ids, fact_ids),
    st.builds(
        lambda kind, items: (kind, {"items": sorted(items)}),
        st.sampled_from(["forget", "unforget"]),
        st.sets(entry_ids | fact_ids, min_size=1, max_size=3),
    ),
    st.builds(
        lambda offset: ("consolidate", {"cursors": {"episodic/a/2026-01-05.jsonl": offset}}),
        st.integers(0, 900),
    ),
)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, dict[str, Any]]]:
    """Draw the lines of a project's ledgers in any order; None stands for catching up."""
    lines: list[Any] = [
        entry_line(
            number, draw(texts), draw(st.sampled_from(AGENTS)), draw(st.integers(0, 9)) == 0,
            draw(moments),
        )
        for number in range(draw(st.integers(1, 6)))
    ]  # fmt: skip
    lines += [
        fact_line(number, draw(texts), draw(st.sets(entry_ids, min_size=1, max_size=2)))
        for number in range(draw(st.integers(0, 4)))
    ]
    for number, (kind, data) in enumerate(draw(st.lists(event_data, max_size=8))):
        event = JournalEvent(
            id=f"j{number}", timestamp=draw(moments), kind=kind, agent_id="a",
            run_id=f"r{draw(st.integers(0, 1))}", data=data,
        )  # fmt: skip
        lines.append((f"journal/{draw(st.sampled_from(['a', '_project']))}/2026-01-05.jsonl",
                      event.to_json()))  # fmt: skip
    lines += [None] * draw(st.integers(0, 5))
    return draw(st.permutations(lines))


@given(histories(), st.randoms(use_true_random=False))
def test_index_equals_a_rebuild(
    tmp_path_factory: pytest.TempPathFactory, history: list[Any], chance: random.Random
) -> None:
    """However ledgers grew, were read, edited and lost, all of the index is as if built anew.

    Postings, statistics, states, sources and what is shown are compared, by ids and names.
    """
    folder = tmp_path_factory.mktemp("project")
    with closing(connect(folder / "index.sqlite3")) as connection:
        follow_plugins(connection, {})
        writer = IndexWriter(connection, folder, Tokenizer())
        for step in history:
            if step is None:
                writer.catch_up_all()
                continue
            path = folder / step[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            jsonl.append_records(path, [step[1]])
        writer.catch_up_all()
        assert content(connection) == rebuilt(folder)
        victim = chance.choice(ledger_files(folder)).path
        lines = victim.read_bytes().splitlines(keepends=True)
        lines.remove(chance.choice(lines))
        victim.write_bytes(b"".join(lines)) if lines else victim.unlink()
        writer.catch_up_all()
        assert content(connection) == rebuilt(folder)


def test_reindex_while_others_work(home: Path) -> None:
    """While an index is rebuilt another thread records and recalls; in the end nothing lacks."""
    with MemTier.open(home) as memory:
        for number in range(60):
            say(memory, f"fox {number}", run_id=f"r{number}")
        done = threading.Event()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                number = 0
                while not done.is_set() or number < 5:
                    say(memory, f"owl {number}", run_id=f"o{number}")
                    assert memory.recall(f"owl {number}").hits
                    number += 1
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        steps: list[tuple[int, int]] = []
        for _ in range(3):
            memory.reindex(lambda done, total: steps.append((done, total)))
        done.set()
        thread.join()
        assert not failures
        assert steps[-1][0] == steps[-1][1]
        memory.catch_up()
        assert_as_rebuilt(memory)
        assert not memory.status()["warnings"]


# -- costs and connections ------------------------------------------------------------------------


def test_number_of_queries_of_a_recall(home: Path) -> None:
    """A recall runs a bounded number of queries, the same for ten entries and for hundreds."""
    counts = []
    with MemTier.open(home) as memory:
        memory.remember("the fox is red")
        for size in (10, 200):
            messages = [user_message(f"fox number {n}") for n in range(size)]
            memory.record(messages, session_id=f"s{size}")
            memory.recall("fox")  # reads its own journal line of before
            memory.catch_up()
            queries: list[str] = []
            connection = memory.store.index.connection()
            connection.exec_trace = lambda _, sql, __, seen=queries: seen.append(sql) or True
            assert memory.recall("fox").hits
            connection.exec_trace = None
            counts.append(len(queries))
    assert counts[1] <= counts[0] + 5, counts
    assert max(counts) <= 120, counts


def test_dead_threads_leave_no_connection(home: Path) -> None:
    """A host that makes a thread per run does not collect open files."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps")
        for _ in range(20):
            thread = threading.Thread(target=memory.recall, args=("fox",))
            thread.start()
            thread.join()
        assert len(memory.store.index._held) <= 2


def test_index_is_used_after_close(home: Path) -> None:
    """Closing lets go of every file; using it again opens it anew."""
    index = Index(home / "index.sqlite3")
    home.mkdir()
    first = index.connection()
    index.close()
    with pytest.raises(apsw.ConnectionClosedError):
        first.execute("SELECT 1")
    assert index.connection().execute("SELECT count(*) FROM items").fetchone() == (0,)
    index.close()


def test_data_is_the_ledger_line(home: Path) -> None:
    """Every item carries its ledger line byte by byte, and the line's place."""
    with MemTier.open(home) as memory:
        say(memory, "the fox\nsleeps \ud800", run_id="r1")
        say(memory, "the owl", run_id="r2")
        lines = written(memory).read_bytes().splitlines(keepends=True)
        for hit in memory.recall("fox owl").hits:
            [source] = hit.sources
            assert source.file is not None and source.line is not None
            assert memory.folder / source.file == written(memory)
            assert json.loads(lines[source.line - 1])["id"] == hit.id


def test_a_check_beside_writers_finds_no_damage(home: Path) -> None:
    """A connection that has searched does not take for damage what others wrote since."""
    with MemTier.open(home) as memory:
        say(memory, "the owl lives in the oak")
        memory.recall("owl")
        stop = threading.Event()

        def write(number: int) -> None:
            for turn in count():
                say(memory, f"the fox {number} sleeps in barn {turn}")
                memory.recall("fox")
                if stop.is_set():
                    break

        threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        results = set()
        for _ in range(25):
            time.sleep(0.05)
            results.add(memory.store.check_index())
        stop.set()
        for thread in threads:
            thread.join()
        assert results == {"ok"}
