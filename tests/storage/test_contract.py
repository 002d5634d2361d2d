"""The contract of a storage backend: every backend passes every test here.

A further backend is one more name in `BACKENDS`, and how it is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.formats import new_id
from memtier_plugin.core.paths import ProjectFolder, make_project_folder, shared_name
from memtier_plugin.core.records import Entry, Fact, JournalEvent, Message, Run
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.storage.opening import open_as_of, open_store
from memtier_plugin.storage.protocol import NewRun
from memtier_plugin.storage.shared.bootstrap import join
from memtier_plugin.storage.store import Store
from tests.builders import make_fact
from tests.shared.engines import ENGINES, Engine
from tests.shared.fixtures import open_engine

NOON: Final = datetime(2026, 1, 5, 12, tzinfo=UTC)


def _files(home: Path) -> AbstractContextManager[Store]:
    make_project_folder(home, "harbor")
    return closing(Store(home, "harbor", load_settings(home, "harbor")))


def _shared(home: Path, engine: Engine) -> AbstractContextManager[Store]:
    make_project_folder(home, "harbor")
    folder = ProjectFolder.of(home, "harbor")
    if shared_name(folder.path) is None:
        join(folder, "harbor")
    where = {"ledger.shared": engine.url("anna"), "ledger.durability": engine.durability}
    settings = load_settings(home, "harbor", overrides=where)
    return closing(open_store(home, "harbor", settings))


BACKENDS: Final = ("files", *(pytest.param(name, marks=pytest.mark.shared) for name in ENGINES))


@pytest.fixture(params=BACKENDS)
def opened(request: pytest.FixtureRequest, home: Path) -> Callable[[], Any]:
    """Open the backend on the same home, as often as is wanted."""
    if request.param == "files":
        return lambda: _files(home)
    engine = open_engine(request.param, request)
    return lambda: _shared(home, engine)


def run(agent: str, *texts: str, session: str = "s", name: str = "r") -> NewRun:
    """Make a run of user messages, each with its text as its key."""
    messages = [(f"{session}/{text}", Message(role="user", content=text), False) for text in texts]
    return NewRun(
        Run(agent=agent, session=session, run=name),
        messages,
        [f"@{key}" for key, _, _ in messages],
    )


def add(store: Store, agent: str, *texts: str, **more: str) -> list[Entry]:
    """Append a run at noon."""
    return store.append_entries(agent, [run(agent, *texts, **more)], lambda: NOON)


def fact(entry: Entry, value: str, at: datetime = NOON, **more: Any) -> Fact:
    """Make a fact that rests on an entry."""
    about = {"project": "harbor", "subject": "Mia", "relation": "likes", "value": value}
    sources = (entry.source,)
    return make_fact(f"Mia likes {value}.", at, id=new_id(), sources=sources, **about, **more)


def event(kind: str, agent: str = "a", at: datetime = NOON, **data: Any) -> JournalEvent:
    """Make a journal event."""
    return JournalEvent(id=new_id(), timestamp=at, kind=kind, agent_id=agent, data=data)


def ids(stored: Sequence[Any]) -> list[str]:
    """Return the ids of stored items."""
    return [item.item.id for item in stored]


def test_what_is_acknowledged_is_there(opened: Callable[[], Any]) -> None:
    """An entry that was returned is read by whoever opens the project next, unchanged."""
    with opened() as store:
        entries = add(store, "a", "tea", "rice")
    with opened() as store, store.session() as reader:
        assert reader.entries(agent="a") == [entry.id for entry in entries]
        stored = reader.items([entries[1].id, entries[0].id, "nobody"])
        assert [stored[entry.id].item for entry in entries] == entries
        assert [*stored] == [entry.id for entry in entries]


def test_a_second_delivery_writes_nothing(opened: Callable[[], Any]) -> None:
    """Messages whose keys are there already are not written again; new ones beside them are."""
    with opened() as store:
        first = add(store, "a", "tea")
        again = add(store, "a", "tea", "rice")
        assert [entry.content for entry in again] == ["rice"]
        assert [entry.turn for entry in (*first, *again)] == [1, 2]


def test_agents_and_senders_are_apart(opened: Callable[[], Any]) -> None:
    """No agent's scopes hold what another wrote, and a private fact is of one audience only."""
    with opened() as store:
        [mine], [theirs] = add(store, "a", "tea"), add(store, "b", "rice")
        secret = fact(mine, "tea", private_to=("a", ""))
        store.append_facts([secret, fact(theirs, "rice")], NOON)
        with store.session() as reader:
            assert not {*reader.scopes("a", None)} & {*reader.scopes("b", None)}
            assert reader.entries(agent="a") == [mine.id]
            assert ids(reader.facts(audience=("a", ""))) == [secret.id]
            assert secret.id not in ids(reader.facts(readable_by="b"))
            assert secret.id in ids(reader.facts(readable_by="a"))


