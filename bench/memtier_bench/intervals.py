"""Confidence intervals (95 %) of shares, means and areas under a curve.  Pure.

A share of questions gets Wilson's score interval (Wilson 1927); other means, such as F1, are
bootstrapped (Efron 1979).  Questions are resampled individually, so those about one conversation
count as independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from memtier_plugin.credit.verdict import SAMPLES, SEED, interval_bounds, resample_means

Z: Final = 1.959963984540054  # 97.5 % quantile of the normal distribution


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
    low, high = interval_bounds(resample_means(values, samples, seed))
    return low, high


def grouped_interval(
    groups: Sequence[Sequence[float]], samples: int = SAMPLES, seed: int = SEED
) -> tuple[float, float]:
    """Return the bootstrap percentile interval of a mean whose groups are resampled whole.

    Args:
        groups: the values, none of them empty, of what is drawn: a conversation or a project.

    Raises:
        ValueError: there are no groups.
    """
    import numpy as np

    if not groups:
        raise ValueError("nothing was measured")
    sums = np.array([math.fsum(group) for group in groups])
    counts = np.array([len(group) for group in groups])
    drawn = np.random.default_rng(seed).integers(len(groups), size=(samples, len(groups)))
    low, high = interval_bounds(sums[drawn].sum(1) / counts[drawn].sum(1))
    return low, high


def named_mean(values: Sequence[tuple[str, float | None]], seed: int = SEED) -> list[float] | None:
    """Return the mean of values with its interval, groups resampled; None where nothing counts.

    Args:
        values: each with the name of its group, those of a group together.
    """
    counted = [(name, float(value)) for name, value in values if value is not None]
    if not counted:
        return None
    groups = [[v for _, v in group] for _, group in groupby(counted, key=lambda pair: pair[0])]
    average = math.fsum(value for _, value in counted) / len(counted)
    return [round(value, 4) for value in (average, *grouped_interval(groups, seed=seed))]


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
