"""Ranking of `recall_first`: signals on one scale, added up by weight.  Pure.

Raw BM25 dominates every bounded signal (MemTier, section 3.2, "BM25 signal").  Here each signal
lies in [0, 1] before it is weighted: lexical scores are divided by the query's best, the others are
bounded by nature.  A signal with the same value for every candidate (a speaker who said it all)
adds the same to each, so it cannot change the order.  The weighted sum, decay, cognitive weight and
tier follow MemTier, section 3.2, eq. 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

TIER_FACTOR: Final = {"episodic": 1.0, "semantic": 1.2, "procedural": 1.4}  # MemTier, 3.2
DAY_SECONDS: Final = 86_400.0
# Of the best lexical score; below it a timeline is not about what is asked.
MIN_TIMELINE_SHARE: Final = 0.5
# At most, of a summary of another time than the one asked about.
OUTSIDE_SPAN_WEIGHT: Final = 0.25


@dataclass(frozen=True, slots=True)
class Ranked:
    """A ranked candidate: its index in the pool, its score and its signals."""

    index: int
    score: float
    signals: Mapping[str, float]


def scale_by_max(values: Sequence[float]) -> list[float]:
    """Divide by the largest, so that the best candidate of this query has 1."""
    top = max(values, default=0.0)
    if top <= 0:
        return [0.0] * len(values)
    return [value / top if value > 0 else 0.0 for value in values]


def scale_each(signals: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Divide the values of each signal by their largest; see `scale_by_max`."""
    return {name: scale_by_max(values) for name, values in signals.items()}


def add_scaled(rows: Iterable[int], *scores: Mapping[int, float]) -> dict[int, float]:
    """Return the sum of several scores of these rows, each scaled so that its best row has 1.

    Args:
        scores: by row; of others than these rows too, the best row may be one of them.
    """
    total = dict.fromkeys(rows, 0.0)
    for by_row in scores:
        top = max(by_row.values(), default=0.0)
        if top > 0:
            for row in total.keys() & by_row.keys():
                total[row] += max(0.0, by_row[row]) / top
    return total


def decay(age_days: float, rate: float, *, bypass: bool = False) -> float:
    """Return the decay of an age (MemTier, section 3.2, eq. 3); the future counts as now.

    Args:
        bypass: a strong match does not decay.
    """
    return 1.0 if bypass else math.exp(-rate * max(0.0, age_days))


def tier_signal(tier: str, confidence: float) -> float:
    """Return the bonus of a tier in [0, 1] (MemTier, section 3.2), scaled by a fact's confidence.

    A fact that a rule found earns less of it than one that somebody stated to be remembered.
    """
    return (TIER_FACTOR[tier] - 1) / 0.4 * max(0.0, min(1.0, 2 * confidence - 1))


def weight_signal(weight: float) -> float:
    """Map a cognitive weight from [-1, 1] to [0, 1] (MemTier, section 3.2)."""
    return (weight + 1) / 2


def overview_signal(
    kinds: Sequence[str],
    times: Sequence[float],
    observed: Sequence[float],
    words: Sequence[float],
) -> list[float]:
    """Return how well each candidate is the summary, or the timeline, that a query asks for.

    Any summary of the time asked about will do, and where no time is named the newest; a timeline
    must be about what is asked.

    Args:
        kinds: what each candidate is: "summary", "timeline", "profile" (of somebody who is asked
            about) or none of them.
        times: how near each is to the time that the query names; empty when it names none.
        observed: when each was said.
        words: the lexical score of each.
    """
    top = max(words, default=0.0)
    shares = [score / top if score > MIN_TIMELINE_SHARE * top else 0.0 for score in words]
    recency = [time if time == 1.0 else OUTSIDE_SPAN_WEIGHT * time for time in times]
    if not times:
        newest = {at for at, kind in zip(observed, kinds, strict=True) if kind == "summary"}
        ranks = {at: rank for rank, at in enumerate(sorted(newest, reverse=True))}
        recency = [1.0 / (1.0 + ranks[at] / 4) if at in ranks else 0.0 for at in observed]
    return [
        {"summary": near, "timeline": share, "profile": 1.0}.get(kind, 0.0)
        for kind, share, near in zip(kinds, shares, recency, strict=True)
    ]


def rank(
    ids: Sequence[str],
    signals: Mapping[str, Sequence[float]],
    weights: Mapping[str, float],
    limit: int | None = None,
) -> list[Ranked]:
    """Order candidates by the weighted sum of their signals (MemTier, section 3.2, eq. 2).

    Ties go by id.

    Args:
        ids: one a candidate.
        signals: for each name one value in [0, 1] a candidate.
        weights: for each name its weight; a name without one counts as 0.
        limit: how many are returned, the best; all when None.
    """
    counted = [
        [weight * value for value in values]
        for name, values in signals.items()
        if (weight := weights.get(name)) and any(values)
    ]
    # fsum, so that the order in which signals were collected cannot change the score.
    scores = [*map(math.fsum, zip(*counted, strict=True))] if counted else [0.0] * len(ids)
    # Only what scores as well as the last of them is sorted by id too.
    least = sorted(scores, reverse=True)[limit - 1] if limit and limit < len(ids) else -math.inf
    good = (index for index, score in enumerate(scores) if score >= least)
    best = sorted(good, key=lambda index: (-scores[index], ids[index]))[:limit]
    values = [*zip(*signals.values(), strict=True)] if signals else [()] * len(ids)
    return [
        Ranked(index, scores[index], dict(zip(signals, values[index], strict=True)))
        for index in best
    ]
