"""Time the scale benchmark's references: full BM25 and vector scans, and embedding."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from memtier_bench.metrics import percentile
from memtier_plugin.providers.embedding.static import ShippedEmbedder, StaticEmbedder

T = TypeVar("T")

_TOP: Final = 200  # results of a scan: as many candidates as a ranking considers


def time_rank_bm25(texts: Iterable[str], queries: Sequence[str]) -> float:
    """Return the median milliseconds of scoring every text by rank-bm25 and taking the best 200.

    Words are only split and lower-cased; building the scorer is not timed.
    """
    from rank_bm25 import BM25Okapi

    interned: dict[str, str] = {}  # one string per distinct word

    def words(text: str) -> list[str]:
        return [interned.setdefault(word, word) for word in re.findall(r"\w+", text.lower())]

    bm25 = BM25Okapi([words(text) for text in texts])
    return _median_ms(lambda query: bm25.get_scores(words(query)).argsort()[-_TOP:], queries)


def time_numpy(rows: int, queries: Sequence[str], seed: int) -> float:
    """Return the median milliseconds of one exact cosine scan and taking the best 200.

    Embedding the query is not timed; the float32 rows are random unit vectors, since the time does
    not depend on their values.
    """
    embedder = _shipped_embedder()
    table = np.random.default_rng(seed).standard_normal(
        (rows, embedder.dimensions), dtype=np.float32
    )
    for block in np.array_split(table, 1 + rows // 100_000):
        block /= np.linalg.norm(block, axis=1, keepdims=True)
    best = min(_TOP, rows)

    def scan(vector: NDArray[Any]) -> object:
        cosines = table @ vector
        top = np.argpartition(cosines, -best)[-best:]
        return top[np.argsort(cosines[top])]

    return _median_ms(scan, list(np.asarray(embedder.encode(queries), np.float32)))


def time_encoding(texts: Sequence[str]) -> float:
    """Return the seconds that the shipped model takes to embed these texts on one thread."""
    embedder = _shipped_embedder()
    started = time.perf_counter()
    embedder.encode(texts)
    return time.perf_counter() - started


@cache
def _shipped_embedder() -> StaticEmbedder:
    embedder = ShippedEmbedder()
    embedder.encode(["this reads its files"])
    return embedder


def _median_ms(scan: Callable[[T], object], queries: Sequence[T]) -> float:
    seconds = []
    for query in queries:
        started = time.perf_counter()
        scan(query)
        seconds.append(time.perf_counter() - started)
    return round(1000 * percentile(seconds, 0.5), 3)
