"""List the changes to a project's facts between two times, from the ledgers and the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from memtier_plugin.core.event_payload import StateEvent
from memtier_plugin.core.events import (
    AcceptEvent,
    ForgetEvent,
    PromoteEvent,
    ReinstateEvent,
    RejectEvent,
    RestoreEvent,
    RetractEvent,
    RevertEvent,
    SupersedeEvent,
    UndoEvent,
    UnforgetEvent,
    WithdrawEvent,
    payload_of,
)
from memtier_plugin.core.records import Fact, JournalEvent
from memtier_plugin.core.structs import Record
from memtier_plugin.retrieval.visibility import Asker, is_visible, is_withheld, redact_for
from memtier_plugin.storage.readers import Reader

# The kinds of events that change facts; a promotion that names a fact adds a source to it.
EVENT_CHANGES: Final = {
    PromoteEvent.KIND: "updated",
    SupersedeEvent.KIND: "superseded",
    RetractEvent.KIND: "superseded",
    AcceptEvent.KIND: "accepted",
    RejectEvent.KIND: "rejected",
    RevertEvent.KIND: "reverted",
    RestoreEvent.KIND: "restored",
    ForgetEvent.KIND: "forgotten",
    UnforgetEvent.KIND: "unforgotten",
    WithdrawEvent.KIND: "withdrawn",
    ReinstateEvent.KIND: "reinstated",
}

_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 31, tzinfo=UTC)


class FactChange(Record, frozen=True):
    """A change to one fact: added, proposed, or one of `EVENT_CHANGES`.

    A forgotten fact is shown by its id alone.  ``by`` is the fact that superseded it, ``agent``
    who changed it, ``run`` the consolidation.
    """

    what: str
    at: datetime
    id: str
    fact: Fact | None = None
    by: Fact | None = None
    agent: str | None = None
    run: str | None = None
    why: str = ""


def list_changes(
    reader: Reader,
    since: datetime,
    until: datetime,
    viewer: Asker | None,
    *,
    written: bool = False,
) -> list[FactChange]:
    """Return the changes, oldest first, to the facts that an agent may see.

    A fact is new, is more than before or takes the place of another when it was said; what somebody
    decided about it happened when it was journalled.

    Args:
        viewer: an agent and for whom it asks; None for the person at the machine, or an agent
            that reads all entries.
        written: go by the time of writing throughout.
    """
    if written:
        return _list_written(reader, since, until, viewer)
    times_said = reader.said_times()
    changes = _list_written(reader, _FIRST, _LAST, viewer)
    dated = [replace(change, at=_time_said(change, times_said)) for change in changes]
    chosen = [change for change in dated if since <= change.at <= until]
    return sorted(chosen, key=lambda change: change.at)


def _time_said(change: FactChange, times_said: Mapping[str, datetime]) -> datetime:
    if change.what in ("added", "proposed"):
        return times_said.get(change.id, change.at)
    if change.what == "superseded" and change.by:
        return times_said.get(change.by.id, change.at)
    return change.at


def _list_written(
    reader: Reader, since: datetime, until: datetime, viewer: Asker | None
) -> list[FactChange]:
    """Return the changes by the time at which they were written."""
    written = reader.facts(written_since=since, written_until=until)
    events = [
        event
        for kind in EVENT_CHANGES
        for event in reader.events(kinds=[kind], since=since, until=until)
    ]
    named = {item for event in events for item in _items(event)}
    named |= {SupersedeEvent.of(event).by for event in events if event.kind == SupersedeEvent.KIND}
    visible: dict[str, Fact | None] = {}  # None is a forgotten one
    runs: dict[str, str | None] = {}
    for stored in reader.items([*named, *(fact.item.id for fact in written)]).values():
        fact = stored.item
        if not isinstance(fact, Fact) or is_withheld(reader, viewer, stored):
            continue
        if is_visible(fact, viewer):
            visible[fact.id] = None if stored.state.forgotten else redact_for(fact, viewer)
            runs[fact.id] = fact.run
    changes = []
    for stored in written:
        fact = stored.item
        if isinstance(fact, Fact) and fact.id in visible:
            what = "proposed" if fact.status == "proposed" else "added"
            changes.append(
                FactChange(what, fact.timestamp, fact.id, visible[fact.id], run=fact.run)
            )
    for event in sorted(events, key=lambda event: event.id):
        changes += _changes_of_event(event, visible, runs)
    return sorted(changes, key=lambda change: change.at)  # of one time: new facts first


def _changes_of_event(
    event: JournalEvent, visible: Mapping[str, Fact | None], runs: Mapping[str, str | None]
) -> Iterable[FactChange]:
    """Yield what an event changed about the visible facts."""
    payload = payload_of(event)
    by = visible.get(payload.by) if isinstance(payload, SupersedeEvent) else None
    undone = payload.run if isinstance(payload, RevertEvent | RestoreEvent | UndoEvent) else None
    why = payload.why if isinstance(payload, RejectEvent | RevertEvent) else ""
    for item in _items(event):
        if item not in visible or (event.kind == PromoteEvent.KIND and runs[item] == event.run_id):
            continue  # an entry; or an entry's promotion to a fact of the same run
        run = event.run_id or undone
        what = EVENT_CHANGES[event.kind]
        yield FactChange(what, event.timestamp, item, visible[item], by, event.agent_id, run, why)


def _items(event: JournalEvent) -> list[str]:
    payload = payload_of(event)
    if isinstance(payload, PromoteEvent):
        return list(dict.fromkeys(payload.facts))
    return list(dict.fromkeys(payload.items)) if isinstance(payload, StateEvent) else []
