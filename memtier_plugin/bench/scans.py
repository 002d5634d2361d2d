"""What the scale bench compares with: scoring every entry, comparing every vector, embedding."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from memtier_plugin.bench.metrics import percentile
from memtier_plugin.providers.embedding.static import ShippedEmbedder, StaticEmbedder

T = TypeVar("T")

_TOP: Final = 200  # what a scan has to find: as many candidates as a ranking looks at


def time_rank_bm25(texts: Iterable[str], queries: Sequence[str]) -> float:
    """Return the median milliseconds of scoring every text by rank-bm25 and taking the best 200.

    Words are split and lower-cased, nothing more; making the scorer is not counted.
    """
    from rank_bm25 import BM25Okapi

    interned: dict[str, str] = {}  # one string for a word, however often it is said

    def words(text: str) -> list[str]:
        return [interned.setdefault(word, word) for word in re.findall(r"\w+", text.lower())]

    bm25 = BM25Okapi([words(text) for text in texts])
    return _median_ms(lambda query: bm25.get_scores(words(query)).argsort()[-_TOP:], queries)


def time_numpy(rows: int, queries: Sequence[str], seed: int) -> float:
    """Return the median milliseconds of one exact cosine scan and taking the best 200.

    The query's vector is the shipped model's and not counted; the float32 rows of its dimension are
    random ones of length one, since the time does not depend on what they are.
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
    """Return how long the shipped model takes to make vectors of these texts, on one thread."""
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
