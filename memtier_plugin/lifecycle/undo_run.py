"""Undo a recorded run: its entries, the facts that rest on them alone, and its credits.

Nothing is edited: a `withdraw` hides, an `uncredit` takes the credits out of every weight, and
values that were superseded by what is hidden hold again, unless a later one took its place.
Whatever came later stays, and a `reinstate` brings all of it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.event_payload import EventPayload
from memtier_plugin.core.events import (
    CreditEvent,
    ReinstateEvent,
    RestoreByUndoEvent,
    RestoreEvent,
    SupersedeEvent,
    UncreditEvent,
    UndoEvent,
    WithdrawEvent,
)
from memtier_plugin.core.records import Fact, JournalEvent
from memtier_plugin.core.structs import Record
from memtier_plugin.core.times import to_iso
from memtier_plugin.facts.rollback_plan import time_after
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.retrieval.contradictions import holds_since
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.state import UNDO_KINDS


class UndoneRun(Record, frozen=True):
    """The items that undoing a run hid, or redoing it showed; all are ids.

    ``credited`` are the items whose weight changes, ``restored`` the facts that hold again (or
    are superseded again).
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


class RunUndoer:
    """Undoes recorded runs of a project in an agent's name."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def undo(
        self, run: str, *, agent: str | None = None, redo: bool = False, dry_run: bool = False
    ) -> UndoneRun:
        """Undo a run, or with ``redo`` bring it back; a second time changes nothing.

        Args:
            agent: whose run; optional where only one agent has a run of this id.

        Raises:
            NotFound: there is no such run, or more than one agent has one.
            LedgerError: it is not, or not completely, done; repeat it.
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
    """Plans the undo of one run, as the index has it.

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
        """Return what is hidden, and the events, the hiding last so that it can be repeated."""
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
        """Return what is shown again, and the events."""
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
        """Return what the run's facts superseded."""
        return [item for item in self._reader.superseded_by(self._facts) if item not in self._facts]

    def _successors(self, restored: Sequence[str]) -> list[tuple[str, Fact]]:
        """Return what is superseded again at once, by a later fact than those that are hidden."""
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
        """Return what a fact of the run had superseded, and nothing else has since."""
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
            own = [fact_id for fact_id in by if fact_id in self._facts]
            fact = self._facts[own[-1]].item if own else None
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
