"""Okapi BM25 (Robertson et al. 1994; MemTier 3.2), with the inverse document frequencies in use.

score(q, d) = sum over t in q of idf(t) * f (k1 + 1) / (f + k1 (1 - b + b |d| / avgdl)).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

K1: Final = 1.5
B: Final = 0.75


def idf(documents: int, df: int) -> float:
    """Return ln(1 + (N - df + 0.5) / (df + 0.5)), never negative: for `recall_first`."""
    return math.log1p((documents - df + 0.5) / (df + 0.5))


def idfs(documents: int, frequencies: Mapping[str, int]) -> dict[str, float]:
    """Return the idf of each term, by how many documents have it."""
    return {term: idf(documents, df) for term, df in frequencies.items()}


def robertson_idf(documents: int, df: int) -> float:
    """Return ln((N - df + 0.5) / (df + 0.5)): negative for words in most documents."""
    return math.log(documents - df + 0.5) - math.log(df + 0.5)


def saturation(tf: float, length: float, average: float) -> float:
    """Return the share of a term's idf that ``tf`` occurrences in ``length`` words earn."""
    return tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / average)) if tf else 0.0


def score_documents(
    idfs: Mapping[str, float],
    documents: Iterable[tuple[Mapping[str, float], float]],
    average: float,
) -> list[float]:
    """Return the score of each document, given the occurrences of terms in it and its length."""
    return [
        sum(idfs[term] * saturation(tf, length, average) for term, tf in occurrences.items())
        for occurrences, length in documents
    ]


def add_term(
    scores: dict[int, float],
    occurrences: Mapping[int, int],
    lengths: Mapping[int, int],
    value: float,
    average: float,
) -> None:
    """Add what one term earns each row that has it.

    Args:
        occurrences: of the term, by row.
        lengths: in words, by row; ``average`` is that of all documents.
        value: the idf of the term, times its weight in the query.
    """
    get = scores.get
    for row, tf in occurrences.items():
        scores[row] = get(row, 0.0) + value * saturation(tf, lengths[row], average)
