"""Orders: the weighted sum of the signals, and what each of them is by itself."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.retrieval.signals import (
    TIER_FACTOR,
    overview_signal,
    rank,
    scale_by_max,
)

UNIT = st.floats(0, 1)
EXACT = st.integers(0, 64).map(lambda n: n / 64)  # sums and products of these are not rounded
NAMES = ("words", "grams", "decay", "weight")
FINITE = st.floats(-1e300, 1e300)
Pool = tuple[list[str], dict[str, list[float]], dict[str, float]]


@st.composite
def candidates(draw: st.DrawFn, unit: st.SearchStrategy[float] = UNIT) -> Pool:
    """Draw ids, signals and weights of a pool."""
    ids = draw(st.lists(st.text("abc", min_size=1), unique=True, max_size=8))
    column = st.lists(unit, min_size=len(ids), max_size=len(ids))
    signals = draw(st.dictionaries(st.sampled_from(NAMES), column))
    weights = draw(st.dictionaries(st.sampled_from(NAMES), unit))
    return ids, signals, weights


@given(candidates())
def test_rank_is_a_permutation(pool: Pool) -> None:
    """Every candidate is ranked once, best first, ties by id, with all its signals."""
    ids, signals, weights = pool
    ranked = rank(ids, signals, weights)
    assert sorted(r.index for r in ranked) == list(range(len(ids)))
    assert [(-r.score, ids[r.index]) for r in ranked] == sorted(
        (-r.score, ids[r.index]) for r in ranked
    )
    for r in ranked:
        assert r.signals == {name: values[r.index] for name, values in signals.items()}


@given(candidates(), st.randoms(use_true_random=False))
def test_order_of_what_is_given_does_not_matter(pool: Pool, chance: random.Random) -> None:
    """Neither the order of the signals nor that of the candidates changes a score, to the bit."""
    ids, signals, weights = pool
    before = {ids[r.index]: r.score for r in rank(ids, signals, weights)}
    names, places = list(signals), list(range(len(ids)))
    chance.shuffle(names)
    chance.shuffle(places)
    shuffled = {name: [signals[name][index] for index in places] for name in names}
    moved = [ids[index] for index in places]
    after = {moved[r.index]: r.score for r in rank(moved, shuffled, weights)}
    assert list(after.items()) == list(before.items())


@given(candidates(EXACT), EXACT, EXACT)
def test_a_signal_that_tells_nothing_does_not_matter(
    pool: Pool, value: float, weight: float
) -> None:
    """A signal with one value for all is shown and adds the same to each: no place changes."""
    ids, signals, weights = pool
    signals.pop("decay", None)
    before = rank(ids, signals, weights)
    after = rank(ids, signals | {"decay": [value] * len(ids)}, weights | {"decay": weight})
    assert [r.index for r in after] == [r.index for r in before]
    assert [r.score - weight * value for r in after] == [r.score for r in before]
    assert all(r.signals["decay"] == value for r in after)


@given(candidates())
def test_a_signal_without_a_weight_does_not_matter(pool: Pool) -> None:
    """A signal that has no weight counts as one of weight 0."""
    ids, signals, weights = pool
    zeros = dict.fromkeys(NAMES, 0.0) | weights
    assert rank(ids, signals, weights) == rank(ids, signals, zeros)


def test_ties_go_by_id() -> None:
    """Equal scores are ordered by id, wherever they stand in the pool."""
    ranked = rank(["b", "c", "a"], {"words": [0.5, 1.0, 0.5]}, {"words": 1.0})
    assert [r.index for r in ranked] == [1, 2, 0]


@given(st.lists(FINITE, max_size=8))
def test_scaled(values: list[float]) -> None:
    """Scaled values lie in [0, 1] in the same order, and the best of a match is 1."""
    scaled = scale_by_max(values)
    assert all(0 <= value <= 1 for value in scaled)
    assert len(scaled) == len(values)
    assert not values or max(values) <= 0 or max(scaled) == 1
    for (value, small), (other, large) in zip(
        sorted(zip(values, scaled, strict=True)),
        sorted(zip(values, scaled, strict=True))[1:],
        strict=False,
    ):
        assert value <= other
        assert small <= large


def test_tiers() -> None:
    """The tiers count as published: facts more than entries, how-tos more than facts."""
    assert TIER_FACTOR == {"episodic": 1.0, "semantic": 1.2, "procedural": 1.4}


def test_overview_by_itself() -> None:
    """A summary counts by the time asked about, or else by age; a timeline by what it is of."""
    shelves = ["", "summary", "summary", "timeline", "timeline"]
    scores, words = [9.0, 1.0, 2.0, 3.0, 3.0], [4.0, 0.0, 0.0, 3.0, 1.0]
    assert overview_signal(shelves, (), scores, words) == [0.0, 0.8, 1.0, 0.75, 0.0]
    times = [1.0, 1.0, 0.5, 1.0, 1.0]
    assert overview_signal(shelves, times, scores, words) == [0.0, 1.0, 0.125, 0.75, 0.0]
