"""List facts with their current state, and changes between two times."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from memtier_plugin.core.errors import IndexReplaced, NotFound
from memtier_plugin.core.events import (
    AcceptEvent,
    ConsolidateEvent,
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
from memtier_plugin.core.formats import from_iso, to_iso
from memtier_plugin.core.records import Entry, Fact, JournalEvent, Source, StateEvent
from memtier_plugin.core.structs import Record
from memtier_plugin.retrieval.duplicates import holds_since
from memtier_plugin.retrieval.visibility import Asker, is_visible, is_withheld, redact_for
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import State, describe_state
from memtier_plugin.storage.store import Store
from memtier_plugin.text.tokenizer import normalise

# -- Views of facts and entries: as they were written, with their current state

_SUGGESTED: Final = 5  # similar subjects


class Review(Record, frozen=True):
    """A decision on a fact: ``accept``, ``reject`` or ``revert``, by which agent, when and why."""

    what: str
    agent: str
    at: datetime
    why: str = ""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A source line of a fact; without ``entry`` it is not visible, or was removed.

    ``span`` is the quote's position in it.
    """

    source: Source
    entry: Entry | None = None
    span: tuple[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: the source, and the entry if visible."""
        location = {"file": self.source.file, "line": self.source.line}
        entry = self.entry.to_json() if self.entry else None
        mark = list(self.span) if self.span else None
        return {**self.source.to_json(), **location, "mark": mark, "line_of": entry}


@dataclass(frozen=True, slots=True)
class FactView:
    """A fact with its current ``valid_to`` and state.

    ``state`` is active, proposed, superseded, rejected, reverted, or held back if it was reverted
    because recall fell.  ``reviews`` and ``lines`` are filled in by `show_fact` only.
    """

    fact: Fact
    state: str
    superseded_by: str | None = None
    reviews: tuple[Review, ...] = ()
    lines: tuple[SourceLine, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: the fact's own fields, and its state."""
        return {
            **self.fact.to_json(),
            "person": self.fact.person,
            "personal": self.fact.personal,
            "state": self.state,
            "superseded_by": self.superseded_by,
        }

    def to_document(self) -> dict[str, Any]:
        """Return the fact, its source lines and its reviews, in JSON form."""
        return {
            "fact": self.to_json(),
            "sources": [line.to_json() for line in self.lines],
            "reviews": [review.to_json() for review in self.reviews],
        }


@dataclass(frozen=True, slots=True)
class ConsolidationInfo:
    """One consolidation from the journal; ``why`` it was rolled back, if it was."""

    run: str | None
    at: datetime
    agent: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    reverted: datetime | None = None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, with the figures at the same level."""
        reverted = to_iso(self.reverted) if self.reverted else None
        head = {"run": self.run, "at": to_iso(self.at), "agent": self.agent}
        return {**head, **self.figures, "reverted": reverted, "why": self.why}


def read_entries(
    store: Store,
    *,
    agent: str | None = None,
    date: str | None = None,
    session: str | None = None,
    after_id: str | None = None,
) -> Iterator[Entry]:
    """Yield entries from the ledgers in the order written, with their current state."""
    for logged in store.log.entries(agent=agent, day=date):
        entry = logged.entry
        if entry is None or (session is not None and entry.session_id != session):
            continue
        if after_id is not None and entry.id <= after_id:
            continue
        state = _state_of(store, entry.id)
        if not state.forgotten:
            yield replace(entry, promoted=state.promoted, cognitive_weight=state.weight)


def _state_of(store: Store, identity: str) -> State:
    try:
        with store.session() as reader:
            return reader.state(identity)
    except IndexReplaced:
        store.catch_up_all()
        with store.session() as reader:
            return reader.state(identity)


def read_entries_said(
    reader: Reader, day: str, *, agent: str | None = None, session: str | None = None
) -> list[Entry]:
    """Return the entries that were said on a UTC day (2026-11-21), with their current state."""
    start = from_iso(day)
    end = start + timedelta(days=1) - timedelta(microseconds=1)
    ids = reader.entries(
        agent=agent, session=session, since=start.timestamp(), until=end.timestamp()
    )
    return [
        replace(stored.item, promoted=stored.state.promoted, cognitive_weight=stored.state.weight)
        for stored in reader.items(ids).values()
        if isinstance(stored.item, Entry) and not stored.state.forgotten
    ]


def list_facts(
    reader: Reader, viewer: Asker | None, *, everything: bool = False, shelves: bool = True
) -> list[FactView]:
    """Return the facts that an agent may see, oldest first.

    Args:
        viewer: an agent and the sender it asks for; None for the person at the machine, or an
            agent that reads all entries.
        everything: include facts that do not hold now.
        shelves: include summaries and timelines.
    """
    stored = reader.facts(
        standing="remembered" if everything else "current",
        readable_by=viewer.agent if viewer else None,
    )
    return [view for view in view_facts(reader, stored, viewer) if shelves or not view.fact.shelf]


def view_facts(reader: Reader, stored: Iterable[Stored], viewer: Asker | None) -> list[FactView]:
    """Return views of the facts that an agent may see."""
    visible = [
        item
        for item in stored
        if isinstance(item.item, Fact)
        and not item.state.forgotten
        and is_visible(item.item, viewer)
        and not is_withheld(reader, viewer, item)
    ]
    held_back = {
        fact for event in reader.reverts_after_recall_drop() for fact in RevertEvent.of(event).items
    }
    hidden = _hidden_successors(reader, visible, viewer)
    return [_view(item, viewer, held_back, hidden) for item in visible]


def show_fact(reader: Reader, fact_id: str, viewer: Asker | None) -> FactView:
    """Return a fact with its reviews and visible source lines.

    Raises:
        NotFound: there is no such fact that this agent may see.
    """
    stored = reader.items([fact_id]).values()
    for view in view_facts(reader, stored, viewer):
        reviews = [
            Review(
                event.kind,
                event.agent_id,
                event.timestamp,
                "" if isinstance(payload, AcceptEvent) else payload.why,
            )
            for event in reader.events(item=fact_id)
            if isinstance(payload := payload_of(event), AcceptEvent | RejectEvent | RevertEvent)
        ]
        return replace(view, reviews=tuple(reviews), lines=_source_lines(reader, view.fact, viewer))
    raise NotFound(f"there is no fact {fact_id!r}; `memtier facts list` shows them")


def show_timeline(reader: Reader, subject: str, viewer: Asker | None) -> list[FactView]:
    """Return what holds or once held about a subject, by relation and start of validity.

    Raises:
        NotFound: nothing is known about it; the message suggests similar subjects.
    """
    [name] = normalise(subject)
    about = view_facts(reader, reader.facts(subject=name), viewer)
    views = [view for view in about if view.state in ("active", "superseded")]
    if not views:
        similar = ", ".join(map(repr, _similar_subjects(reader, name, viewer)))
        suggestion = f"there are {similar}" if similar else "`memtier facts list` shows them all"
        raise NotFound(f"no facts about {subject!r}; {suggestion}")
    views = [view for view in views if not view.fact.shelf] or views
    return sorted(views, key=lambda view: (normalise(view.fact.relation), holds_since(view.fact)))


def list_consolidations(reader: Reader, limit: int) -> list[ConsolidationInfo]:
    """Return the newest consolidations, oldest first, and which of them were rolled back."""
    events = reader.events(kinds=[ConsolidateEvent.KIND], newest=limit)
    reverts = {
        RevertEvent.of(event).run: event
        for event in reversed(reader.events(kinds=[RevertEvent.KIND], newest=limit))
    }
    infos = []
    for event in reversed(events):
        revert = reverts.get(event.run_id or "")
        figures = {k: v for k, v in event.data.items() if k not in ("cursors", "number")}
        reverted = revert.timestamp if revert else None
        why = RevertEvent.of(revert).why if revert else ""
        infos.append(
            ConsolidationInfo(event.run_id, event.timestamp, event.agent_id, figures, reverted, why)
        )
    return infos


def _hidden_successors(reader: Reader, stored: Sequence[Stored], viewer: Asker | None) -> set[str]:
    """Return the ids of facts that superseded these and are not visible to the viewer."""
    if viewer is None:
        return set()
    successors = {item.state.superseded_by for item in stored if item.state.superseded_by}
    return {
        other.item.id
        for other in reader.items(successors).values()
        if isinstance(other.item, Fact) and not is_visible(other.item, viewer)
    }


def _view(
    stored: Stored, viewer: Asker | None, held_back: Collection[str], hidden: Collection[str]
) -> FactView:
    fact, state = stored.item, stored.state
    assert isinstance(fact, Fact)
    word = describe_state(state, fact.status == "active")
    if word == "reverted" and fact.id in held_back:
        word = "held back"
    valid_to = from_iso(state.valid_to) if state.valid_to else fact.valid_to
    successor = None if state.superseded_by in hidden else state.superseded_by
    return FactView(replace(redact_for(fact, viewer), valid_to=valid_to), word, successor)


def _similar_subjects(reader: Reader, name: str, viewer: Asker | None) -> list[str]:
    """Return subjects of visible facts that contain one of the name's words."""
    similar: dict[str, None] = {}
    for word in name.split() or [""]:
        for subject in reader.subjects_like(word, _SUGGESTED):
            if view_facts(reader, reader.facts(subject=subject), viewer):
                similar[subject] = None
    return list(similar)[:_SUGGESTED]


def _source_lines(reader: Reader, fact: Fact, viewer: Asker | None) -> tuple[SourceLine, ...]:
    sources = reader.sources(fact.id)
    stored = reader.items(source.entry for source in sources)
    lines = []
    for index, source in enumerate(sources):
        line = stored.get(source.entry)
        entry = line.item if line and not line.state.forgotten else None
        if not isinstance(entry, Entry) or not (viewer is None or viewer.hears(entry)):
            lines.append(SourceLine(replace(source, file=None, line=None)))
            continue
        span = _quote_span(fact, entry.content, first=index == 0)
        lines.append(SourceLine(source, entry, span))
    return tuple(lines)


def _quote_span(fact: Fact, content: str, *, first: bool) -> tuple[int, int] | None:
    """Return the span of a fact's quote in a line; its own span refers to its first source."""
    if first and fact.span and content[slice(*fact.span)] == fact.quote:
        return fact.span
    start = content.find(fact.quote) if fact.quote else -1
    return (start, start + len(fact.quote)) if start >= 0 else None


# -- List the changes to a project's facts between two times, from the ledgers and the journal

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

    A forgotten fact is shown by its id only.  ``by`` is the fact that superseded it, ``agent`` who
    changed it, ``run`` the consolidation.
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
    """Return the changes to the facts that an agent may see, oldest first.

    A fact is added, extended or replaced at the time of the statement; decisions about it are dated
    by the journal.

    Args:
        viewer: an agent and the sender it asks for; None for the person at the machine, or an
            agent that reads all entries.
        written: use the time of writing throughout.
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
    """Return the changes by their time of writing."""
    written = reader.facts(written_since=since, written_until=until)
    events = [
        event
        for kind in EVENT_CHANGES
        for event in reader.events(kinds=[kind], since=since, until=until)
    ]
    named = {item for event in events for item in _items(event)}
    named |= {SupersedeEvent.of(event).by for event in events if event.kind == SupersedeEvent.KIND}
    visible: dict[str, Fact | None] = {}  # None for a forgotten one
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
    return sorted(changes, key=lambda change: change.at)  # at equal times, new facts first


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
        change = EVENT_CHANGES[event.kind]
        yield FactChange(change, event.timestamp, item, visible[item], by, event.agent_id, run, why)


def _items(event: JournalEvent) -> list[str]:
    payload = payload_of(event)
    if isinstance(payload, PromoteEvent):
        return list(dict.fromkeys(payload.facts))
    return list(dict.fromkeys(payload.items)) if isinstance(payload, StateEvent) else []
