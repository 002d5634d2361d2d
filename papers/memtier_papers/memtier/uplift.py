"""Estimate the effect of showing a line on a run's reward, from runs that withheld it.  Pure.

A run may withhold one of its lines, drawn with a known probability, so that only chance separates
the runs with a line from those without it. The estimate is Hajek's: the mean reward of the runs
with the line minus that of those that withheld it, each run weighted by the inverse of the
probability of what happened in it (Hajek 1971; Horvitz and Thompson 1952). Without the weights a
line of large blocks, each line of which is withheld less often, would be compared with others. Runs
that withheld another line of the block are on neither side, as that line affects their reward.

The interval is Welch's, with one run of each extreme reward added to either side, as Agresti and
Caffo (2000) do for two proportions, and with a variance that a side with few runs shares with the
other if that is larger. A bootstrap over runs would have no width if all runs of a side earned the
same, which is common with some 20 of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

LEAST_RUNS: Final = 20  # on each side, before a result is reported
REWARD_RANGE: Final = (-0.5, 1.0)  # of a run (`outcomes.compute_reward`)
_Z: Final = NormalDist().inv_cdf(0.975)

Verdict = Literal["helps", "harms", "unclear", "too few runs"]


@dataclass(frozen=True, slots=True)
class Observation:
    """A line in one run.

    Attributes:
        shown: whether the prompt had all of its lines; otherwise this one was withheld.
        probability: of what happened, within (0, 1): p / m for each of m lines of which one is
            withheld with probability p, and 1 - p that none is.
        reward: of the run.
    """

    run: str
    shown: bool
    probability: float
    reward: float

    @property
    def weight(self) -> float:
        """The inverse of the probability of what happened."""
        return 1 / self.probability


@dataclass(frozen=True, slots=True)
class Uplift:
    """How much more reward runs earn with a line, or with lines of a kind, than without.

    ``shown`` and ``withheld`` count runs. ``mean``, ``low`` and ``high`` (95 %) are None if either
    is below `LEAST_RUNS`.
    """

    shown: int
    withheld: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether the line helps or harms, if the interval excludes zero."""
        if self.low is None or self.high is None:
            return "too few runs"
        return "helps" if self.low > 0 else "harms" if self.high < 0 else "unclear"


def estimate_uplift(observations: Iterable[Observation], least: int = LEAST_RUNS) -> Uplift:
    """Return the uplift of a line, or of several lines together, with its 95 % interval.

    Several lines of one run share its reward, and count as one run.

    Raises:
        ValueError: a probability is not within (0, 1), so that one side could never happen.
    """
    observations = [*observations]
    if not all(0 < each.probability < 1 for each in observations):
        raise ValueError("a probability that is not within (0, 1)")
    shown, withheld = (
        _by_run(each for each in observations if each.shown is side) for side in (True, False)
    )
    runs = len(shown), len(withheld)
    if min(runs) < max(2, least):
        return Uplift(*runs)
    mean = _mean(shown) - _mean(withheld)
    sides = _Side(shown), _Side(withheld)
    centre = sides[0].mean - sides[1].mean
    variances = [side.variance_beside(other) for side, other in (sides, sides[::-1])]
    freedom = sum(variances) ** 2 / sum(
        variance**2 / side.freedom for side, variance in zip(sides, variances, strict=True)
    )
    width = _student(freedom) * math.sqrt(sum(variances))
    most = REWARD_RANGE[1] - REWARD_RANGE[0]
    low, high = max(-most, centre - width), min(most, centre + width)
    return Uplift(*runs, mean, min(mean, low), max(mean, high))


class _Side:
    """The runs of one side, with a run of each extreme reward.

    Attributes:
        mean: of the rewards, weighted.
        spread: the variance of the rewards.
        variance: of the mean, with HC3's correction (MacKinnon and White 1985).
        freedom: its degrees of freedom; runs of unequal weight count for less than as many of equal
            weight (Kish 1965).
    """

    def __init__(self, runs: Sequence[tuple[float, float]]) -> None:
        usual = math.fsum(weight for weight, _ in runs) / len(runs)
        runs = [*runs, *((usual, reward) for reward in REWARD_RANGE)]
        total = math.fsum(weight for weight, _ in runs)
        shares = [(weight / total, reward) for weight, reward in runs]
        self.mean = math.fsum(share * reward for share, reward in shares)
        self.spread = math.fsum(share * (reward - self.mean) ** 2 for share, reward in shares)
        self.variance = math.fsum((s * (r - self.mean) / (1 - s)) ** 2 for s, r in shares)
        self.freedom = 1 / math.fsum(share**2 for share, _ in shares) - 1

    def variance_beside(self, other: _Side) -> float:
        """Return the variance of the mean, corrected for a side too small to show rare failures.

        A small side borrows the other's variance, with the weight of `LEAST_RUNS` runs.
        """
        runs = self.freedom + 1
        shared = (runs * self.spread + LEAST_RUNS * other.spread) / (runs + LEAST_RUNS)
        return self.variance * max(1.0, shared / self.spread)


def _by_run(observations: Iterable[Observation]) -> list[tuple[float, float]]:
    """Return the weight and the reward of each run."""
    runs: dict[str, tuple[float, float]] = {}
    for each in observations:
        weight, _ = runs.get(each.run, (0.0, 0.0))
        runs[each.run] = weight + each.weight, each.reward
    return [*runs.values()]


def _mean(runs: Sequence[tuple[float, float]]) -> float:
    return math.fsum(w * value for w, value in runs) / math.fsum(w for w, _ in runs)


def _student(freedom: float) -> float:
    """Return Student's 97.5 % quantile, to three digits from 5 degrees of freedom on."""
    z, n = _Z, freedom  # the Cornish-Fisher expansion
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n * n)
