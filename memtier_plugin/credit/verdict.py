"""Judge by a paired bootstrap whether a change made answers worse.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# -- The paired bootstrap: the difference of two systems on the same questions.  Pure
#
# The mean difference is bootstrapped (Efron 1979; Koehn 2004).  Questions are resampled
# individually, so those about one conversation count as independent.

SAMPLES: Final = 10_000
SEED: Final = 42
_AT_ONCE: Final = 2_000_000  # numbers drawn at a time, to bound memory


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean difference of two systems over the questions, with its interval and p-value."""

    mean: float
    low: float
    high: float
    p: float

    @property
    def significant(self) -> bool:
        """Whether 0 lies outside the interval."""
        return self.low > 0 or self.high < 0


def paired_difference(
    ours: Sequence[float], theirs: Sequence[float], samples: int = SAMPLES, seed: int = SEED
) -> Difference:
    """Return the mean difference of two systems on the same questions, with its interval.

    ``p`` is the two-sided share of resamples on the other side of 0, at least 1 / samples.

    Raises:
        ValueError: the lengths differ, or there are no questions.
    """
    differences = [mine - their_value for mine, their_value in zip(ours, theirs, strict=True)]
    means = resample_means(differences, samples, seed)
    low, high = interval_bounds(means)
    # A resample at exactly 0 counts for both sides.
    tail = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p = min(1.0, 2 * max(tail, 0.5) / samples)
    return Difference(math.fsum(differences) / len(differences), low, high, p)


def resample_means(values: Sequence[float], samples: int, seed: int) -> NDArray[np.float64]:
    """Return the means of ``samples`` bootstrap resamples."""
    import numpy as np

    if not values:
        raise ValueError("nothing was measured")
    array, chance = np.asarray(values, np.float64), np.random.default_rng(seed)
    size = max(1, _AT_ONCE // len(array))
    return np.concatenate(
        [
            array[chance.integers(len(array), size=(min(size, samples - done), len(array)))].mean(1)
            for done in range(0, samples, size)
        ]
    )


def interval_bounds(means: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 2.5 % and 97.5 % quantiles of resampled means."""
    import numpy as np

    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


# -- Judge by a paired bootstrap over questions whether a change made answers worse.  Pure

FEWEST: Final = 3  # fewer questions leave the verdict to chance


@dataclass(frozen=True, slots=True)
class RegressionVerdict:
    """How well the same questions are answered before and after a change.

    ``difference`` is after - before with the bounds of its 95 % interval.  The change is refused if
    even the upper bound is below -``tolerance``.
    """

    questions: int
    before: float
    after: float
    difference: float
    low: float
    high: float
    tolerance: float

    @property
    def refused(self) -> bool:
        """Whether answers got worse by more than the tolerance."""
        return self.enough and self.high < -self.tolerance

    @property
    def enough(self) -> bool:
        """Whether there are enough questions for a verdict."""
        return self.questions >= FEWEST

    def describe(self) -> str:
        """Return the verdict in words."""
        if not self.enough:
            return f"too few questions to tell: {self.questions} of at least {FEWEST}"
        if self.refused:
            return "worse"
        return "better" if self.low > 0 else "not worse"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        return {
            **{
                name: round(value, 4) if isinstance(value, float) else value
                for name, value in asdict(self).items()
            },
            "refused": self.refused,
            "verdict": self.describe(),
        }


def judge(before: Sequence[float], after: Sequence[float], tolerance: float) -> RegressionVerdict:
    """Compare how well each question is answered before and after a change.

    Raises:
        ValueError: the lengths differ.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} questions before, {len(after)} after")
    if not before:
        return RegressionVerdict(0, 0.0, 0.0, 0.0, 0.0, 0.0, tolerance)
    difference = paired_difference(after, before)
    return RegressionVerdict(
        len(before),
        sum(before) / len(before),
        sum(after) / len(after),
        difference.mean,
        difference.low,
        difference.high,
        tolerance,
    )
