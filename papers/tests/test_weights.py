"""Weights are learned from what is known, tested on what is held out, and traps are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memtier_papers.memtier.fit import Example
from memtier_papers.memtier.traps import signal_traps
from memtier_papers.memtier.weights import (
    FEWEST_QUESTIONS,
    LEARNERS,
    Problem,
    train,
)
from memtier_plugin.credit.regression import no_progress

NAMES = ("words", "noise", "same", "good")


Four = tuple[float, float, float, float]


def example(chance: np.random.Generator, group: str, scale: Four) -> Example:
    """Return a question of 40 hits, of which the last signal finds the one that answers."""
    signals = chance.random((40, 4)).astype(np.float32)
    signals[:, 2] = 0.5
    answer = int(chance.integers(40))
    signals[answer, 3] = 1.0
    gold = tuple((0,) if hit == answer else () for hit in range(40))
    return Example(group, signals * np.array(scale, np.float32), gold, 1)


def problem(questions: int = 120, groups: int = 4, scale: Four = (1, 1, 1, 1)) -> Problem:
    """Return questions that the weights which there are answer badly."""
    chance = np.random.default_rng(5)
    asked = tuple(example(chance, f"c{n % groups}", scale) for n in range(questions))
    return Problem(NAMES, np.array([1.0, 0.5, 0.5, 0.2]), np.ones(4, bool), (asked,), 4)


def test_the_fit_gains_on_what_it_did_not_see() -> None:
    """A signal that finds what answers gains weight, and the gain is measured held out."""
    trained = train(problem(), "fit", no_progress)
    assert trained.gains and trained.after > trained.before + 0.3
    assert trained.weights["good"] > 3 * trained.weights["noise"]
    assert trained.changed > 0.5


def test_ppo_moves_the_weights_as_published() -> None:
    """Rewards that differ move the mean by a few hundredths, as in the paper's Table 4."""
    trained = train(problem(), "ppo", no_progress)
    start = dict(zip(NAMES, (1.0, 0.5, 0.5, 0.2), strict=True))
    moved = max(abs(trained.weights[name] - start[name]) / 2.2 for name in NAMES)
    assert 0.001 < moved < 0.2
    assert trained.weights["good"] > start["good"]
    assert not [trap for trap in trained.traps if trap.stops]
    assert trained.weights["same"] == 0.5


def test_rewards_without_variance_stop_the_published_learner() -> None:
    """Where every question earns the same nothing moves, and the reason is named."""
    easy = problem()
    sure = tuple(replace(e, gold=tuple((0,) for _ in e.gold)) for e in easy.examples)
    trained = train(replace(easy, sets=(sure,)), "ppo", no_progress)
    [trap] = [trap for trap in trained.traps if trap.stops]
    assert trap.name == "constant reward" and "trap 2" in trap.reason
    assert trained.gain is None and not trained.gains
    assert trained.weights == dict(zip(NAMES, (1.0, 0.5, 0.5, 0.2), strict=True))


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_constant_signal_keeps_its_weight(learner: str) -> None:
    """A signal that is the same for all hits is frozen, and named."""
    trained = train(problem(), learner, no_progress)  # type: ignore[arg-type]
    assert trained.weights["same"] == 0.5
    [trap] = [trap for trap in trained.traps if trap.name == "constant signal"]
    assert trap.reason.endswith(": same") and not trap.stops


def test_a_signal_that_drowns_the_others_is_named() -> None:
    """Where one weighted signal spreads five times as far as the next, it is said; scaled, not."""
    raw = problem(scale=(20, 1, 1, 1))
    traps = signal_traps(raw.examples, raw.start, NAMES)
    assert "dominance" in {trap.name for trap in traps}
    scaled = problem()
    names = {trap.name for trap in signal_traps(scaled.examples, scaled.start, NAMES)}
    assert "dominance" not in names


@pytest.mark.parametrize("learner", LEARNERS)
def test_too_little_is_refused_with_what_is_needed(learner: str) -> None:
    """Ten questions, or one conversation, teach nothing: it is said how many are needed."""
    with pytest.raises(ValueError, match=f"10 questions .* {FEWEST_QUESTIONS} are needed"):
        train(problem(10), learner, no_progress)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one conversation"):
        train(problem(groups=1), learner, no_progress)  # type: ignore[arg-type]


def test_learning_is_repeatable() -> None:
    """The same questions give the same weights."""
    assert train(problem(), "ppo", no_progress) == train(problem(), "ppo", no_progress)


def test_the_gain_is_a_mean_over_seeds() -> None:
    """What one draw of questions gains is no gain: the mean of ten is, and each is shown."""
    trained = train(problem(), "ppo", no_progress)
    assert trained.gain and len({*trained.by_seed}) > 1 and len(trained.by_seed) == 10
    assert trained.gain.mean == pytest.approx(np.mean(trained.by_seed))
    assert trained.after - trained.before == pytest.approx(trained.gain.mean)
    assert len(train(problem(), "fit", no_progress).by_seed) == 1  # convex: no seed matters
