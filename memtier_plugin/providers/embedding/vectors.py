"""Embed a recall's query within its deadline; store vectors as int8, and compare them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import wait
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.concurrency import WorkerPool
from memtier_plugin.core.errors import EmbeddingUnavailable

if TYPE_CHECKING:
    from memtier_plugin.core.hookspecs import Embedder


# -- Embed a recall's query within its deadline, with any kind of model

QUERY_TIMEOUT_SECONDS: Final = 5.0  # for a recall without a deadline
QUERY_SHARE: Final = 0.5  # of the time left; ranking by words needs the rest


class RemoteEmbedder(ABC):
    """An embedder that sends texts off this machine, and may cost money."""

    @abstractmethod
    def embed_query(self, text: str, seconds: float) -> Sequence[float]:
        """Return the vector of a query, in one attempt within ``seconds``.

        Raises:
            EmbeddingUnavailable: there is none.
        """

    @abstractmethod
    def warm_up(self) -> None:
        """Prepare for the first query (raises EndpointError)."""


class SlowEmbedder(ABC):
    """An embedder that takes milliseconds for a text."""

    @abstractmethod
    def encode_query(self, text: str) -> Sequence[float]:
        """Return the vector of a query, which some models mark by a prompt."""


def encode_query(embedder: Embedder, text: str, until: float | None) -> Sequence[float]:
    """Return the vector of a recall's query.

    Args:
        until: the recall's deadline, by ``time.monotonic()``.

    Raises:
        EmbeddingUnavailable: an endpoint, or a model still being loaded, did not answer in time;
            the recall then uses words.
    """
    left = QUERY_TIMEOUT_SECONDS if until is None else QUERY_SHARE * (until - time.monotonic())
    if left <= 0 and (isinstance(embedder, RemoteEmbedder) or embedder.name not in _loaded):
        raise EmbeddingUnavailable("no time is left for the query's vector")
    if isinstance(embedder, RemoteEmbedder):
        return embedder.embed_query(text, min(left, QUERY_TIMEOUT_SECONDS))
    if until is None or embedder.name in _loaded:
        return _encode_locally(embedder, text)
    # The first text loads the model, which on a busy machine takes longer than a prompt may wait.
    future = _loaders.submit(lambda: _encode_locally(embedder, text), line=embedder.name)
    if not wait([future], left).done:
        raise EmbeddingUnavailable("the model is still loading")
    return future.result()


def _encode_locally(embedder: Embedder, text: str) -> Sequence[float]:
    if isinstance(embedder, SlowEmbedder):
        vector = embedder.encode_query(text)
    else:
        vector = embedder.encode([text])[0]
    _loaded.add(embedder.name)
    return vector


_loaded: Final[set[str]] = set()  # the models that have embedded a query
_loaders: Final = WorkerPool("memtier-model", max_jobs=8)


# -- Store vectors as int8, and compare them


def quantise(vectors: Sequence[Sequence[float]]) -> list[bytes]:
    """Return each vector as int8, its largest component at ±127.

    The cosine of two such blobs differs from that of the vectors by about .001. A zero vector stays
    zero: it has no direction, and no cosine. Shapes: (n, d) floats -> n blobs of d bytes.
    """
    import numpy as np

    rows = np.asarray(vectors, np.float32)
    peaks = np.abs(rows).max(axis=1, keepdims=True)
    rounded = np.rint(rows * (127 / np.where(peaks > 0, peaks, 1))).astype(np.int8)
    return [row.tobytes() for row in rounded]


def cosine_similarity(first: bytes, second: bytes) -> float:
    """Return the cosine of two vectors made by `quantise`; 0 if their lengths differ."""
    import numpy as np

    if len(first) != len(second):
        return 0.0
    a, b = (np.frombuffer(blob, np.int8).astype(np.float64) for blob in (first, second))
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-32))
