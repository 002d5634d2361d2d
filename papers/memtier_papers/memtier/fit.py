"""Fit ranking weights jointly on the signals in [0, 1] of real questions.

The weights w >= 0 minimise, over the questions of all sets (each set counting the same),

    - sum over gold hits of 1/|gold| * log softmax(w . signals)     (ListNet, Cao et al. 2007)

For one gold hit this is log(1 + the sum over the others of exp(their score - its own)): each pair
of a gold hit and another costs by how far it is in the wrong order.  The loss is convex, so neither
the starting point nor the search order matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

STEPS: Final = 300
RATE: Final = 0.1
PENALTY: Final = 1e-3
TEMPERATURE: Final = 1.5  # roughly where the softmax converges, times the initial weights


class RankedQuestion(Protocol):
    """One question: its hits' signals (n, s), and each hit's share of the answers (n)."""

    @property
    def signals(self) -> np.ndarray:
        """The signals of its hits, (n, s), in [0, 1]."""

    @property
    def target(self) -> np.ndarray:
        """Each hit's share of the answers, (n), summing to 1, or to 0 without any."""


@dataclass(frozen=True, slots=True)
class Example:
    """A question, and which of its hits contain its answers.

    Attributes:
        group: the unit that is held out together: a conversation, a session or a set.
        signals: of each hit, (n, s), in [0, 1].
        gold: by hit, the numbers of the answers it contains; () for none.
        answers: how many answers there are, found or not.
    """

    group: str
    signals: np.ndarray
    gold: tuple[tuple[int, ...], ...]
    answers: int

    @property
    def target(self) -> np.ndarray:
        """Each hit's share of the answers, in [0, 1]."""
        brings = np.array([float(bool(numbers)) for numbers in self.gold])
        return np.asarray(brings / max(1.0, brings.sum()))

    def top(self, weights: np.ndarray, k: int) -> tuple[int, ...]:
        """Return the first k hits by these weights."""
        return tuple(np.argsort(-(self.signals @ weights), kind="stable")[:k].tolist())

    def recall(self, weights: np.ndarray, k: int) -> float:
        """Return the share of the answers among the first k hits."""
        brought = {number for hit in self.top(weights, k) for number in self.gold[hit]}
        return len(brought) / self.answers


def fit(
    sets: Sequence[Sequence[RankedQuestion]], start: np.ndarray, free: np.ndarray, pull: float = 0.0
) -> np.ndarray:
    """Return the weights that minimise the loss; only free ones move.

    Args:
        pull: the penalty on the distance from the start.
    """
    packed = [_pack(questions) for questions in sets if questions]
    weights = start.copy() * TEMPERATURE
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        slope = 2 * PENALTY * weights + 2 * pull * (weights - TEMPERATURE * start)
        for signals, target, there in packed:
            scores = np.where(there, signals @ weights.astype(np.float32), -1e9)
            scores -= scores.max(axis=1, keepdims=True)
            chance = np.exp(scores)
            chance /= chance.sum(axis=1, keepdims=True)
            excess = chance * target.sum(axis=1, keepdims=True) - target
            slope += np.einsum("qn,qns->s", excess, signals) / len(signals) / len(packed)
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope**2
        change = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        weights = np.where(free, np.maximum(0.0, weights - RATE * change), weights)
    return weights


def _pack(questions: Sequence[RankedQuestion]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    longest = max(len(question.signals) for question in questions)
    width = questions[0].signals.shape[1]
    signals = np.zeros((len(questions), longest, width), np.float32)
    target, there = np.zeros((len(questions), longest)), np.zeros((len(questions), longest), bool)
    for row, question in enumerate(questions):
        n = len(question.signals)
        signals[row, :n], target[row, :n], there[row, :n] = question.signals, question.target, True
    return signals, target, there
