"""What is counted of a ranking: pure functions of the turns found and the turns wanted."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

CUTOFFS: Final = (1, 2, 5, 10, 20, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one question brought; what is not measured (a baseline injects nothing) is None."""

    category: str
    gold: frozenset[str]
    ranked: tuple[str, ...]
    injected: frozenset[str] | None = None
    tokens: int | None = None
    seconds: float = 0.0


def source_turns(hits: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return the distinct source turns of ranked hits.

    A hit with several sources takes a place for each, in the order it names them; a turn that an
    earlier hit already brought takes none.
    """
    return tuple(dict.fromkeys(turn for hit in hits for turn in hit))


def recall_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Return the share of the gold turns among the first k."""
    return len(set(ranked[:k]) & set(gold)) / len(gold)


def reciprocal_rank(ranked: Sequence[str], gold: Collection[str]) -> float:
    """Return 1 / the place of the first gold turn, 0 when there is none."""
    return next((1 / place for place, turn in enumerate(ranked, 1) if turn in gold), 0.0)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile: the smallest value that `share` of all do not exceed."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """Return p50, p95 and p99 in milliseconds."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: round(1000 * percentile(seconds, s), 3) for name, s in shares.items()}


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the means over the questions, each counting the same, in all and by category."""
    by_category: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_category.setdefault(outcome.category, []).append(outcome)
    tokens = [outcome.tokens for outcome in outcomes if outcome.tokens is not None]
    return {
        **_means(outcomes),
        "injected_tokens": _mean(tokens) if tokens else None,
        "by_category": {
            name: {"questions": len(group), **_means(group)}
            for name, group in sorted(by_category.items())
        },
    }


def _means(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    injected = [
        recall_at(tuple(o.injected), o.gold, len(o.injected))
        for o in outcomes
        if o.injected is not None
    ]
    shares = {k: [recall_at(o.ranked, o.gold, k) for o in outcomes] for k in CUTOFFS}
    return {
        "recall": {str(k): _mean(values) for k, values in shares.items()},
        "hit": {str(k): _mean([value > 0 for value in values]) for k, values in shares.items()},
        "all": {str(k): _mean([value == 1 for value in values]) for k, values in shares.items()},
        "mrr": _mean([reciprocal_rank(o.ranked, o.gold) for o in outcomes]),
        "injected_recall": _mean(injected) if injected else None,
    }


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0


def difference(ours: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, float | None]:
    """Return what a variant of a run gained or lost: recall@10, recall@1 and injected recall."""
    pairs = {
        "recall@10": (ours["recall"]["10"], base["recall"]["10"]),
        "recall@1": (ours["recall"]["1"], base["recall"]["1"]),
        "injected_recall": (ours["injected_recall"], base["injected_recall"]),
    }
    return {
        name: None if now is None or then is None else round(now - then, 4)
        for name, (now, then) in pairs.items()
    }
