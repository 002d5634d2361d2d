"""Okapi BM25 (Robertson et al. 1994; MemTier 3.2), with the inverse document frequencies in use.

score(q, d) = sum over t in q of idf(t) * f (k1 + 1) / (f + k1 (1 - b + b |d| / avgdl)).
"""

from __future__ import annotations

import math
from typing import Final

K1: Final = 1.5
B: Final = 0.75


def idf(documents: int, df: int) -> float:
    """Return ln(1 + (N - df + 0.5) / (df + 0.5)), never negative: for `rank_recall_first`."""
    return math.log1p((documents - df + 0.5) / (df + 0.5))


def robertson_idf(documents: int, df: int) -> float:
    """Return ln((N - df + 0.5) / (df + 0.5)): negative for words in most documents."""
    return math.log(documents - df + 0.5) - math.log(df + 0.5)


def saturation(tf: float, length: float, average: float) -> float:
    """Return the share of a term's idf that ``tf`` occurrences in ``length`` words earn."""
    return tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / average)) if tf else 0.0
