"""Combine a reranker's scores with the first ranking.  Pure.

True Memory, stage 10: both are min-max scaled, and weighted .6 and .4.  Summaries count less if a
question asks for a detail and more if it asks for the whole.  The factor is applied to a relevance
in [0, 1], since .7 times a negative logit would increase it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memtier_plugin.core import lazy_regex as regex

RERANKED: Final = 0.6
FIRST: Final = 0.4
DETAIL_FACTOR: Final = 0.7  # of a summary, if a detail is asked for
SYNTHESIS_FACTOR: Final = 1.2  # of a summary, if the whole is
_DETAIL: Final = regex.compile(
    r"(?i)\b(?:when|where|who|whom|whose|which|how\s+(?:many|much|long|often|old|far|big|tall)"
    r"|(?:what|at\s+what)\s+(?:is\s+the\s+)?"
    r"(?:time|date|day|year|number|name|address|price|port|version|color|colour))\b"
)


def fuse_scores(relevances: Sequence[float], first: Sequence[float]) -> list[float]:
    """Return .6 of the reranker's and .4 of the first scores, each scaled to [0, 1]."""
    return [
        RERANKED * relevance + FIRST * score
        for relevance, score in zip(_scaled(relevances), _scaled(first), strict=True)
    ]


def modality_factor(query: str, *, is_summary: bool) -> float:
    """Return the factor for an item's relevance, by what a query asks for."""
    if not is_summary:
        return 1.0
    from memtier_plugin.retrieval.query import asks_overview

    if asks_overview(query):
        return SYNTHESIS_FACTOR
    return DETAIL_FACTOR if _DETAIL.search(query[:2000]) else 1.0


def _scaled(values: Sequence[float]) -> list[float]:
    """Min-max scale; equal values become .5."""
    low, high = min(values), max(values)
    if low == high:
        return [0.5] * len(values)
    return [(value - low) / (high - low) for value in values]
