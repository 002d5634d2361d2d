"""Current values from the journal: an ordered fold, the same whoever wrote the events when.

Ledger lines are never edited, so what changes about an item (its weight, whether it was
promoted, superseded or forgotten) is a function of its journal events in the order of
(timestamp, id).  Source: MemTier eq. 1, seeds A1; design 4.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from memtier_plugin.core.records import JournalEvent

UNDO_KINDS: Final = ("withdraw", "uncredit", "reinstate")  # of a recorded run (`plan_undo`)
STATE_KINDS: Final = frozenset(
    {"credit", "promote", "supersede", "forget", "accept", "reject", "revert", "restore"}
) | {*UNDO_KINDS}
CONSOLIDATION_KINDS: Final = (
    "supersede",
    "promote",
)  # what a consolidation does to items that are there


@dataclass(frozen=True, slots=True)
class State:
    """What the journal says of one item now; a new item has the defaults.

    ``reviewed`` is what somebody decided on a fact that waited, or None; ``reverted`` says that
    the consolidation that made it was undone.
    """

    weight: float = 0.0
    promoted: bool = False
    forgotten: bool = False
    superseded_by: str | None = None
    valid_to: str | None = None
    reviewed: Literal["accepted", "rejected"] | None = None
    reverted: bool = False

    @property
    def withdrawn(self) -> bool:
        """Whether nothing may rest on it any more, or show its words."""
        return self.forgotten or self.reverted or self.reviewed == "rejected"

    def is_retrievable(self, active: bool) -> bool:
        """Tell whether an item may be found now that was (or was not) active when written."""
        if self.forgotten or self.reverted or self.superseded_by is not None:
            return False
        return self.reviewed == "accepted" if self.reviewed else active


def describe_state(state: State, active: bool) -> str:
    """Return in a word how a fact stands, the strongest reason first."""
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
        KeyError, TypeError, ValueError: it lacks what `fold` needs of it.
    """
    if event.kind not in STATE_KINDS:
        return []
    if event.kind == "credit":
        if not math.isfinite(event.data["delta"]) or not isinstance(event.data["attempt"], int):
            raise ValueError("a credit needs a finite delta and a whole number of the attempt")
        return [str(event.data["item"])]
    if event.kind == "supersede" and not (
        isinstance(event.data["by"], str) and isinstance(event.data.get("valid_to"), str | None)
    ):
        raise TypeError("an item is superseded by the id of another, until a time or for ever")
    if event.kind in ("revert", "restore"):
        if not isinstance(event.data["run"], str):
            raise TypeError("a consolidation is undone by its id")
        if not all(isinstance(fact, str) for fact in event.data.get("facts", ())):
            raise TypeError("what no longer supersedes anything is named by its id")
    if event.kind in UNDO_KINDS and not all(
        isinstance(event.data[name], str) for name in ("run", "agent")
    ):
        raise TypeError("a recorded run is taken back by its agent and its id")
    return [str(item) for item in event.data["items"]]


def update_weight(weight: float, delta: float) -> float:
    """Return eq. 1's clipped sum; the clip at each step is why the order matters."""
    return max(-1.0, min(1.0, weight + delta))


def last_attempts(credits: Iterable[JournalEvent]) -> list[JournalEvent]:
    """Keep of each run's credits only the last attempt's, in the order of (timestamp, id)."""
    last: dict[tuple[str, str | None], JournalEvent] = {}
    for event in sorted(credits, key=_order):
        run = (event.agent_id, event.run_id)
        if run not in last or event.data["attempt"] >= last[run].data["attempt"]:
            last[run] = event
    return sorted(last.values(), key=_order)


def fold(events: Sequence[JournalEvent]) -> State:
    """Fold one item's events, given in any order, into its current state."""
    withdrawn, uncredited = _undone_runs(events)
    state = State(forgotten=withdrawn)
    for event in last_attempts(e for e in events if e.kind == "credit"):
        if (event.agent_id, event.run_id) in uncredited:
            continue
        state = replace(state, weight=update_weight(state.weight, float(event.data["delta"])))
    for event in _unrestored(events):
        if event.kind == "promote":
            state = replace(state, promoted=True)
        elif event.kind == "forget":
            state = replace(state, forgotten=True)
        elif event.kind == "supersede":
            state = replace(
                state, superseded_by=event.data["by"], valid_to=event.data.get("valid_to")
            )
        elif event.kind == "accept":
            state = replace(state, reviewed="accepted", reverted=False)
        elif event.kind == "reject":
            state = replace(state, reviewed="rejected")
        elif event.kind == "revert":
            state = replace(state, reverted=True)
    return state


def _undone_runs(events: Iterable[JournalEvent]) -> tuple[bool, set[tuple[str, str | None]]]:
    """Return whether the item's own run was taken back, and whose credits count no more.

    Whenever they came: a run that is delivered again earns nothing either.
    """
    hidden, uncredited = set[tuple[str, str | None]](), set[tuple[str, str | None]]()
    for event in sorted((e for e in events if e.kind in UNDO_KINDS), key=_order):
        run = event.data["agent"], event.data["run"]
        if event.kind == "withdraw":
            hidden.add(run)
        elif event.kind == "uncredit":
            uncredited.add(run)
        else:
            hidden.discard(run)
            uncredited.discard(run)
    return bool(hidden), uncredited


def _unrestored(events: Iterable[JournalEvent]) -> list[JournalEvent]:
    """Return, in order, the events that no later `restore` takes back.

    It takes back all that its run did to the item, and that one of its facts superseded it, in
    whatever run that was noticed.
    """
    ordered = sorted((e for e in events if e.kind != "credit"), key=_order)
    runs: dict[str, int] = {}
    facts: dict[str, int] = {}
    for place, event in enumerate(ordered):
        if event.kind == "restore":
            runs[event.data["run"]] = place
            facts.update(dict.fromkeys(event.data.get("facts", ()), place))
    return [
        event
        for place, event in enumerate(ordered)
        if event.kind not in CONSOLIDATION_KINDS
        or (
            runs.get(event.run_id or "", -1) < place
            and facts.get(event.data.get("by", ""), -1) < place
        )
    ]


def _order(event: JournalEvent) -> tuple[str, str]:
    return event.timestamp.isoformat(), event.id