def test_facts_by_their_standing(opened: Callable[[], Any]) -> None:
    """A fact is found as what the journal makes of it, in whatever order the events came."""
    with opened() as store:
        [entry] = add(store, "a", "tea")
        old, new = fact(entry, "tea"), fact(entry, "rice")
        waiting = fact(entry, "salt", status="proposed")
        store.append_events([event("supersede", items=[old.id], by=new.id)], shared=True)
        store.append_facts([old, new, waiting], NOON)
        with store.session() as reader:
            assert ids(reader.facts(standing="current")) == [new.id]
            assert ids(reader.facts(standing="past")) == [old.id, waiting.id]
            assert ids(reader.facts(standing="waiting")) == [waiting.id]
            assert ids(reader.facts(standing="remembered")) == [old.id, new.id, waiting.id]
            assert ids(reader.facts(value="rice", relation="likes", subject="mia")) == [new.id]
            assert reader.state(old.id).superseded_by == new.id
        store.append_events([event("forget", items=[new.id], session=None)])
        with store.session() as reader:
            assert reader.facts(standing="current") == []
            assert ids(reader.facts(standing="remembered")) == [old.id, waiting.id]


def test_facts_that_rest_on_entries(opened: Callable[[], Any]) -> None:
    """A fact depends on entries when nothing else that it rests on is left."""
    with opened() as store:
        [tea], [rice] = add(store, "a", "tea"), add(store, "a", "rice")
        tea_fact = fact(tea, "tea")
        both = fact(tea, "both")
        both = Fact.from_json(
            {
                **both.to_json(),
                "sources": [
                    source.to_json() for source in (*both.sources, *fact(rice, "x").sources)
                ],
            }
        )
        store.append_facts([tea_fact, both], NOON)
        with store.session() as reader:
            assert reader.dependent_facts([tea.id]) == [tea_fact.id]
            assert reader.dependent_facts([tea.id, rice.id]) == sorted([tea_fact.id, both.id])
            assert [source.entry for source in reader.sources(both.id)] == [tea.id, rice.id]


def test_events_by_their_conditions(opened: Callable[[], Any]) -> None:
    """Events come in order, within both ends of a time, or the newest first."""
    with opened() as store:
        [entry] = add(store, "a", "tea")
        times = [NOON + timedelta(seconds=n) for n in range(4)]
        events = [event("forget", at=at, items=[entry.id], session=None) for at in times]
        other = event("forget", "b", NOON, items=["x"], session=None)
        store.append_events(events)
        store.append_events([other])
        with store.session() as reader:
            assert reader.events(item=entry.id) == events
            assert reader.events(["forget"], agent="b") == [other]
            assert reader.events(agent="a", since=times[1], until=times[2]) == events[1:3]
            assert reader.events(agent="a", since=times[1], before=times[2]) == events[1:2]
            assert reader.events(["forget", "accept"], agent="a", newest=2) == events[:1:-1]
            assert reader.events(["accept"]) == []


def test_an_index_built_again_reads_the_same(opened: Callable[[], Any]) -> None:
    """The index is derived: built again it answers as it did."""
    with opened() as store:
        [entry] = add(store, "a", "tea")
        store.append_facts([fact(entry, "tea"), fact(entry, "rice")], NOON)
        store.append_events([event("forget", items=[entry.id], session=None)])

        def read() -> list[Any]:
            with store.session() as reader:
                facts = [(item.item, item.state) for item in reader.facts()]
                return [facts, reader.events(), reader.state(entry.id), reader.counts()]

        before = read()
        store.reindex()
        assert read() == before
        assert store.refresh("a", wait_ms=1000) is None


def test_a_lock_has_one_holder(opened: Callable[[], Any]) -> None:
    """What one holds nobody else gets, however it was taken, until it is let go."""
    with opened() as store, opened() as other:
        with store.exclusive("facts"), other.try_exclusive("facts") as held:
            assert not held
        with store.try_exclusive("facts") as held:
            assert held
            with pytest.raises(LedgerError), other.exclusive("facts", 0.0):
                raise AssertionError
        with other.try_exclusive("facts") as held:
            assert held


def test_sessions_share_a_view(opened: Callable[[], Any]) -> None:
    """A session opened within another sees what was written meanwhile in both."""
    with opened() as store, store.session() as outer:
        [entry] = add(store, "a", "tea")
        with store.session() as inner:
            assert inner.entries() == outer.entries() == [entry.id]


def test_the_log_is_read_past_the_index(opened: Callable[[], Any]) -> None:
    """Every record is in one segment, whose entries come in order and from any cursor on."""
    with opened() as store:
        entries = [*add(store, "a", "tea", "rice"), *add(store, "b", "salt")]
        store.append_facts([fact(entries[0], "tea")], NOON)
        forgot = event("forget", items=[entries[0].id], session=None)
        store.append_events([forgot])
        segments = store.log.segments()
        assert [(s.ledger, s.owner, s.day) for s in segments] == [
            ("episodic", "a", "2026-01-05"),
            ("episodic", "b", "2026-01-05"),
            ("semantic", None, "2026-01-05"),
            ("journal", "a", "2026-01-05"),
        ]
        assert [s.name for s in store.log.segments("episodic", "b")] == [segments[1].name]
        assert [logged.entry for logged in store.log.entries()] == entries
        assert [logged.entry for logged in store.log.entries(agent="b")] == entries[2:]
        assert not [*store.log.entries(day="2026-01-04")]
        assert [*store.log.events(day="2026-01-05")] == [forgot]
        first, second = store.log.entries(agent="a")
        with store.session() as reader:
            end = reader.offsets()[segments[0].name]
        assert (first.end, second.end) == (second.start, end)
        assert [*store.log.entries_after(segments[0], first.end, end)] == [[second]]
        assert not any(store.log.entries_after(segments[0], 0, 0))


