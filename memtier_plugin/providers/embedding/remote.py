"""Texts as vectors by a model behind an OpenAI-compatible endpoint.

It is asked for what is stored in the background only, and on the way of a recall for the query
alone, once, within a part of the recall's time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.errors import EmbeddingUnavailable, EndpointError, EndpointRefused
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.providers.endpoint import EmbeddingReply, EndpointClient

if TYPE_CHECKING:
    from memtier_plugin.core.hookspecs import Embedder

BATCH_TEXTS: Final = 32  # of one request; what small servers take
BATCH_CHARS: Final = 64_000
MAX_TEXT_CHARS: Final = 8_000  # of one text that an endpoint is given; few models read more
QUERY_TIMEOUT_SECONDS: Final = (
    5.0  # a recall without a deadline waits for its query's vector so long
)
QUERY_SHARE: Final = 0.5  # of what a deadline leaves; the words need the rest
REST_SECONDS: Final = 15.0  # after a failure queries go without, so that not each one waits for it
PROBE_TEXT: Final = "The lighthouse keeper counted seven grey herons before breakfast."

_SHORTEST: Final = 100  # characters; an endpoint that refuses so few does not mean the length
_REMEMBERED: Final = 64  # vectors of queries, as the same one comes again and again


class EndpointEmbedder:
    """A model of an OpenAI-compatible endpoint; safe to use from many threads at once."""

    def __init__(self, title: str, endpoint: Endpoint, model: str) -> None:
        self.endpoint = endpoint
        self.model = model
        # Another address is another space: who knows what a server calls by the same name.
        address = sha256(f"{endpoint.base_url.rstrip('/')} {model}".encode()).hexdigest()
        self.name = f"{title}/{model}-{address[:8]}"
        self._client = EndpointClient(endpoint)
        self._length: int | None = None
        self._rests_until = 0.0
        self._why = ""
        self._queries: dict[str, Sequence[float]] = {}

    @property
    def dimensions(self) -> int:
        """The length of every vector; the endpoint is asked unless it is known.

        Raises:
            EndpointError: it does not tell.
        """
        if self._length is None:
            self.embed([PROBE_TEXT])
        assert self._length is not None  # `embed` found it, or raised
        return self._length

    def expect_dimensions(self, dimensions: int | None) -> None:
        """Tell the length of the vectors that are stored already."""
        self._length = dimensions or self._length

    def cost(self, tokens: int) -> float:
        """Return what so many tokens cost, in the currency of the endpoint's price."""
        return tokens * self.endpoint.price_per_million_tokens / 1e6

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector for each text (raises EndpointError)."""
        return self.embed(texts).vectors

    def embed(self, texts: Sequence[str]) -> EmbeddingReply:
        """Return a vector for each text, of zeros for one that the model cannot take.

        A text that is too long for the model is given by its beginning.

        Raises:
            EndpointError: there is no answer, or one with vectors of another length.
        """
        vectors: list[Sequence[float]] = []
        tokens = 0
        for batch in _batches([text[:MAX_TEXT_CHARS] or " " for text in texts]):
            found = self._embed(batch)
            vectors += found.vectors
            tokens += found.tokens
        return EmbeddingReply(vectors, tokens)

    def _embed(self, texts: Sequence[str]) -> EmbeddingReply:
        try:
            found = self._client.embed(self.model, texts)
        except EndpointRefused:
            return self._refused(texts)
        return self._checked(found)

    def _refused(self, texts: Sequence[str]) -> EmbeddingReply:
        """Embed what was refused as a whole: in halves, and a single text by its beginning."""
        if len(texts) > 1:
            middle = len(texts) // 2
            first, second = self._embed(texts[:middle]), self._embed(texts[middle:])
            return EmbeddingReply([*first.vectors, *second.vectors], first.tokens + second.tokens)
        [text] = texts
        if len(text) > _SHORTEST:
            return self._embed([text[: len(text) // 2]])
        # Is it this text, or everything?
        probe = self._checked(self._client.embed(self.model, [PROBE_TEXT]))
        return EmbeddingReply([[0.0] * len(probe.vectors[0])], probe.tokens)

    def _checked(self, found: EmbeddingReply) -> EmbeddingReply:
        length = len(found.vectors[0])
        if self._length is None:
            self._length = length
        if length != self._length:
            raise EndpointError(
                f"the endpoint {self.endpoint.base_url} now gives vectors of {length} dimensions "
                f"for {self.model!r}, before of {self._length}: it serves another model by that "
                "name; set embedding.model to one that stays the same"
            )
        return found

    def warm_up(self) -> None:
        """Load what a request needs; it takes longer than most requests (raises EndpointError)."""
        self._client.warm_up()

    def embed_query(self, text: str, seconds: float) -> Sequence[float]:
        """Return the vector of a query within so many seconds, by one attempt.

        Raises:
            EmbeddingUnavailable: there is none in that time, or was none a moment ago.
        """
        text = text[:MAX_TEXT_CHARS]
        if (known := self._queries.get(text)) is not None:
            return known
        if time.monotonic() < self._rests_until:
            raise EmbeddingUnavailable(self._why)
        try:
            found = self._client.embed(self.model, [text], attempts=1, seconds=seconds)
            [vector] = self._checked(found).vectors
        except EndpointError as error:
            self._why = str(error)
            self._rests_until = time.monotonic() + REST_SECONDS
            raise EmbeddingUnavailable(self._why) from error
        self._queries[text] = vector
        for old in list(self._queries)[:-_REMEMBERED]:
            self._queries.pop(old, None)
        return vector


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
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


def encode_query(embedder: Embedder, text: str, until: float | None) -> Sequence[float]:
    """Return the vector of a recall's query.

    Args:
        until: the moment of ``time.monotonic()`` by which the recall has to answer.

    Raises:
        EmbeddingUnavailable: an endpoint gives none in time; the recall goes on by words.
    """
    if not isinstance(embedder, EndpointEmbedder):
        return embedder.encode([text])[0]
    left = QUERY_TIMEOUT_SECONDS if until is None else QUERY_SHARE * (until - time.monotonic())
    if left <= 0:
        raise EmbeddingUnavailable("no time is left for the query's vector")
    return embedder.embed_query(text, min(left, QUERY_TIMEOUT_SECONDS))
