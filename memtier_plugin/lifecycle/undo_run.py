"""Taking back a recorded run: its entries, the facts that rest on them alone, and its credits.

Nothing is edited: a `withdraw` hides, an `uncredit` takes the credits out of every weight, and
values that were superseded by what goes hold again, unless a later one took its place.  Whatever
came later stays, and `reinstate` brings all of it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import (
    CreditEvent,
    EventPayload,
    ReinstateEvent,
    RestoreByUndoEvent,
    RestoreEvent,
    SupersedeEvent,
    UncreditEvent,
    UndoEvent,
    WithdrawEvent,
    new_event,
)
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.records import Fact, JournalEvent
from memtier_plugin.core.times import to_iso
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.retrieval.contradictions import holds_since
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.index.selection import IndexSelect
from memtier_plugin.storage.state import UNDO_KINDS
from memtier_plugin.storage.store import LOCK_SECONDS, Store

_AFTER: Final = timedelta(milliseconds=1)  # the finest time that the journal keeps


@dataclass(frozen=True, slots=True)
class UndoneRun:
    """What taking a run back hid, or bringing it back showed; all are ids.

    ``credited`` are the items whose weight changes, ``restored`` facts that hold again (or give
    way again).
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
        return {"what": "recording", **asdict(self)}


class RunUndoer:
    """Takes back recorded runs of one project, in the name of one agent."""

    def __init__(self, store: Store, agent: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._clock = clock

    def undo(
        self, run: str, *, agent: str | None = None, undo: bool = False, dry_run: bool = False
    ) -> UndoneRun:
        """Take a run back, or with ``undo`` bring it back; once more changes nothing.

        Args:
            agent: whose run; may be left out where only one agent has one of this id.

        Raises:
            NotFound: there is no such run, or more than one agent has one.
            LedgerError: it is not, or not wholly, done; do it again.
        """
        FactWriter(self._store, self._agent, self._clock).recover()
        lock = hold_lock(self._store.folder / ".facts.lock", LOCK_SECONDS)
        with lock, self._store.session():
            self._store.catch_up_all()
            made = _UndoPlanner(self._store, run, agent, self._agent, self._clock())
            done, events = made.plan_redo() if undo else made.plan_undo()
            if not dry_run:
                self._store.append_events(events, shared=True)
                self._store.catch_up_all()
        return done


class _UndoPlanner:
    """One run, as the index has it."""

    def __init__(
        self, store: Store, run: str, owner: str | None, agent: str, now: datetime
    ) -> None:
        self._reader: IndexReader = store.reader()
        self._run, self._agent = run, agent
        chosen = IndexSelect(store.index.connection())
        self._entries = chosen.entries_where(agent=owner, run=run)
        owners = sorted({one.agent for one in chosen.list_items(self._entries)})
        if not owners:
            raise NotFound(f"no consolidation {run!r}, and no run of that id; "
                           "`memtier facts runs` and `memtier log --json` show them")  # fmt: skip
        if len(owners) > 1:
            raise NotFound(f"{' and '.join(owners)} have a run {run!r}: name one with --agent")
        self._owner = owners[0]
        self._facts = {
            one.item.id: one for one in self._stored(self._reader.dependent_facts(self._entries))
        }
        credits = self._reader.events_of_run(self._owner, run, CreditEvent.KIND)
        self._credited = sorted({CreditEvent.of(event).item for event in credits})
        items = (*self._entries, *self._facts, *self._credited)
        seen = [event for item in items for event in self._reader.events_of_item(item)]
        self._now = max(now, *(event.timestamp + _AFTER for event in seen), now)
        self._is_out = self._last_undo() in (WithdrawEvent.KIND, UncreditEvent.KIND)

    def _last_undo(self) -> str:
        """Return the kind of the newest event that undid the whole run or brought it back."""
        events = [
            event
            for item in (*self._entries, *self._credited)
            for event in self._reader.events_of_item(item)
            if event.kind in UNDO_KINDS and self._is_of_run(UNDO_KINDS[event.kind].of(event))
        ]
        return max(events, key=lambda event: (event.timestamp, event.id)).kind if events else ""

    def _is_of_run(self, undo: UndoEvent) -> bool:
        return (undo.run, undo.agent) == (self._run, self._owner)

    def plan_undo(self) -> tuple[UndoneRun, list[JournalEvent]]:
        """Return what goes, and the events: what is hidden last, so that it can be done again."""
        if self._is_out:
            return UndoneRun(self._run, self._owner), []
        beaten = self._superseded_facts()
        events = []
        if beaten:
            restore = RestoreByUndoEvent(
                run=self._run, items=tuple(beaten), facts=tuple(self._facts)
            )
            events.append(self._event(restore, run=self._run))
        events += [self._supersede_event(old, new) for old, new in self._successors(beaten)]
        if self._credited:
            events.append(self._run_event(UncreditEvent, self._credited))
        events.append(self._run_event(WithdrawEvent, [*self._entries, *self._facts]))
        return self._result(beaten), events

    def plan_redo(self) -> tuple[UndoneRun, list[JournalEvent]]:
        """Return what comes back, and the events."""
        if not self._is_out:
            return UndoneRun(self._run, self._owner, undone=True), []
        again = self._previously_superseded()
        items = dict.fromkeys([*self._entries, *self._facts, *self._credited])
        events = [self._supersede_event(old, new) for old, new in again]
        events.append(self._run_event(ReinstateEvent, [*items]))
        return self._result([old for old, _ in again], undone=True), events

    def _result(self, restored: Sequence[str], *, undone: bool = False) -> UndoneRun:
        return UndoneRun(
            self._run, self._owner, undone, tuple(self._entries), tuple(self._facts),
            tuple(self._credited), tuple(restored),
        )  # fmt: skip

    def _superseded_facts(self) -> list[str]:
        """Return what the facts that go had taken the place of."""
        return [item for item in self._reader.superseded_by(self._facts) if item not in self._facts]

    def _successors(self, beaten: Sequence[str]) -> list[tuple[str, Fact]]:
        """Return what gives way at once to a later fact in the place of one that goes."""
        pairs: list[tuple[str, Fact]] = []
        for old in beaten:
            by = self._reader.state(old).superseded_by
            while by in self._facts:
                by = self._facts[by].state.superseded_by
            later = [one for one in self._stored([by] if by else []) if not one.state.withdrawn]
            pairs += [(old, one.item) for one in later if isinstance(one.item, Fact)]
        return pairs

    def _previously_superseded(self) -> list[tuple[str, Fact]]:
        """Return what a fact that comes back had superseded, and that nothing else has since."""
        pairs = []
        restores = self._reader.events_in_run(self._run, [RestoreEvent.KIND])
        for item in sorted({item for event in restores for item in RestoreEvent.of(event).items}):
            if self._reader.state(item).superseded_by is not None:
                continue
            superseding = [
                SupersedeEvent.of(event).by
                for event in self._reader.events_of_item(item)
                if event.kind == SupersedeEvent.KIND
            ]
            ours = [fact_id for fact_id in superseding if fact_id in self._facts]
            fact = self._facts[ours[-1]].item if ours else None
            if isinstance(fact, Fact):
                pairs.append((item, fact))
        return pairs

    def _stored(self, ids: Sequence[str]) -> list[Stored]:
        return [*self._reader.items_by_row([*self._reader.rows_of(ids).values()]).values()]

    def _supersede_event(self, old: str, new: Fact) -> JournalEvent:
        until = to_iso(holds_since(new)[0])
        return self._event(SupersedeEvent(items=(old,), by=new.id, valid_to=until))

    def _run_event(self, kind: type[UndoEvent], items: Sequence[str]) -> JournalEvent:
        return self._event(kind(items=tuple(items), run=self._run, agent=self._owner))

    def _event(self, payload: EventPayload, run: str | None = None) -> JournalEvent:
        return new_event(payload, agent=self._agent, at=self._now, run=run)
