"""Fold journal events into the current state of an item.

Ledger lines are never edited. The state of an item (its weight, whether it was promoted, superseded
or forgotten) is a function of its journal events in the order of (timestamp, id), independent of
the order in which they were written. The weight is the clipped sum of MemTier, eq. 1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from memtier_plugin.core import plugins
from memtier_plugin.core.events import (
    AcceptEvent,
    CallEvent,
    ConfideEvent,
    CreditEvent,
    DeliverEvent,
    ForgetEvent,
    PromoteEvent,
    RecallEvent,
    ReinstateEvent,
    RejectEvent,
    RestoreEvent,
    RetractEvent,
    RevertEvent,
    SupersedeEvent,
    UncreditEvent,
    UndoEvent,
    UnforgetEvent,
    WithdrawEvent,
    payload_of,
)
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import (
    NO_CALLS,
    CallHistory,
    EventPayload,
    JournalEvent,
    StateEvent,
)
from memtier_plugin.core.structs import replace_fields

# The kinds that undo a recorded run, in this order.
UNDO_KINDS: Final[Mapping[str, type[UndoEvent]]] = {
    kind.KIND: kind for kind in (WithdrawEvent, UncreditEvent, ReinstateEvent)
}
CONSOLIDATION_KINDS: Final = (  # applied to existing items
    SupersedeEvent.KIND,
    PromoteEvent.KIND,
    RetractEvent.KIND,
)


@dataclass(frozen=True, slots=True)
class State:
    """The current state of one item according to the journal; a new item has the defaults.

    ``reviewed`` is the decision on a proposed fact, or None; ``reverted`` is set when the
    consolidation that produced the item was undone, ``private`` when an entry became a confidence
    after it was written, ``words_only`` when a plugin wants it found by its words alone.
    """

    weight: float = 0.0
    promoted: bool = False
    forgotten: bool = False
    superseded_by: str | None = None
    valid_to: str | None = None
    reviewed: Literal["accepted", "rejected"] | None = None
    reverted: bool = False
    private: bool = False
    words_only: bool = False
    calls: CallHistory = NO_CALLS

    @property
    def withdrawn(self) -> bool:
        """True if the item may no longer support other facts or be shown."""
        return self.forgotten or self.reverted or self.reviewed == "rejected"

    def is_retrievable(self, active: bool) -> bool:
        """Return whether an item may be retrieved, given whether it was active when written."""
        if self.forgotten or self.reverted or self.superseded_by is not None:
            return False
        return self.reviewed == "accepted" if self.reviewed else active


def describe_state(state: State, active: bool) -> str:
    """Describe a fact's state in one word, the strongest reason first."""
    if state.forgotten:
        return "forgotten"
    if state.reverted:
        return "reverted"
    if state.reviewed == "rejected":
        return "rejected"
    if state.superseded_by:
        return "superseded"
    return "active" if active or state.reviewed == "accepted" else "proposed"


def touched_items(event: JournalEvent) -> list[str]:
    """Return the ids of the items whose state an event may change.

    Raises:
        KeyError, ValueError: a field of the event is missing, or has the wrong type.
    """
    payload = payload_of(event)
    if isinstance(payload, CreditEvent):
        if not math.isfinite(payload.delta):
            raise ValueError("a credit needs a finite delta")
        return [payload.item]
    if isinstance(payload, DeliverEvent):
        return [payload.recall]
    return [*payload.items] if isinstance(payload, StateEvent) else []


def is_offer(event: JournalEvent) -> bool:
    """Return whether an event is an offered recall, which no host has acknowledged yet."""
    return event.kind == RecallEvent.KIND and event.data.get("purpose") == "offer"


def settle_offers(
    events: Sequence[JournalEvent], deliveries: Iterable[JournalEvent]
) -> list[JournalEvent]:
    """Return events, the offers among them that their agent's host acknowledged as injected."""
    delivered = {
        (event.agent_id, event.data.get("recall")): to_iso(event.timestamp)
        for event in deliveries
        if event.kind == DeliverEvent.KIND
    }
    return [
        replace(event, data={**event.data, "purpose": "inject", "delivered": when})
        if is_offer(event) and (when := delivered.get((event.agent_id, event.id)))
        else event
        for event in events
    ]


def update_weight(weight: float, delta: float) -> float:
    """Return eq. 1's clipped sum; the clip at each step is why the order matters."""
    return max(-1.0, min(1.0, weight + delta))


def add_call(calls: CallHistory, event: CreditEvent | CallEvent, at: datetime) -> CallHistory:
    """Return a history of calls with the one that an event tells of, if any."""
    if event.ok is None:
        return calls
    if event.ok:
        return replace_fields(calls, failures=0, worked_at=at, call=event.call or "")
    outside = isinstance(event, CallEvent) and event.why
    return CallHistory(
        call="" if outside else event.call or "",  # no other line is to blame
        failures=calls.failures + 1,
        failed_at=at,
        exit_code=event.exit_code,
        worked_at=calls.worked_at,
    )


def bound_weight(weight: float, low: float, high: float) -> float:
    """Return a weight that no longer contradicts what an item is worth (``low`` to ``high``).

    It is moved to the end of the interval that is nearer to zero; an interval that includes zero
    changes nothing.
    """
    if low > 0:
        return max(weight, min(1.0, low))
    return min(weight, max(-1.0, high)) if high < 0 else weight


