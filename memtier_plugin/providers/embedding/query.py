"""Embed a recall's query within its deadline, by whichever kind of model is configured."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import wait
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.errors import EmbeddingUnavailable
from memtier_plugin.core.workers import WorkerPool

if TYPE_CHECKING:
    from memtier_plugin.core.hookspecs import Embedder

QUERY_TIMEOUT_SECONDS: Final = 5.0  # for the query of a recall without a deadline
QUERY_SHARE: Final = 0.5  # of the time left; ranking by words needs the rest


class RemoteEmbedder(ABC):
    """An embedder whose texts leave this machine, and may cost money."""

    @abstractmethod
    def embed_query(self, text: str, seconds: float) -> Sequence[float]:
        """Return the vector of a query by one attempt within so many seconds.

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
        """Return the vector of a query, which some models tell from a stored text by a prompt."""


def encode_query(embedder: Embedder, text: str, until: float | None) -> Sequence[float]:
    """Return the vector of a recall's query.

    Args:
        until: the recall's deadline, on the clock of ``time.monotonic()``.

    Raises:
        EmbeddingUnavailable: there is none in time, from an endpoint or a model that is only being
            loaded; the recall goes on by words.
    """
    left = QUERY_TIMEOUT_SECONDS if until is None else QUERY_SHARE * (until - time.monotonic())
    if left <= 0 and (isinstance(embedder, RemoteEmbedder) or embedder.name not in _loaded):
        raise EmbeddingUnavailable("no time is left for the query's vector")
    if isinstance(embedder, RemoteEmbedder):
        return embedder.embed_query(text, min(left, QUERY_TIMEOUT_SECONDS))
    if until is None or embedder.name in _loaded:
        return _encode_locally(embedder, text)
    # Its first text loads a model, which on a busy machine outlasts a prompt's deadline.
    future = _loaders.submit(lambda: _encode_locally(embedder, text), line=embedder.name)
    if not wait([future], left).done:
        raise EmbeddingUnavailable("the model is still being loaded")
    return future.result()


def _encode_locally(embedder: Embedder, text: str) -> Sequence[float]:
    if isinstance(embedder, SlowEmbedder):
        vector = embedder.encode_query(text)
    else:
        vector = embedder.encode([text])[0]
    _loaded.add(embedder.name)
    return vector


_loaded: Final[set[str]] = set()  # the names of the models that have embedded a query
_loaders: Final = WorkerPool("memtier-model", max_jobs=8)
