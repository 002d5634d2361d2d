"""Ranking of `rank_recall_first`: signals on one scale, added up by weight.  Pure.

The paper's diagnosis is that raw BM25 drowns every bounded signal.  Here each signal lies in
[0, 1] before it is weighted: lexical scores are divided by the query's best, the others are
bounded by nature.  A signal with the same value for every candidate (a speaker who said it all)
adds the same to each, so it cannot change the order.  Source: design 6; MemTier eq. 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

TIER_FACTOR: Final = {"episodic": 1.0, "semantic": 1.2, "procedural": 1.4}  # MemTier 3.2
DAY_SECONDS: Final = 86_400.0
MIN_TIMELINE_SHARE: Final = (
    0.5  # of the best lexical score, or a timeline is not of what is asked about
)
OUTSIDE_SPAN_WEIGHT: Final = (
    0.25  # what a summary of another time than the one asked about is worth, at most
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate's place in the order: its index in the pool, its score and its signals."""

    index: int
    score: float
    signals: Mapping[str, float]


def scale_by_max(values: Sequence[float]) -> list[float]:
    """Divide by the largest, so that the best candidate of this query has 1."""
    top = max(values, default=0.0)
    return [max(0.0, value) / top for value in values] if top > 0 else [0.0] * len(values)


def add_scaled(*scores: Mapping[int, float]) -> dict[int, float]:
    """Return the sum of several scores of rows, each scaled so that its best row has 1."""
    total: dict[int, float] = {}
    for one in scores:
        for row, value in zip(one, scale_by_max([*one.values()]), strict=True):
            total[row] = total.get(row, 0.0) + value
    return total


def decay(age_days: float, rate: float, *, bypass: bool) -> float:
    """Return eq. 3: 1 for a strong match, else exp(-rate * age); the future counts as now."""
    return 1.0 if bypass else math.exp(-rate * max(0.0, age_days))


def tier_signal(tier: str, confidence: float) -> float:
    """Return the tier's bonus (MemTier 3.2) in [0, 1], by how much surer than not a fact is.

    A fact that a rule found is less of one than what somebody stated to be remembered.
    """
    return (TIER_FACTOR[tier] - 1) / 0.4 * max(0.0, min(1.0, 2 * confidence - 1))


def weight_signal(weight: float) -> float:
    """Map a cognitive weight from [-1, 1] to [0, 1] (MemTier 3.2)."""
    return (weight + 1) / 2


def overview_signal(
    shelves: Sequence[str],
    times: Sequence[float],
    said: Sequence[float],
    words: Sequence[float],
) -> list[float]:
    """Return how well each candidate is the summary, or the timeline, that a query asks for.

    Any summary of the time asked about will do, and where no time is named the newest; a timeline
    must be of what is asked about.

    Args:
        shelves: what each candidate is: "summary", "timeline" or nothing of the kind.
        times: how near each is to the time that the query names; nothing when it names none.
        said: when each was said.
        words: the lexical score of each.
    """
    top = max(words, default=0.0)
    lines = [v / top if v > MIN_TIMELINE_SHARE * top else 0.0 for v in words]
    inside = [time if time == 1.0 else OUTSIDE_SPAN_WEIGHT * time for time in times]
    if not times:
        ages = sorted({at for at, s in zip(said, shelves, strict=True) if s == "summary"})[::-1]
        inside = [1.0 / (1.0 + ages.index(at) / 4) if at in ages else 0.0 for at in said]
    return [
        near if shelf == "summary" else line if shelf == "timeline" else 0.0
        for shelf, line, near in zip(shelves, lines, inside, strict=True)
    ]


def rank(
    ids: Sequence[str],
    signals: Mapping[str, Sequence[float]],
    weights: Mapping[str, float],
    limit: int | None = None,
) -> list[Ranked]:
    """Order candidates by the weighted sum of their signals; ties go by id.

    Args:
        ids: one a candidate.
        signals: for each name one value in [0, 1] a candidate.
        weights: for each name its weight; a name without one counts as 0.
        limit: how many are returned, the best; all when None.
    """
    counted = [
        [weights[name] * value for value in values]
        for name, values in signals.items()
        if weights.get(name)
    ]
    # fsum, so that the order in which signals were collected cannot change the score.
    scores = [*map(math.fsum, zip(*counted, strict=True))] if counted else [0.0] * len(ids)
    best = sorted(range(len(ids)), key=lambda index: (-scores[index], ids[index]))[:limit]
    return [
        Ranked(index, scores[index], {name: values[index] for name, values in signals.items()})
        for index in best
    ]