def last_attempts(credits: Iterable[JournalEvent]) -> list[tuple[JournalEvent, CreditEvent]]:
    """Keep only the credits of each run's last attempt, in the order of (timestamp, id)."""
    last: dict[tuple[str, str | None], tuple[JournalEvent, CreditEvent]] = {}
    for event in sorted(credits, key=_order):
        run, credit = (event.agent_id, event.run_id), CreditEvent.of(event)
        if run not in last or credit.attempt >= last[run][1].attempt:
            last[run] = event, credit
    return sorted(last.values(), key=lambda pair: _order(pair[0]))


def fold(events: Sequence[JournalEvent]) -> State:
    """Fold one item's events, given in any order, into its current state."""
    hidden, uncredited = undone_runs(events)
    withdrawn = bool(hidden)
    state = _fold_outcomes(State(forgotten=withdrawn), events, hidden | uncredited)
    credited = state.weight
    for payload in _effective(events):
        match payload:
            case PromoteEvent():
                state = replace(state, promoted=True)
            case ForgetEvent():
                state = replace(state, forgotten=True)
            case UnforgetEvent():
                state = replace(state, forgotten=withdrawn)
            case ConfideEvent():
                state = replace(state, private=True)
            case SupersedeEvent(by=by, valid_to=until):
                state = replace(state, superseded_by=by, valid_to=until)
            case RetractEvent(entry=entry, valid_to=until):
                state = replace(state, superseded_by=entry, valid_to=until)
            case AcceptEvent():
                state = replace(state, reviewed="accepted", reverted=False)
            case RejectEvent():
                state = replace(state, reviewed="rejected")
            case RevertEvent():
                state = replace(state, reverted=True)
            case StateEvent(words_only=bool(words_only)):
                state = replace(state, words_only=words_only)
            case StateEvent(weight_bounds=(low, high)):
                state = replace(state, weight=bound_weight(credited, low, high))
    return state


def _fold_outcomes(
    state: State, events: Sequence[JournalEvent], undone: Collection[tuple[str, str | None]]
) -> State:
    """Return a state with the weight and the calls that the runs gave it that stand."""
    credits = last_attempts(event for event in events if event.kind == CreditEvent.KIND)
    calls = [(event, CallEvent.of(event)) for event in events if event.kind == CallEvent.KIND]
    outcomes: list[tuple[JournalEvent, CreditEvent | CallEvent]] = [*credits, *calls]
    for event, outcome in sorted(outcomes, key=lambda pair: _order(pair[0])):
        if (event.agent_id, event.run_id) not in undone:
            delta = outcome.delta if isinstance(outcome, CreditEvent) else 0.0
            state = replace(
                state,
                weight=update_weight(state.weight, delta),
                calls=add_call(state.calls, outcome, event.timestamp),
            )
    return state


def weighing_kinds() -> frozenset[str]:
    """Return the kinds of the events that may move a weight."""
    added = plugins.find_event_kinds().items()
    bounding = {kind for kind, payload in added if _bounds_weights(payload)}
    return frozenset({CreditEvent.KIND, *UNDO_KINDS, *bounding})


def _bounds_weights(payload: type[EventPayload]) -> bool:
    return issubclass(payload, StateEvent) and payload.weight_bounds is not StateEvent.weight_bounds


def undone_runs(
    events: Iterable[JournalEvent],
) -> tuple[set[tuple[str, str | None]], set[tuple[str, str | None]]]:
    """Return the runs, by agent and id, whose items are hidden, and those without their credits.

    The time of a credit does not matter: a run redelivered after its undo earns no credit.
    """
    hidden, uncredited = set[tuple[str, str | None]](), set[tuple[str, str | None]]()
    for event in sorted((e for e in events if e.kind in UNDO_KINDS), key=_order):
        undo = UNDO_KINDS[event.kind].of(event)
        run = undo.agent, undo.run
        match undo:
            case WithdrawEvent():
                hidden.add(run)
            case UncreditEvent():
                uncredited.add(run)
            case ReinstateEvent():
                hidden.discard(run)
                uncredited.discard(run)
    return hidden, uncredited


def _effective(events: Iterable[JournalEvent]) -> list[EventPayload | None]:
    """Return, in order, the payloads that no later `restore` revokes.

    A restore revokes what its run did to the item and every superseding by one of its facts,
    whichever run recorded it.
    """
    ordered = [
        (event, payload_of(event))
        for event in sorted((e for e in events if e.kind != CreditEvent.KIND), key=_order)
    ]
    runs: dict[str | None, int] = {}
    facts: dict[str | None, int] = {}
    for position, (_, payload) in enumerate(ordered):
        if isinstance(payload, RestoreEvent):
            runs[payload.run] = position
            facts.update(dict.fromkeys(payload.facts, position))
    return [
        payload
        for position, (event, payload) in enumerate(ordered)
        if event.kind not in CONSOLIDATION_KINDS
        or (
            runs.get(event.run_id, -1) < position
            and facts.get(_superseding(payload), -1) < position
        )
    ]


def _superseding(payload: EventPayload | None) -> str | None:
    return payload.by if isinstance(payload, SupersedeEvent) else None


def _order(event: JournalEvent) -> tuple[str, str]:
    return event.timestamp.isoformat(), event.id
