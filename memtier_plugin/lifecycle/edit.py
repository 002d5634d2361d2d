"""Turn a person's edits of a memory text into events, and undo a recorded run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from memtier_plugin.core.errors import MessageError, NotFound, Paused
from memtier_plugin.core.events import (
    CreditEvent,
    ReinstateEvent,
    RestoreEvent,
    SupersedeEvent,
    UncreditEvent,
    UndoEvent,
    WithdrawEvent,
)
from memtier_plugin.core.formats import new_id, to_iso
from memtier_plugin.core.records import Entry, EventPayload, Fact, JournalEvent, Message, Run
from memtier_plugin.core.structs import Record, check_methods
from memtier_plugin.facts.rollback import time_after
from memtier_plugin.facts.service import FactService
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.ingest.recorder import Recorder
from memtier_plugin.retrieval.duplicates import holds_since
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.state import UNDO_KINDS
from memtier_plugin.storage.store import Actor

# -- Turn a person's edits of a memory text into events; no ledger line is rewritten

EDITED_SESSION: Final = "edited"  # session of a new line without a line above it


class Change(Record, frozen=True):
    """A change to one line of memory, or (``add``) a new one.

    Attributes:
        before: its text; "" for a new line.
        text: the new text; "" to forget the line.
        number: its line number in the edited text, or in the original text if it was deleted.
        after: the id of the line above a new one.
    """

    what: Literal["reword", "forget", "add"]
    id: str | None
    before: str
    text: str
    number: int
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The effect of a change: the ids of new and of now hidden items."""

    change: Change
    new: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**self.change.to_json(), "new": list(self.new), "hidden": list(self.hidden)}


@check_methods
class Editor:
    """Applies changes to facts and entries, for the person at the machine."""

    def __init__(self, actor: Actor, person: FactService) -> None:
        self._actor = actor
        self._store = actor.store
        self._person = person

    def plan(self, changes: Sequence[Change]) -> list[Done]:
        """Return what the changes would hide, without writing.

        Raises:
            NotFound: a line to change has since been forgotten, superseded or changed; the message
                gives its line number.
        """
        self._refuse_stale(changes)
        return [Done(change, hidden=self._would_hide(change)) for change in changes]

    def apply(self, changes: Sequence[Change]) -> Iterator[Done]:
        """Apply the changes, yielding each once it is written.

        A fact's new wording supersedes it; an entry's is recorded as an entry with the same time,
        session and person, and the old one is forgotten, with the facts that rest on it alone.

        Raises:
            NotFound: a line has since been changed, and nothing is written; or the new text was
                forgotten before. What was yielded is written.
            MessageError, LedgerError, IndexProblem: the same.
            Paused: the project is switched off.
        """
        if self._store.paused:
            raise Paused(f"project {self._store.project!r} is off; `memtier on` switches it on")
        self._refuse_stale(changes)
        for change in sorted(changes, key=lambda each: each.what == "add"):
            match change.what:
                case "forget":
                    yield Done(change, hidden=self._forget(change, dry_run=False))
                case "add":
                    yield Done(change, new=self._add(change))
                case "reword":
                    yield self._reword(change)

    # -- each kind of change -------------------------------------------------------------------

    def _forget(self, change: Change, *, dry_run: bool) -> tuple[str, ...]:
        assert change.id is not None
        forgotten = self._person.forget(ids=[change.id], dry_run=dry_run)
        return *forgotten.ids, *forgotten.facts

    def _would_hide(self, change: Change) -> tuple[str, ...]:
        if change.what == "add":
            return ()
        assert change.id is not None
        if change.what == "reword" and not isinstance(self._stored(change.id).item, Entry):
            return (change.id,)
        return self._forget(change, dry_run=True)

    def _reword(self, change: Change) -> Done:
        assert change.id is not None
        stored = self._stored(change.id)
        if not isinstance(stored.item, Entry):
            outcome = self._person.reword(change.id, change.text)
            return Done(change, (outcome.id,), outcome.superseded)
        new = self._record(stored, change.text, f"edit:{change.id}")
        return Done(change, new, self._forget(change, dry_run=False))

    def _add(self, change: Change) -> tuple[str, ...]:
        """Record new text: below an entry as its user's words, else as a fact to remember."""
        above = self._stored(change.after) if change.after else None
        if above is None or not isinstance(above.item, Entry):
            recorder = Recorder(self._actor)
            return (self._person.remember(recorder, change.text, EDITED_SESSION, None).id,)
        return self._record(above, change.text, "edit")

    def _record(self, stored: Stored, text: str, name: str) -> tuple[str, ...]:
        """Record a user's words with the time, session and privacy of an entry."""
        entry = stored.item
        assert isinstance(entry, Entry)
        speaker = entry.speaker if entry.role == "user" else None
        message = Message(role="user", content=text, speaker=speaker)
        run = Run(
            agent=entry.agent_id,
            session=entry.session_id,
            run=f"{name}:{new_id()}",
            sender=entry.sender,
            observed_at=entry.observed_at,
            private=entry.private or stored.state.private,
        )
        actor = replace(self._actor, agent=entry.agent_id)
        entries = Recorder(actor).record([(run, [message])])
        if not entries:
            raise MessageError(f"{text[:40]!r} says nothing that can be recorded")
        return tuple(new.id for new in entries)

    # -- concurrent changes --------------------------------------------------------------------

    def _stored(self, identity: str) -> Stored:
        with self._store.session() as reader:
            return reader.items([identity])[identity]

    def _refuse_stale(self, changes: Sequence[Change]) -> None:
        """Refuse changes to lines that are no longer as they were presented."""
        self._store.catch_up_all()
        stale = []
        with self._store.session() as reader:
            stored = reader.items([change.id for change in changes if change.id])
            for change in changes:
                if change.id is None:
                    continue
                if change.id not in stored:
                    stale.append(f"line {change.number}: it was purged meanwhile")
                    continue
                state = stored[change.id].state
                if state.withdrawn:
                    stale.append(f"line {change.number}: it was forgotten or rejected meanwhile")
                elif state.superseded_by:
                    by = reader.items([state.superseded_by]).get(state.superseded_by)
                    words = f": {by.item.text[:60]!r}" if by else ""
                    stale.append(f"line {change.number}: it was superseded meanwhile{words}")
        if stale:
            remedy = "edit again, from what is there now"
            raise NotFound(f"{'; '.join(stale)}. Nothing was changed: {remedy}")


