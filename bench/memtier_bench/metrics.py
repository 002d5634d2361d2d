"""Ranking metrics: pure functions of ranked turns and gold turns."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from memtier_bench.answers import ReaderAnswer, summarise_answers

CUTOFFS: Final = (1, 2, 4, 5, 10, 20, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOutcome:
    """The outcome of one question; None where not measured (a baseline injects nothing).

    ``answers`` has a reader's answer under each condition, where one was asked.
    """

    id: str = ""
    category: str
    gold: frozenset[str]
    ranked: tuple[str, ...]
    injected: frozenset[str] | None = None
    tokens: int | None = None
    seconds: float = 0.0
    inject_seconds: float | None = None
    answers: Mapping[str, ReaderAnswer] = field(default_factory=dict)


def source_turns(hits: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return the distinct source turns of ranked hits.

    A hit with several sources takes one rank for each, in its order; turns of earlier hits are
    skipped.
    """
    return tuple(dict.fromkeys(turn for hit in hits for turn in hit))


def recall_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Return the share of the gold turns among the first k."""
    return len(set(ranked[:k]) & set(gold)) / len(gold)


def reciprocal_rank(ranked: Sequence[str], gold: Collection[str]) -> float:
    """Return 1 / rank of the first gold turn, 0 if there is none."""
    return next((1 / rank for rank, turn in enumerate(ranked, 1) if turn in gold), 0.0)


def ndcg_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Return nDCG: the discounted gain of the first k, relative to the ideal order.

    Relevance is binary (Järvelin and Kekäläinen 2002).
    """
    gain = sum(1 / math.log2(rank + 1) for rank, t in enumerate(ranked[:k], 1) if t in gold)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(gold)) + 1))
    return gain / best


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def latency_percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return p50, p95 and p99 in milliseconds."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: round(1000 * percentile(seconds, s), 3) for name, s in shares.items()}


def question_figures(outcome: QuestionOutcome) -> dict[str, Any]:
    """Return the metrics of one question; ranking metrics are None without gold turns."""
    gold, ranked, injected = outcome.gold, outcome.ranked, outcome.injected
    figures: dict[str, Any] = {
        "id": outcome.id,
        "category": outcome.category,
        "recall": {str(k): round(recall_at(ranked, gold, k), 6) for k in CUTOFFS} if gold else None,
        "ndcg": {str(k): round(ndcg_at(ranked, gold, k), 6) for k in CUTOFFS} if gold else None,
        "mrr": round(reciprocal_rank(ranked, gold), 6) if gold else None,
        "injected_recall": None,
        "tokens": outcome.tokens,
    }
    if gold and injected is not None:
        share = recall_at(tuple(injected), gold, len(injected))
        figures["injected_recall"] = round(share, 6)
    if outcome.answers:
        figures["answers"] = {
            condition: {
                "text": answer.text,
                "soft_em": float(answer.soft_em),
                "soft_em_tokens": float(answer.soft_em_tokens),
                "f1": round(answer.f1, 6),
                "memt_f1": round(answer.memt_f1, 6),
            }
            for condition, answer in outcome.answers.items()
        }
    return figures


def summarise_outcomes(outcomes: Sequence[QuestionOutcome]) -> dict[str, Any]:
    """Return the means over the questions, overall and by category.

    Questions without gold turns count for the answers only.
    """
    by_category: dict[str, list[dict[str, Any]]] = {}
    every = [question_figures(outcome) for outcome in outcomes if outcome.gold]
    for figures in every:
        by_category.setdefault(figures["category"], []).append(figures)
    tokens = [outcome.tokens for outcome in outcomes if outcome.tokens is not None]
    summary = {
        **_means(every),
        "injected_tokens": mean(tokens) if tokens else None,
        "by_category": {
            name: {"questions": len(group), **_means(group)}
            for name, group in sorted(by_category.items())
        },
    }
    answers: dict[str, list[tuple[str, ReaderAnswer]]] = {}
    for outcome in outcomes:
        for condition, answer in outcome.answers.items():
            answers.setdefault(condition, []).append((outcome.category, answer))
    if answers:
        summary["answers"] = {
            name: summarise_answers(condition_answers)
            for name, condition_answers in answers.items()
        }
    return summary


def _means(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    injected = [
        figures["injected_recall"] for figures in every if figures["injected_recall"] is not None
    ]
    shares = {str(k): [figures["recall"][str(k)] for figures in every] for k in CUTOFFS}
    return {
        "recall": {k: mean(values) for k, values in shares.items()},
        "hit": {k: mean([value > 0 for value in values]) for k, values in shares.items()},
        "all": {k: mean([value == 1 for value in values]) for k, values in shares.items()},
        "ndcg": {str(k): mean([figures["ndcg"][str(k)] for figures in every]) for k in CUTOFFS},
        "mrr": mean([figures["mrr"] for figures in every]),
        "injected_recall": mean(injected) if injected else None,
    }


def mean(values: Sequence[float]) -> float:
    """Return the mean to four places; 0 of nothing."""
    return round(sum(values) / len(values), 4) if values else 0.0
