"""The contract of a storage backend: every backend passes every test here.

A second backend adds one line to `BACKENDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.paths import make_project_folder
from memtier_plugin.core.records import Entry, Fact, JournalEvent, Message, Run, Source
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.storage.new_run import NewRun
from memtier_plugin.storage.protocol import Index, Log
from memtier_plugin.storage.store import Store

NOON: Final = datetime(2026, 1, 5, 12, tzinfo=UTC)


class Backend(Log, Index, Protocol):
    """A log with its index."""


def _files(home: Path) -> AbstractContextManager[Backend]:
    make_project_folder(home, "harbor")
    return closing(Store(home, "harbor", load_settings(home, "harbor")))


BACKENDS: Final[dict[str, Callable[[Path], AbstractContextManager[Backend]]]] = {"files": _files}


@pytest.fixture(params=BACKENDS)
def opened(request: pytest.FixtureRequest, home: Path) -> Callable[[], Any]:
    """Open the backend on the same home, as often as is wanted."""
    return lambda: BACKENDS[request.param](home)


def run(agent: str, *texts: str, session: str = "s", name: str = "r") -> NewRun:
    """Make a run of user messages, each with its text as its key."""
    messages = [(f"{session}/{text}", Message(role="user", content=text), False) for text in texts]
    return NewRun(
        Run(agent=agent, session=session, run=name),
        messages,
        [f"@{key}" for key, _, _ in messages],
        False,
    )


def add(store: Backend, agent: str, *texts: str, **more: str) -> list[Entry]:
    """Append a run at noon."""
    return store.append_entries(agent, [run(agent, *texts, **more)], lambda: NOON)


def fact(entry: Entry, value: str, at: datetime = NOON, **more: Any) -> Fact:
    """Make a fact that rests on an entry."""
    source = Source(agent=entry.agent_id, session=entry.session_id, entry=entry.id)
    return Fact(
        id=new_id(),
        timestamp=at,
        project="harbor",
        subject="Mia",
        relation="likes",
        value=value,
        text=f"Mia likes {value}.",
        sources=(source,),
        **more,
    )


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
        one = fact(tea, "tea")
        both = fact(tea, "both")
        both = Fact.from_json(
            {
                **both.to_json(),
                "sources": [
                    source.to_json() for source in (*both.sources, *fact(rice, "x").sources)
                ],
            }
        )
        store.append_facts([one, both], NOON)
        with store.session() as reader:
            assert reader.dependent_facts([tea.id]) == [one.id]
            assert reader.dependent_facts([tea.id, rice.id]) == sorted([one.id, both.id])
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
                kept = [(item.item, item.state) for item in reader.facts()]
                return [kept, reader.events(), reader.state(entry.id), reader.counts()]

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
