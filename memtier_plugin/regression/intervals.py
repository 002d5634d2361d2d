"""Confidence intervals (95 %) of shares and means, and paired differences.  Pure.

A share of questions gets Wilson's score interval (Wilson 1927); other means, such as F1, are
bootstrapped (Efron 1979), and so is the difference of two systems on the same questions (Koehn
2004).  Questions are resampled individually, so those about one conversation count as independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Z: Final = 1.959963984540054  # 97.5 % quantile of the normal distribution
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
        """True if 0 lies outside the interval."""
        return self.low > 0 or self.high < 0


def wilson_interval(successes: int, total: int, z: float = Z) -> tuple[float, float]:
    """Return Wilson's score interval of a share; (0, 1) for no trials.

    Raises:
        ValueError: more successes than trials, or a negative number.
    """
    if not 0 <= successes <= total:
        raise ValueError(f"{successes} successes of {total}")
    if not total:
        return 0.0, 1.0
    share, squared = successes / total, z * z
    middle = share + squared / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + squared / (4 * total * total))
    low, high = ((middle + side * spread) / (1 + squared / total) for side in (-1, 1))
    # The bounds are exact at 0 and 1, regardless of rounding.
    return (low if successes else 0.0), (high if successes < total else 1.0)


def bootstrap_interval(
    values: Sequence[float], samples: int = SAMPLES, seed: int = SEED
) -> tuple[float, float]:
    """Return the bootstrap percentile interval of a mean.

    Raises:
        ValueError: there are no values.
    """
    low, high = _interval_bounds(_resample_means(values, samples, seed))
    return low, high


def paired_difference(
    ours: Sequence[float], theirs: Sequence[float], samples: int = SAMPLES, seed: int = SEED
) -> Difference:
    """Return the mean difference of two systems on the same questions, with its interval.

    ``p`` is the two-sided share of resamples on the other side of 0, at least 1 / samples.

    Raises:
        ValueError: the lengths differ, or there are no questions.
    """
    differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    means = _resample_means(differences, samples, seed)
    low, high = _interval_bounds(means)
    # A resample at exactly 0 counts for both sides.
    tail = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p = min(1.0, 2 * max(tail, 0.5) / samples)
    return Difference(math.fsum(differences) / len(differences), low, high, p)


def roc_area(labelled: Sequence[tuple[float, bool]]) -> tuple[float, float, float]:
    """Return the area under the ROC curve and its interval (Hanley and McNeil 1982).

    Args:
        labelled: values, and whether each is of a positive; ties count half.

    Raises:
        ValueError: all are positive, or none is.
    """
    ordered = sorted(labelled)
    positives = sum(label for _, label in ordered)
    negatives = len(ordered) - positives
    if not positives or not negatives:
        raise ValueError(f"{positives} positives of {len(ordered)}")
    wins, below, start = 0.0, 0, 0
    while start < len(ordered):
        end = start
        while end < len(ordered) and ordered[end][0] == ordered[start][0]:
            end += 1
        here = sum(label for _, label in ordered[start:end])
        others = end - start - here
        wins += here * (below + others / 2)
        below, start = below + others, end
    area = wins / (positives * negatives)
    two_positives, two_negatives = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (positives - 1) * (two_positives - area**2)
    variance += (negatives - 1) * (two_negatives - area**2)
    spread = Z * math.sqrt(max(0.0, variance) / (positives * negatives))
    return area, max(0.0, area - spread), min(1.0, area + spread)


def _resample_means(values: Sequence[float], samples: int, seed: int) -> NDArray[np.float64]:
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


def _interval_bounds(means: NDArray[np.float64]) -> tuple[float, float]:
    import numpy as np

    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)
