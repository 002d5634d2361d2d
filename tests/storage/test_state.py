"""Current values from the journal: the same whoever wrote the events, and in whatever order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.records import JournalEvent
from memtier_plugin.storage.state import (
    State,
    describe_state,
    fold,
    last_attempts,
    touched_items,
    update_weight,
)
from tests.cases import each_case

START = datetime(2026, 1, 5, tzinfo=UTC)


def event(kind: str, second: int = 0, run: str | None = None, **data: Any) -> JournalEvent:
    """Return a journal event about the item `m`."""
    about: dict[str, Any] = {"item": "m"} if kind == "credit" else {"items": ["m"]}
    if kind in ("revert", "restore"):
        about["run"] = run
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
SOME_RUN = st.sampled_from(["r1", "r2", None])
UNDOING = st.one_of(
    st.builds(event, st.sampled_from(["accept", "reject"]), st.integers(0, 9)),
    st.builds(event, st.just("promote"), st.integers(0, 9), SOME_RUN),
    st.builds(event, st.just("supersede"), st.integers(0, 9), SOME_RUN, by=st.sampled_from("xy")),
    st.builds(event, st.just("revert"), st.integers(0, 9), st.sampled_from(["r1", "r2"])),
    st.builds(
        event,
        st.just("restore"),
        st.integers(0, 9),
        st.sampled_from(["r1", "r2"]),
        facts=st.sampled_from([[], ["x"], ["x", "y"]]),
    ),
)
UNDONE = st.lists(st.one_of(OTHERS, UNDOING), unique_by=lambda e: e.id, max_size=12)
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
    for credit in sorted(credits, key=lambda e: (e.data["attempt"], e.timestamp, e.id)):
        last[credit.run_id] = credit
    weight = 0.0
    for credit in sorted(last.values(), key=lambda e: (e.timestamp, e.id)):
        weight = min(1.0, max(-1.0, weight + credit.data["delta"]))
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


@given(UNDONE, st.randoms(use_true_random=False))
def test_undoing_does_not_depend_on_the_order_of_arrival(
    events: list[JournalEvent], chance: random.Random
) -> None:
    """Reviews, and the undoing of runs, give the same state in whatever order they were read."""
    shuffled = list(events)
    chance.shuffle(shuffled)
    assert fold(shuffled) == fold(events)


@given(UNDONE, st.sampled_from(["r1", "r2"]))
def test_restoring_leaves_what_the_run_did_not_do(events: list[JournalEvent], run: str) -> None:
    """After a `restore` an item is as if the run had never promoted or superseded it."""
    late = event("restore", 99, run, facts=["x"])
    without = [
        e
        for e in events
        if e.kind not in ("promote", "supersede") or (e.run_id != run and e.data.get("by") != "x")
    ]
    assert fold([*events, late]) == fold([*without, late])


def test_restore_takes_back_what_came_before_it() -> None:
    """A run's later doings stand, other runs' too, unless one of its facts took the place."""
    done = [event("promote", 1, "r1"), event("supersede", 2, "r1", by="x", valid_to="t")]
    assert fold(done) == State(promoted=True, superseded_by="x", valid_to="t")
    assert fold([*done, event("restore", 3, "r1")]) == State()
    assert fold([*done, event("restore", 3, "r2")]) == fold(done)
    assert fold([*done, event("restore", 1, "r1")]).superseded_by == "x"
    other = event("supersede", 2, "r2", by="x")
    assert fold([other, event("restore", 3, "r1")]).superseded_by == "x"
    assert fold([other, event("restore", 3, "r1", facts=["x"])]) == State()
    assert fold([other, event("restore", 3, "r1", facts=["x"]), event("promote", 4, "r1")]).promoted


def test_review_and_undoing() -> None:
    """What is rejected or undone does not hold; accepting it later makes it hold."""
    waits = State()
    assert waits.is_retrievable(active=True) and not waits.is_retrievable(active=False)
    accepted = fold([event("accept", 1)])
    assert accepted.is_retrievable(active=False) and accepted.reviewed == "accepted"
    assert not fold([event("accept", 1), event("reject", 2)]).is_retrievable(active=False)
    assert not fold([event("reject", 1)]).is_retrievable(active=True)
    undone = fold([event("revert", 1, "r1")])
    assert undone.reverted and undone.withdrawn and not undone.is_retrievable(active=True)
    back = fold([event("revert", 1, "r1"), event("accept", 2)])
    assert not back.reverted and back.is_retrievable(active=True)
    again = fold([event("accept", 1), event("revert", 2, "r1")])
    assert again.reverted and not again.is_retrievable(active=True)
    assert not fold([event("accept", 1), event("forget", 2)]).is_retrievable(active=True)


@each_case(
    ("events", "active", "word"),
    [
        ([], True, "active"),
        ([], False, "proposed"),
        ([event("accept", 1)], False, "active"),
        ([event("reject", 1)], False, "rejected"),
        ([event("revert", 1, "r1")], True, "reverted"),
        ([event("supersede", 1, by="x")], True, "superseded"),
        ([event("forget", 1), event("revert", 2, "r1")], True, "forgotten"),
        ([event("forget", 1), event("unforget", 2)], True, "active"),
        ([event("unforget", 1), event("forget", 2)], True, "forgotten"),
        ([event("forget", 1), event("unforget", 2), event("reject", 0)], True, "rejected"),
    ],
)
def test_state_in_a_word(events: list[JournalEvent], active: bool, word: str) -> None:
    """How a fact stands is told in one word, the strongest reason first."""
    assert describe_state(fold(events), active) == word


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
    assert touched_items(event("credit", attempt=1, delta=0.1)) == ["m"]
    assert touched_items(event("forget")) == ["m"]
    assert touched_items(event("recall")) == touched_items(event("of a newer MemTier")) == []


@each_case(
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
        event("revert", 1, None),
        event("restore", 1, None),
        event("restore", 1, "r1", facts=[3]),
        event("accept", items=None),
    ],
    ids=lambda e: e.id,
)
def test_broken_events_are_refused_before_they_are_folded(broken: JournalEvent) -> None:
    """An event that `fold` could not use is refused by its line, so that no fold ever fails."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        touched_items(broken)
