"""The published scorer: the parts of it that no golden value has."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.memtier import scorer as paper_scorer
from memtier_papers.memtier.scorer import decay, weight_signal

UNIT = st.floats(0, 1)
NAMES = ("words", "grams", "decay", "weight")
WORDS = st.lists(st.sampled_from("abcde"), max_size=5)
WEIGHTS = {"semantic": 0.0, "bm25": 0.35, "decay": 0.25, "cw": 0.25, "tier": 0.15}


@given(st.lists(WORDS, max_size=5), WORDS)
def test_okapi_takes_any_pool(documents: list[list[str]], query: list[str]) -> None:
    """An empty pool, empty documents and unknown words score finitely, one score a document."""
    scores = paper_scorer.okapi_scores(documents, query)
    assert len(scores) == len(documents)
    assert all(map(math.isfinite, scores))


@given(
    st.lists(st.tuples(st.sampled_from("stuvw"), st.sampled_from([-1.0, 0.0, 0.5, 2.0]), UNIT)),
    st.sets(st.sampled_from("stuvw")),
    st.integers(1, 5),
)
def test_stage_one(
    given_facts: list[tuple[str, float, float]], visible: set[str], limit: int
) -> None:
    """S_sem has distinct, visible sessions of facts that score, the best fact's session first."""
    facts = [
        paper_scorer.Document(f"f{index:02}", (), (session,), timestamp=newer)
        for index, (session, _, newer) in enumerate(given_facts)
    ]
    scores = [score for _, score, _ in given_facts]
    selected = paper_scorer.select_sessions(facts, scores, visible, limit)
    best = {
        session: max(score for name, score, _ in given_facts if name == session)
        for session, _, _ in given_facts
    }
    eligible = {session for session in visible if best.get(session, 0) > 0}
    assert len(selected) == len(set(selected)) == min(limit, len(eligible))
    assert set(selected) <= eligible
    assert sorted(selected, key=lambda session: -best[session]) == list(selected)


def test_stage_one_ties_go_to_the_newer_fact() -> None:
    """Of facts that score the same the newer one chooses first, then the smaller id."""
    facts = [
        paper_scorer.Document("b", (), ("old",), timestamp=1.0),
        paper_scorer.Document("c", (), ("new", "also"), timestamp=2.0),
        paper_scorer.Document("a", (), ("first",), timestamp=1.0),
    ]
    everything = {"old", "new", "also", "first"}
    assert paper_scorer.select_sessions(facts, [1.0] * 3, everything, 4) == (
        "new",
        "also",
        "first",
        "old",
    )


@given(st.permutations(["a", "b", "c", "d"]))
def test_paper_ties_go_by_id(order: list[str]) -> None:
    """The published scorer, too, orders ties by id."""
    scored = [
        paper_scorer.score_document(paper_scorer.Document(i, (), ()), 0.0, (), WEIGHTS)
        for i in order
    ]
    assert [s.document.id for s in paper_scorer.order_scored(scored)] == ["a", "b", "c", "d"]


@given(st.sampled_from(sorted(WEIGHTS)))
def test_ablation_keeps_the_sum(dropped: str) -> None:
    """Without one signal the weights still sum to 1, and their proportions stay."""
    left = paper_scorer.ablate(WEIGHTS, dropped)
    assert left[dropped] == 0
    assert sum(left.values()) == pytest.approx(1)
    remaining = [name for name in WEIGHTS if name != dropped and WEIGHTS[name]]
    assert len({round(left[name] / WEIGHTS[name], 9) for name in remaining}) == 1


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(-1, 1), min_size=1))
def test_projection(weights: dict[str, float]) -> None:
    """Projected weights are not negative and sum to 1; where none is positive all are 0."""
    normalised = paper_scorer.normalise_weights(weights)
    assert all(weight >= 0 for weight in normalised.values())
    assert sum(normalised.values()) == pytest.approx(1 if max(weights.values()) > 0 else 0)


@pytest.mark.parametrize("how", ["log1p", "minmax", "zscore"])
def test_normalisers_take_equal_scores(how: str) -> None:
    """A pool where every document scores 0 is normalised to 0."""
    assert paper_scorer.normalise_scores([0.0, 0.0], how) == [0.0, 0.0]


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.floats(0, 10), st.booleans())
def test_decay_is_monotonic(age: float, more: float, rate: float, bypass: bool) -> None:
    """What is older never counts more; the future counts as now; a bypass counts fully."""
    now, later = (
        decay(age, rate, bypass=bypass),
        decay(age + more, rate, bypass=bypass),
    )
    assert 0 <= later <= now <= 1
    assert decay(age, rate, bypass=True) == decay(min(age, 0.0), rate, bypass=False) == 1


@given(st.floats(-1, 1), st.floats(-1, 1))
def test_weight_signal_is_monotonic(weight: float, other: float) -> None:
    """A cognitive weight keeps its order and lands in [0, 1], a new item's in the middle."""
    assert weight_signal(-1) == 0
    assert weight_signal(0) == 0.5
    assert weight_signal(1) == 1
    assert (weight_signal(min(weight, other))) <= weight_signal(max(weight, other))
