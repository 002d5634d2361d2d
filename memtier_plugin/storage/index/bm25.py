"""Okapi BM25 (Robertson et al. 1994; MemTier, section 3.2) with two variants of the idf.

score(q, d) = sum over t in q of idf(t) * f (k1 + 1) / (f + k1 (1 - b + b |d| / avgdl)),

where f is how often t occurs in d and |d| is the length of d in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

K1: Final = 1.5
B: Final = 0.75


def idf(documents: int, df: int) -> float:
    """Return ln(1 + (N - df + 0.5) / (df + 0.5)), which is never negative (Lucene's variant).

    The `recall_first` profile uses it.
    """
    return math.log1p((documents - df + 0.5) / (df + 0.5))


def idfs(documents: int, frequencies: Mapping[str, int]) -> dict[str, float]:
    """Return the `idf` of each term, given its document frequency."""
    return {term: idf(documents, df) for term, df in frequencies.items()}


def robertson_idf(documents: int, df: int) -> float:
    """Return ln((N - df + 0.5) / (df + 0.5)), negative for terms in over half the documents.

    This is the idf of Robertson and Sparck Jones (1976), as in Okapi BM25 (Robertson et al. 1994).
    """
    return math.log(documents - df + 0.5) - math.log(df + 0.5)


def norm(length: float, average: float) -> float:
    """Return the term k1 (1 - b + b |d| / avgdl) of the score.

    Args:
        length: |d|, in words.
        average: avgdl, the mean length of all documents.
    """
    return K1 * (1 - B + B * length / average)


def saturation(tf: float, length: float, average: float) -> float:
    """Return the factor f (k1 + 1) / (f + k1 (1 - b + b |d| / avgdl)) of the score.

    Args:
        tf: f, the term's occurrences in the document.
    """
    return tf * (K1 + 1) / (tf + norm(length, average)) if tf else 0.0


def score_document(
    idfs: Mapping[str, float], occurrences: Mapping[str, float], length: float, average: float
) -> float:
    """Return the score of a document, given its occurrences by term and its length in words."""
    own = norm(length, average)
    return sum([idfs[term] * (tf * (K1 + 1) / (tf + own)) for term, tf in occurrences.items()])


def add_term(
    scores: dict[int, float],
    codes: Mapping[int, int],
    saturations: Mapping[int, float],
    value: float,
) -> None:
    """Add one term's contribution to the score of each row that contains it, in place.

    Args:
        codes: a code of the term's occurrences and the row's length, by row.
        saturations: the `saturation` of each code.
        value: the term's idf, times its weight in the query.
    """
    get = scores.get
    values = {code: value * factor for code, factor in saturations.items()}
    for row, code in codes.items():
        scores[row] = get(row, 0.0) + values[code]
