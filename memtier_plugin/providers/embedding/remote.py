"""Embed texts by a model of an OpenAI-compatible endpoint.

Stored texts are embedded in the background only. A recall requests just its query's vector, once,
within a share of the recall's deadline.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

from memtier_plugin.core.errors import EmbeddingUnavailable, EndpointError, EndpointRefused
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.providers.endpoint import EmbeddingReply, EndpointClient

BATCH_TEXTS: Final = 32  # of one request; small servers accept no more
BATCH_CHARS: Final = 64_000
MAX_TEXT_CHARS: Final = 8_000  # of one text; few models read more
REST_SECONDS: Final = 15.0  # after a failure, so that not every query waits for a timeout
PROBE_TEXT: Final = "The lighthouse keeper counted seven grey herons before breakfast."

_MIN_HALVED_CHARS: Final = 100  # if even a shorter text is refused, its length is not the reason
_MAX_CACHED_QUERIES: Final = 64  # the same queries recur


class EndpointEmbedder:
    """A `RemoteEmbedder` over an endpoint's model; safe to use from many threads at once."""

    def __init__(self, title: str, endpoint: Endpoint, model: str) -> None:
        self.endpoint = endpoint
        self.model = model
        # Another address is another vector space: two servers may use one name for different
        # models.
        address = sha256(f"{endpoint.base_url.rstrip('/')} {model}".encode()).hexdigest()
        self.name = f"{title}/{model}-{address[:8]}"
        self._client = EndpointClient(endpoint)
        self._length: int | None = None
        self._resting_until = 0.0
        self._failure = ""
        self._queries: dict[str, Sequence[float]] = {}

    @property
    def dimensions(self) -> int:
        """The length of every vector; asks the endpoint if unknown.

        Raises:
            EndpointError: the endpoint returns no vector.
        """
        if self._length is None:
            self.embed([PROBE_TEXT])
        assert self._length is not None  # `embed` sets it, or raises
        return self._length

    def expect_dimensions(self, dimensions: int | None) -> None:
        """Require the length of the vectors already stored."""
        self._length = dimensions or self._length

    def cost(self, tokens: int) -> float:
        """Return the cost of tokens, in the currency of the endpoint's price."""
        return tokens * self.endpoint.price_per_million_tokens / 1e6

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector for each text (raises EndpointError)."""
        return self.embed(texts).vectors

    def embed(self, texts: Sequence[str]) -> EmbeddingReply:
        """Return a vector for each text, of zeros for one that the model refuses.

        A text that is too long for the model is truncated.

        Raises:
            EndpointError: there is no answer, or one with vectors of another length.
        """
        vectors: list[Sequence[float]] = []
        tokens = 0
        for batch in _batches([text[:MAX_TEXT_CHARS] or " " for text in texts]):
            reply = self._embed(batch)
            vectors += reply.vectors
            tokens += reply.tokens
        return EmbeddingReply(vectors, tokens)

    def _embed(self, texts: Sequence[str]) -> EmbeddingReply:
        try:
            reply = self._client.embed(self.model, texts)
        except EndpointRefused:
            return self._embed_refused(texts)
        return self._check_length(reply)

    def _embed_refused(self, texts: Sequence[str]) -> EmbeddingReply:
        """Embed a refused batch in halves, and the first half of a refused text."""
        if len(texts) > 1:
            middle = len(texts) // 2
            first, second = self._embed(texts[:middle]), self._embed(texts[middle:])
            return EmbeddingReply([*first.vectors, *second.vectors], first.tokens + second.tokens)
        [text] = texts
        if len(text) > _MIN_HALVED_CHARS:
            return self._embed([text[: len(text) // 2]])
        # Raises if the endpoint refuses any text.
        probe = self._check_length(self._client.embed(self.model, [PROBE_TEXT]))
        return EmbeddingReply([[0.0] * len(probe.vectors[0])], probe.tokens)

    def _check_length(self, reply: EmbeddingReply) -> EmbeddingReply:
        length = len(reply.vectors[0])
        if self._length is None:
            self._length = length
        if length != self._length:
            raise EndpointError(
                f"the endpoint {self.endpoint.base_url} now returns vectors of {length} dimensions "
                f"for {self.model!r} instead of {self._length}: it serves a different model under "
                "that name; set embedding.model to one that does not change"
            )
        return reply

    def warm_up(self) -> None:
        """Open the client, which takes longer than most requests (raises EndpointError)."""
        self._client.warm_up()

    def embed_query(self, text: str, seconds: float) -> Sequence[float]:
        """Return the vector of a query, in one attempt within ``seconds``.

        Raises:
            EmbeddingUnavailable: the attempt failed, or a recent one did.
        """
        text = text[:MAX_TEXT_CHARS]
        if (cached := self._queries.get(text)) is not None:
            return cached
        if time.monotonic() < self._resting_until:
            raise EmbeddingUnavailable(self._failure)
        try:
            reply = self._client.embed(self.model, [text], attempts=1, seconds=seconds)
            [vector] = self._check_length(reply).vectors
        except EndpointError as error:
            self._failure = str(error)
            self._resting_until = time.monotonic() + REST_SECONDS
            raise EmbeddingUnavailable(self._failure) from error
        self._queries[text] = vector
        for oldest in list(self._queries)[:-_MAX_CACHED_QUERIES]:
            self._queries.pop(oldest, None)
        return vector


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Split texts into requests of limited count and size."""
    batch: list[str] = []
    room = BATCH_CHARS
    for text in texts:
        if batch and (len(batch) == BATCH_TEXTS or len(text) > room):
            yield batch
            batch, room = [], BATCH_CHARS
        batch.append(text)
        room -= len(text)
    if batch:
        yield batch
