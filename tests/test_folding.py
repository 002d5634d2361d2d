"""Current values from the journal: the same whoever wrote the events, and in whatever order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.folding import State, fold, last_attempts, touched, update_weight
from memtier_plugin.records import JournalEvent

START = datetime(2026, 1, 5, tzinfo=UTC)


def event(kind: str, second: int = 0, run: str | None = None, **data: Any) -> JournalEvent:
    """Return a journal event about the item `m`."""
    about = {"item": "m"} if kind == "credit" else {"items": ["m"]}
    return JournalEvent(
        id=f"{second:03}-{kind}-{run}-{data}",
        timestamp=START + timedelta(seconds=second),
        kind=kind,
        agent_id="main",
        run_id=run,
        data={**about, **data},
    )


CREDITS = st.builds(
    event,
    st.just("credit"),
    st.integers(0, 9),
    st.sampled_from(["r1", "r2", "r3"]),
    attempt=st.integers(1, 3),
    delta=st.sampled_from([-0.5, -0.05, 0.0, 0.1, 0.9]),
)
OTHERS = st.one_of(
    st.builds(event, st.sampled_from(["promote", "forget", "recall"]), st.integers(0, 9)),
    st.builds(event, st.just("supersede"), st.integers(0, 9), by=st.sampled_from(["x", "y"])),
)
EVENTS = st.lists(st.one_of(CREDITS, OTHERS), unique_by=lambda e: e.id, max_size=12)


@given(EVENTS, st.randoms(use_true_random=False))
def test_order_of_arrival_does_not_matter(
    events: list[JournalEvent], chance: random.Random
) -> None:
    """Events give the same state in whatever order they were read."""
    shuffled = list(events)
    chance.shuffle(shuffled)
    assert fold(shuffled) == fold(events)


@given(EVENTS)
def test_weight_is_the_clipped_fold_of_last_attempts(events: list[JournalEvent]) -> None:
    """The weight is eq. 1 step by step over each run's last attempt, and stays in [-1, 1]."""
    credits = [e for e in events if e.kind == "credit"]
    last: dict[str | None, JournalEvent] = {}
    for one in sorted(credits, key=lambda e: (e.data["attempt"], e.timestamp, e.id)):
        last[one.run_id] = one
    weight = 0.0
    for one in sorted(last.values(), key=lambda e: (e.timestamp, e.id)):
        weight = min(1.0, max(-1.0, weight + one.data["delta"]))
    assert fold(events).weight == weight
    assert -1 <= weight <= 1
    assert len(last_attempts(credits)) == len(last)


@given(EVENTS)
def test_what_is_forgotten_stays_forgotten(events: list[JournalEvent]) -> None:
    """Promoted and forgotten hold once said; the last supersession counts."""
    state = fold(events)
    kinds = {e.kind for e in events}
    assert state.promoted == ("promote" in kinds)
    assert state.forgotten == ("forget" in kinds)
    newest = max(
        (e for e in events if e.kind == "supersede"),
        key=lambda e: (e.timestamp, e.id),
        default=None,
    )
    assert state.superseded_by == (newest.data["by"] if newest else None)


def test_clip_at_each_step() -> None:
    """The weight is clipped at every step, so that a success at the top is not saved up."""
    deltas = [0.95, 0.1, -0.05]

    def folded(order: Sequence[float]) -> float:
        return fold(
            [event("credit", i, f"r{i}", attempt=1, delta=d) for i, d in enumerate(order)]
        ).weight

    assert folded(deltas) == 0.95
    assert folded([deltas[0], deltas[2], deltas[1]]) == pytest.approx(1.0)
    assert update_weight(-0.95, -0.2) == -1


def test_later_attempt_replaces() -> None:
    """A run delivered again replaces its credit; an earlier attempt that comes late does not."""
    first = event("credit", 1, "r", attempt=1, delta=0.1)
    second = event("credit", 2, "r", attempt=2, delta=-0.05)
    late = event("credit", 3, "r", attempt=1, delta=0.1)
    assert fold([first, second]).weight == -0.05
    assert fold([first, second, late]).weight == -0.05
    taken_back = event("credit", 4, "r", attempt=3, delta=0.0)
    assert fold([first, second, taken_back]).weight == 0


def test_same_run_id_of_two_agents() -> None:
    """A run is (agent, run id): another agent's run of the same name is another run."""
    mine = event("credit", 1, "r", attempt=1, delta=0.1)
    theirs = JournalEvent(
        id="z", timestamp=START, kind="credit", agent_id="other", run_id="r", data=mine.data
    )
    assert fold([mine, theirs]).weight == pytest.approx(0.2)


def test_nothing_happened() -> None:
    """A new item has weight 0 and is neither promoted, forgotten nor superseded."""
    assert fold([]) == State() == State(0.0, False, False, None, None)
    assert fold([event("recall")]) == State()


def test_touched() -> None:
    """An event names the items that it may change; recalls and unknown kinds change none."""
    assert touched(event("credit", attempt=1, delta=0.1)) == ["m"]
    assert touched(event("forget")) == ["m"]
    assert touched(event("recall")) == touched(event("of a newer MemTier")) == []


@pytest.mark.parametrize(
    "broken",
    [
        event("credit", attempt=1),
        event("credit", delta=0.1),
        event("credit", attempt=1, delta="much"),
        event("credit", attempt=1, delta=float("nan")),
        event("credit", attempt="first", delta=0.1),
        event("supersede"),
        event("supersede", by=["x"]),
        event("supersede", by="x", valid_to=3),
        event("forget", items=None),
    ],
    ids=lambda e: e.id,
)
def test_broken_events_are_refused_before_they_are_folded(broken: JournalEvent) -> None:
    """An event that `fold` could not use is refused by its line, so that no fold ever fails."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        touched(broken)
