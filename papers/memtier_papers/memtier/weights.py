"""Train ranking weights with two learners, and test them on held-out conversations.

``ppo`` is as published (MemTier, section 4.4): a Gaussian around the weights, which sum to 1, draws
one set of weights per question; the reward is +1 if an answer is among the first k, else -1.
``fit`` minimises the pairwise loss over the same signals (`fit`).

What ``ppo`` learns hangs on which questions it draws, and in which order: its gain is the mean over
several seeds, since one seed's may be luck.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from memtier_papers.memtier.fit import TEMPERATURE, Example, fit
from memtier_papers.memtier.ppo import SIGMA, Episode, learn_weights
from memtier_papers.memtier.traps import Trap, constant_reward, find_constant, signal_traps
from memtier_plugin.credit.verdict import (
    SAMPLES,
    SEED,
    Difference,
    interval_bounds,
    paired_difference,
    resample_means,
)

Learner = Literal["ppo", "fit"]
LEARNERS: Final[tuple[Learner, ...]] = ("ppo", "fit")
PUBLISHED_QUESTIONS: Final = 100  # drawn for an epoch of PPO (MemTier, section 4.4)
FEWEST_QUESTIONS: Final = 40
FEWEST_GROUPS: Final = 2
DEPTH: Final = 10  # hits that must contain an answer
_PULL: Final = 0.02  # of the fit towards the initial weights
_PLACES: Final = 3  # decimal places of a learned weight
_SEEDS: Final[Mapping[Learner, Sequence[int]]] = {"ppo": range(42, 52), "fit": (0,)}  # fit: convex

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Problem:
    """A learning problem: the questions and the present weights.

    Attributes:
        free: by signal, whether its weight may change.
        sets: the questions of each data set, each set counting the same.
        k: hits that a prompt would show.
    """

    names: tuple[str, ...]
    start: np.ndarray
    free: np.ndarray
    sets: tuple[tuple[Example, ...], ...]
    k: int = DEPTH

    @property
    def examples(self) -> list[Example]:
        """All questions."""
        return [example for questions in self.sets for example in questions]

    @property
    def groups(self) -> list[str]:
        """The groups to hold out in turn."""
        return [*dict.fromkeys(example.group for example in self.examples)]

    def without(self, group: str) -> tuple[tuple[Example, ...], ...]:
        """Return the sets without a group's questions."""
        return tuple(tuple(e for e in questions if e.group != group) for questions in self.sets)