# -- Undo a recorded run: its entries, the facts that rest on them alone, and its credits
#
# Nothing is rewritten: a `withdraw` hides, an `uncredit` takes the credits out of every weight, and
# values superseded by a hidden fact hold again, unless a later one replaced them. Everything later
# stays, and a `reinstate` restores all of it.


class UndoneRun(Record, frozen=True):
    """The ids of the items that undoing a run hid, or redoing it restored.

    ``credited`` are the items whose weight changes, ``restored`` the facts that hold again (or,
    when redoing, are superseded again).
    """

    run: str
    agent: str
    undone: bool = False
    entries: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    credited: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"what": "recording", **super().to_json()}


class RestoreByUndoEvent(RestoreEvent, frozen=True, kw_only=True):
    """A restore by the undo of a recorded run, written with the run first."""

    def to_data(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"run": self.run, **self.to_json()}


class RunUndoer:
    """Undoes recorded runs of a project in an agent's name."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def undo(
        self, run: str, *, agent: str | None = None, redo: bool = False, dry_run: bool = False
    ) -> UndoneRun:
        """Undo a run, or with ``redo`` restore it; repeating either changes nothing.

        Args:
            agent: whose run; optional if only one agent has a run with this id.

        Raises:
            NotFound: there is no such run, or more than one agent has one.
            LedgerError: it was not, or not completely, done; repeat it.
        """
        store = self._actor.store
        with FactWriter(self._actor).exclusive():
            planner = _UndoPlanner(self._actor, run, agent, self._actor.clock())
            undone, events = planner.plan_redo() if redo else planner.plan_undo()
            if not dry_run:
                store.append_events(events, shared=True)
                store.catch_up_all()
        return undone


class _UndoPlanner:
    """Plans the undo of one run from the index.

    Raises:
        NotFound: there is no such run, or more than one agent has one.
    """

    def __init__(self, actor: Actor, run: str, owner: str | None, now: datetime) -> None:
        self._actor = actor
        self._reader = actor.store.reader()
        self._run = run
        self._entries = self._reader.entries(agent=owner, run=run)
        owners = sorted({item.agent for item in self._reader.list_items(self._entries)})
        if not owners:
            raise NotFound(
                f"no consolidation {run!r}, and no run of that id; "
                "`memtier facts runs` and `memtier log --json` show them"
            )
        if len(owners) > 1:
            raise NotFound(f"{' and '.join(owners)} have a run {run!r}: name one with --agent")
        self._owner = owners[0]
        self._facts = {
            stored.item.id: stored
            for stored in self._stored(self._reader.dependent_facts(self._entries))
        }
        credits = self._reader.events(agent=self._owner, run=run, kinds=[CreditEvent.KIND])
        self._credited = sorted({CreditEvent.of(event).item for event in credits})
        items = (*self._entries, *self._facts, *self._credited)
        history = [event for item in items for event in self._reader.events(item=item)]
        self._now = time_after(now, history)
        self._is_undone = self._last_kind() in (WithdrawEvent.KIND, UncreditEvent.KIND)

    def _last_kind(self) -> str:
        """Return the kind of the last event that undid or reinstated the run."""
        events = [
            event
            for item in (*self._entries, *self._credited)
            for event in self._reader.events(item=item)
            if event.kind in UNDO_KINDS and self._is_of_run(UNDO_KINDS[event.kind].of(event))
        ]
        return max(events, key=lambda event: (event.timestamp, event.id)).kind if events else ""

    def _is_of_run(self, undo: UndoEvent) -> bool:
        return (undo.run, undo.agent) == (self._run, self._owner)

    def plan_undo(self) -> tuple[UndoneRun, list[JournalEvent]]:
        """Return what to hide, and the events, with the hiding last so that it can be repeated."""
        if self._is_undone:
            return UndoneRun(self._run, self._owner), []
        restored = self._superseded_facts()
        events = []
        if restored:
            restore = RestoreByUndoEvent(
                items=tuple(restored), facts=tuple(self._facts), run=self._run
            )
            events.append(self._event(restore, run=self._run))
        events += [self._supersede_event(old, new) for old, new in self._successors(restored)]
        names = {"run": self._run, "agent": self._owner}
        if self._credited:
            events.append(self._event(UncreditEvent(items=tuple(self._credited), **names)))
        hidden = (*self._entries, *self._facts)
        events.append(self._event(WithdrawEvent(items=hidden, **names)))
        return self._result(restored), events

    def plan_redo(self) -> tuple[UndoneRun, list[JournalEvent]]:
        """Return what to restore, and the events."""
        if not self._is_undone:
            return UndoneRun(self._run, self._owner, undone=True), []
        pairs = self._previously_superseded()
        items = dict.fromkeys([*self._entries, *self._facts, *self._credited])
        events = [self._supersede_event(old, new) for old, new in pairs]
        reinstate = ReinstateEvent(items=tuple(items), run=self._run, agent=self._owner)
        events.append(self._event(reinstate))
        return self._result([old for old, _ in pairs], undone=True), events

    def _result(self, restored: Sequence[str], *, undone: bool = False) -> UndoneRun:
        return UndoneRun(
            self._run,
            self._owner,
            undone,
            tuple(self._entries),
            tuple(self._facts),
            tuple(self._credited),
            tuple(restored),
        )

    def _superseded_facts(self) -> list[str]:
        """Return the facts that the run's facts superseded."""
        return [item for item in self._reader.superseded_by(self._facts) if item not in self._facts]

    def _successors(self, restored: Sequence[str]) -> list[tuple[str, Fact]]:
        """Return the restored facts that are superseded again by a later visible fact."""
        pairs: list[tuple[str, Fact]] = []
        for old in restored:
            by = self._reader.state(old).superseded_by
            while by in self._facts:
                by = self._facts[by].state.superseded_by
            pairs += [
                (old, stored.item)
                for stored in self._stored([by] if by else [])
                if isinstance(stored.item, Fact) and not stored.state.withdrawn
            ]
        return pairs

    def _previously_superseded(self) -> list[tuple[str, Fact]]:
        """Return the facts superseded by a fact of the run and by nothing since."""
        pairs = []
        restores = self._reader.events(run=self._run, kinds=[RestoreEvent.KIND])
        for item in sorted({item for event in restores for item in RestoreEvent.of(event).items}):
            if self._reader.state(item).superseded_by is not None:
                continue
            by = [
                SupersedeEvent.of(event).by
                for event in self._reader.events(item=item)
                if event.kind == SupersedeEvent.KIND
            ]
            of_run = [fact_id for fact_id in by if fact_id in self._facts]
            fact = self._facts[of_run[-1]].item if of_run else None
            if isinstance(fact, Fact):
                pairs.append((item, fact))
        return pairs

    def _stored(self, ids: Sequence[str]) -> list[Stored]:
        return [*self._reader.items(ids).values()]

    def _supersede_event(self, old: str, new: Fact) -> JournalEvent:
        valid_to = to_iso(holds_since(new)[0])
        return self._event(SupersedeEvent(items=(old,), by=new.id, valid_to=valid_to))

    def _event(self, payload: EventPayload, run: str | None = None) -> JournalEvent:
        return self._actor.event(payload, run=run, at=self._now)
