"""The uplift of a line: what it is, when it is said, and what its interval is worth."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtier_papers.memtier.uplift import (
    LEAST_RUNS,
    Observation,
    Uplift,
    estimate_uplift,
)

PROBABILITIES = st.floats(0.001, 0.5)
OBSERVATIONS = st.lists(
    st.builds(
        lambda run, shown, p: Observation(f"r{run}", shown, p, (-0.5, 0.0, 1.0)[run % 3]),
        st.integers(0, 30),
        st.booleans(),
        PROBABILITIES,
    ),
    max_size=60,
)


def side(shown: bool, rewards: Sequence[float], p: float = 0.1) -> list[Observation]:
    """Return a run of each of these rewards."""
    chance = 1 - p if shown else p
    return [Observation(f"{shown}{n}", shown, chance, reward) for n, reward in enumerate(rewards)]


def test_the_mean_is_hajeks() -> None:
    """Each run counts by the inverse of the probability of what happened in it."""
    shown = [Observation("a", True, 0.5, 1.0), Observation("b", True, 0.8, 0.0)]
    withheld = [Observation("c", False, 0.5, 1.0), Observation("d", False, 0.1, -0.5)]
    uplift = estimate_uplift([*shown, *withheld], least=2)
    assert uplift.mean == pytest.approx(2 / (2 + 1.25) - (2 - 5) / (2 + 10))


@pytest.mark.parametrize(("shown", "withheld"), [(LEAST_RUNS - 1, 500), (500, LEAST_RUNS - 1)])
def test_nothing_is_said_of_too_few_runs(shown: int, withheld: int) -> None:
    """Below 20 runs of either side there is no figure, whatever the runs earned."""
    uplift = estimate_uplift([*side(True, [1.0] * shown), *side(False, [-0.5] * withheld)])
    assert (uplift.mean, uplift.low, uplift.verdict) == (None, None, "too few runs")
    assert (uplift.shown, uplift.withheld) == (shown, withheld)


def test_a_history_of_ten_runs_says_nothing() -> None:
    """Ten runs are too few, also when they could not differ more."""
    runs = [*side(True, [1.0] * 5, 0.5), *side(False, [-0.5] * 5, 0.5)]
    assert estimate_uplift(runs) == Uplift(5, 5)


@pytest.mark.parametrize("reward", [-0.5, 0.0, 1.0])
def test_rewards_without_variance_prove_nothing(reward: float) -> None:
    """Where every run earns the same, the uplift is 0 and its interval still has a width."""
    uplift = estimate_uplift([*side(True, [reward] * 400), *side(False, [reward] * 20)])
    assert uplift.mean == 0.0 and uplift.verdict == "unclear"
    assert uplift.low is not None and uplift.low < -0.02 and uplift.high and uplift.high > 0.02


def test_a_line_that_matters_is_seen() -> None:
    """Where runs fail without a line and succeed with it, it helps; the other way it harms."""
    good, bad = [1.0] * 18 + [-0.5] * 2, [1.0] * 2 + [-0.5] * 18
    assert estimate_uplift([*side(True, good), *side(False, bad)]).verdict == "helps"
    assert estimate_uplift([*side(True, bad), *side(False, good)]).verdict == "harms"


def test_weights_undo_what_crowded_blocks_confound() -> None:
    """That a line of crowded blocks, whose runs fare worse, is withheld rarely does no harm."""
    chance, runs = random.Random(5), []
    for number in range(20_000):
        size = chance.choice([1, 10])
        good, drawn = chance.random() < (0.9 if size == 1 else 0.3), chance.random()
        if drawn < 0.5 and drawn >= 0.5 / size:
            continue  # the run goes without another line
        p = 0.5 / size if drawn < 0.5 else 0.5
        runs.append(Observation(str(number), drawn >= 0.5, p, 1.0 if good else -0.5))
    shown_rewards = [run.reward for run in runs if run.shown]
    withheld = [run.reward for run in runs if not run.shown]
    naive = sum(shown_rewards) / len(shown_rewards) - sum(withheld) / len(withheld)
    uplift = estimate_uplift(runs)
    assert naive < -0.2 and uplift.mean is not None and abs(uplift.mean) < 0.06
    assert uplift.verdict == "unclear"


def test_lines_of_a_run_are_no_runs_of_their_own() -> None:
    """Five lines of each run, with its one reward, say no more than one of them does."""
    chance = random.Random(2)
    runs = [(f"r{n}", chance.random() < 0.7, chance.choice([1.0, -0.5])) for n in range(200)]
    single = [Observation(run, shown, 0.7 if shown else 0.3, r) for run, shown, r in runs]
    several = [each for each in single for _ in range(5)]
    one_line, five = estimate_uplift(single), estimate_uplift(several)
    assert one_line.mean == pytest.approx(five.mean)
    assert one_line.low is not None and five.low is not None
    assert five.low == pytest.approx(one_line.low)


@settings(max_examples=60)
@given(OBSERVATIONS)
def test_intervals_hold_their_means(observations: list[Observation]) -> None:
    """An interval holds its mean, which no difference of rewards exceeds; order does not matter."""
    uplift = estimate_uplift(observations, least=2)
    assert uplift.verdict in ("helps", "harms", "unclear", "too few runs")
    if uplift.mean is not None and uplift.low is not None and uplift.high is not None:
        assert uplift.low <= uplift.mean <= uplift.high and abs(uplift.mean) <= 1.5 + 1e-9
        again = estimate_uplift(observations[::-1], least=2)
        assert again.low == pytest.approx(uplift.low)


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_what_could_not_happen_is_refused(probability: float) -> None:
    """A line that is never, or always, withheld has no uplift."""
    with pytest.raises(ValueError, match="probability"):
        estimate_uplift(side(True, [1.0], probability))


def test_intervals_cover_the_truth() -> None:
    """Of 200 histories with some 30 runs withheld, 90 to 99 % of the intervals hold the effect."""
    chance, covered, effect = random.Random(11), 0, 0.3
    for _ in range(200):
        runs = []
        for number in range(300):
            p, drawn = 0.3 / chance.randint(1, 6), chance.random()
            if p <= drawn < 0.3:
                continue  # the run goes without another line
            good = chance.random() < (0.8 if drawn >= 0.3 else 0.8 - effect / 1.5)
            reward = 1.0 if good else -0.5
            runs.append(Observation(str(number), drawn >= 0.3, 0.7 if drawn >= 0.3 else p, reward))
        uplift = estimate_uplift(runs)
        assert uplift.low is not None and uplift.high is not None
        covered += uplift.low <= effect <= uplift.high
    assert 180 <= covered <= 198