@dataclass(frozen=True, slots=True)
class Trained:
    """A learner's result, and its gain on held-out questions.

    Attributes:
        traps: why nothing was learned, or why the result has no visible effect.
        weights: of the first seed, trained on all questions.
        gain: held out, of the share of answers among the first hits, in the mean over the seeds,
            with an interval over questions and seeds; None without training.
        by_seed: the mean gain of each seed.
        changes: each held-out question's group and improvement.
        changed: share of held-out questions whose first hits, or their order, differ.
    """

    learner: Learner
    weights: Mapping[str, float]
    traps: tuple[Trap, ...]
    before: float
    after: float
    gain: Difference | None
    changed: float
    changes: tuple[tuple[str, float], ...] = ()
    by_seed: tuple[float, ...] = ()

    @property
    def gains(self) -> bool:
        """Whether the lower bound of the gain is above 0."""
        return self.gain is not None and self.gain.low > 0

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON."""
        gain = self.gain
        return {
            "learner": self.learner,
            "weights": dict(self.weights),
            "traps": [
                {"name": trap.name, "stops": trap.stops, "reason": trap.reason}
                for trap in self.traps
            ],
            "before": round(self.before, 4),
            "after": round(self.after, 4),
            "gain": gain and [round(value, 4) for value in (gain.mean, gain.low, gain.high)],
            "by_seed": [round(value, 4) for value in self.by_seed],
            "changed": round(self.changed, 4),
        }


def why_too_little(questions: int, groups: int) -> str | None:
    """Return why these are too few questions to learn from, or None."""
    if questions < FEWEST_QUESTIONS:
        return (
            f"{questions} questions whose answers are known, and {FEWEST_QUESTIONS} are needed: use"
            " the project more, or give --data"
        )
    if groups < FEWEST_GROUPS:
        return (
            "all questions are of one conversation, so that nothing can be held out:"
            f" {FEWEST_GROUPS} conversations are needed"
        )
    return None


def train(problem: Problem, learner: Learner, progress: Progress) -> Trained:
    """Train on all groups but one, in turn, measure on that one, and then train on all.

    Raises:
        ValueError: there are too few questions or groups; says how many are needed.
    """
    groups, examples = problem.groups, problem.examples
    if why := why_too_little(len(examples), len(groups)):
        raise ValueError(why)
    traps, seeds = signal_traps(examples, problem.start, problem.names), _SEEDS[learner]
    order = [example for group in groups for example in examples if example.group == group]
    before = [example.recall(problem.start, problem.k) for example in order]
    after: list[list[float]] = [[] for _ in seeds]  # by seed
    changed: list[bool] = []
    for number, group in enumerate(groups):
        sets, asked = problem.without(group), [e for e in examples if e.group == group]
        shown = [example.top(problem.start, problem.k) for example in asked]
        for seed, shares in zip(seeds, after, strict=True):
            weights = _learn(problem, sets, learner, traps, seed)
            shares += [example.recall(weights, problem.k) for example in asked]
            tops = (example.top(weights, problem.k) for example in asked)
            changed += [top != own for top, own in zip(tops, shown, strict=True)]
        progress(f"{learner}: held out", number + 1, len(groups))
    weights = _learn(problem, problem.sets, learner, traps, seeds[0])
    traps = [*{trap.name: trap for trap in traps}.values()]  # each once for all questions
    stopped = any(trap.stops for trap in traps)
    means = np.mean(after, axis=0)  # of each question, over the seeds
    changes = (means - before).round(9)  # no gain is 0, not what floats add up to
    by_seed = tuple(round(float(np.mean(shares) - np.mean(before)), 9) for shares in after)
    return Trained(
        learner,
        dict(zip(problem.names, weights.round(_PLACES).tolist(), strict=True)),
        tuple(traps),
        float(np.mean(before)),
        float(np.mean(means)),
        None if stopped else _gain(changes, by_seed),
        float(np.mean(changed)),
        tuple((e.group, change) for e, change in zip(order, changes.tolist(), strict=True)),
        () if stopped else by_seed,
    )


def _gain(changes: np.ndarray, by_seed: Sequence[float]) -> Difference:
    """Return the mean change, with an interval that holds for other questions and other seeds."""
    means = resample_means(changes.tolist(), SAMPLES, SEED)
    means += resample_means(by_seed, SAMPLES, SEED + 1) - np.mean(by_seed)
    low, high = interval_bounds(means)
    tail = min(int((means <= 0).sum()), int((means >= 0).sum()))
    return Difference(float(changes.mean()), low, high, min(1.0, 2 * max(tail, 0.5) / SAMPLES))


def held_out(trained: Trained) -> dict[str, list[float]]:
    """Return the gain on each held-out group, with the bounds of its interval."""
    gains = {}
    for group in dict.fromkeys(group for group, _ in trained.changes):
        changes = [change for name, change in trained.changes if name == group]
        gain = paired_difference(changes, [0.0] * len(changes))
        gains[group] = [round(value, 4) for value in (gain.mean, gain.low, gain.high)]
    return gains


def _learn(
    problem: Problem,
    sets: Sequence[Sequence[Example]],
    learner: Learner,
    traps: list[Trap],
    seed: int,
) -> np.ndarray:
    """Return the weights learned from some questions; the present ones if learning fails.

    Args:
        traps: receives the reasons for a failure.
    """
    examples = [example for questions in sets for example in questions]
    free = problem.free & ~find_constant(examples)
    if learner == "fit":
        answered = [
            [example for example in questions if example.target.any()] for questions in sets
        ]
        weights = fit(answered, problem.start, free, _PULL)
        return np.asarray(weights / TEMPERATURE)
    rewards, actions, total = [], [], problem.start.sum()
    chance, mean = random.Random(seed), problem.start / total
    chance.shuffle(examples)
    for example in examples[:PUBLISHED_QUESTIONS]:
        action = np.where(free, [chance.gauss(m, SIGMA) for m in mean], mean)
        drawn = np.maximum(0.0, action)
        actions.append(tuple(action.tolist()))
        rewards.append(1.0 if example.recall(drawn, problem.k) else -1.0)
    if trap := constant_reward(rewards):
        traps.append(trap)
        return problem.start
    episodes = [Episode(a, r) for a, r in zip(actions, rewards, strict=True)]
    learned = np.array(learn_weights(mean.tolist(), episodes, chance))
    learned = np.maximum(0.0, np.where(free, learned, mean))
    if free.all():
        return np.asarray(learned / learned.sum() * total)
    return np.asarray(learned * total)  # the scale that leaves frozen weights unchanged