def test_a_rewritten_log_is_read_again(opened: Callable[[], Any]) -> None:
    """What a purge replaces in a segment is gone from the log and, once it is read, the index."""
    with opened() as store:
        [entry] = add(store, "a", "coffee")
        [segment] = store.log.segments()
        assert not store.log.rewrite(segment, lambda record: record)
        assert store.log.rewrite(segment, lambda record: record.replace(b"coffee", b"------"))
        assert not any(b"coffee" in record for record in store.log.records(segment))
        store.reindex()
        assert store.scrub_index(1.0)
        with store.session() as reader:
            assert reader.items([entry.id])[entry.id].item.content == "------"


def test_a_sound_log_and_index_say_so(opened: Callable[[], Any]) -> None:
    """A verification reads every segment; sizes are those of what is there."""
    with opened() as store:
        before = store.measure_usage(NOON)
        add(store, "a", "tea")
        assert store.log.verify() == (1, [])
        assert store.check_index() == "ok" and store.list_set_aside() == []
        assert not [*store.remove_set_aside()]
        usage = store.measure_usage(NOON)
        assert usage.tiers["episodic"] == usage.today > before.today == 0
        assert store.index_size() > 0
        assert store.log.last_written() > 0
        assert [owner for owner, _ in store.log.owner_folders()] == ["a"]


def test_facts_and_events_are_committed_together(opened: Callable[[], Any]) -> None:
    """After a commit both are there, and nothing waits for completion."""
    with opened() as store:
        [entry] = add(store, "a", "tea")
        old, new = fact(entry, "tea"), fact(entry, "rice")
        store.append_facts([old], NOON)
        with store.exclusive("facts"):
            store.commit([new], [event("supersede", items=[old.id], by=new.id)])
            store.complete_commit()
        assert store.pending_commit() is None
        with store.session() as reader:
            assert ids(reader.facts(standing="current")) == [new.id]
            assert reader.state(old.id).superseded_by == new.id


def test_events_expire_by_kind_and_day(opened: Callable[[], Any]) -> None:
    """Only events of the kind, of days before the time, are dropped from log and index."""
    with opened() as store:
        [entry] = add(store, "a", "tea")
        next_day = NOON + timedelta(days=1)
        old, stays = event("recall"), event("forget", items=[entry.id], session=None)
        recent = event("recall", at=next_day)
        for each in (old, stays, recent):
            store.append_events([each])
        store.catch_up_all()
        assert store.expire_events("recall", next_day) == 1
        assert store.expire_events("recall", next_day) == 0
        assert [*store.log.events()] == [stays, recent]
        with store.session() as reader:
            assert reader.events() == [stays, recent]


def test_a_past_time_has_an_index_of_its_own(opened: Callable[[], Any]) -> None:
    """As of a time only what was written by then is there, and nothing is written."""
    with opened() as store:
        [entry] = add(store, "a", "tea")
        before, after = fact(entry, "tea"), fact(entry, "rice", NOON + timedelta(days=1))
        store.append_facts([before], NOON)
        store.append_facts([after], after.timestamp)
        with open_as_of(store, NOON, written=True) as past:
            past.append_events([event("forget", items=[before.id], session=None)])
            with past.session() as reader:
                assert ids(reader.facts()) == [before.id]
        with store.session() as reader:
            assert ids(reader.facts(standing="remembered")) == [before.id, after.id]


def test_what_is_delivered_already_is_known(opened: Callable[[], Any]) -> None:
    """The keys that would be written are those of the new messages."""
    with opened() as store:
        add(store, "a", "tea")
        assert store.undelivered_keys("a", [run("a", "tea", "rice")]) == {"s/rice"}


def test_the_newest_entries_of_a_session(opened: Callable[[], Any]) -> None:
    """A session's newest entries come last first, up to a limit, for its own agent and sender."""
    with opened() as store:
        first = add(store, "a", "tea", "rice", session="s")
        second = add(store, "a", "soup", session="s", name="r2")
        add(store, "a", "salt", session="t", name="r3")
        add(store, "b", "fish", session="s")
        with store.session() as reader:
            mine, others = reader.scopes("a", None), reader.scopes("b", None)
            rows = reader.rows_of([entry.id for entry in (*first, *second)])
            order = [rows[entry.id] for entry in (*second, *reversed(first))]
            assert reader.newest_in_session("a", "s", mine, 9) == order
            assert reader.newest_in_session("a", "s", mine, 2) == order[:2]
            assert reader.newest_in_session("a", "s", others, 9) == []
            assert reader.newest_in_session("a", "nobody", mine, 9) == []
