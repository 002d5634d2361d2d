"""Score texts against a query by a model that reads both together: an endpoint's, or a local one.

A recall asks within a share of its deadline.  A model that failed or was late is skipped for a
while, so that not every prompt waits for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from memtier_papers.true_memory.settings import Rerank
from memtier_plugin.core.errors import (
    EmbeddingUnavailable,
    EndpointError,
    EndpointRefused,
    RerankUnavailable,
    SettingsError,
)
from memtier_plugin.core.settings.schema import ENDPOINT_PREFIX, Endpoint, Settings
from memtier_plugin.providers.embedding.encoder import ONNX_FILES, open_onnx, require_runtime
from memtier_plugin.providers.endpoint import EndpointClient, resolve_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# -- Score pairs of query and text by a cross-encoder with ONNX Runtime (the extra `encoder`)
#
# It reads query and text together, which takes milliseconds per pair: some tens of pairs fit into a
# prompt's deadline with a small model such as ms-marco-MiniLM-L-6-v2.

_MAX_TOKENS: Final = 256  # of a query and a text together


class CrossEncoder:
    """The cross-encoder in a folder, loaded for the first pair."""

    def __init__(self, folder: Path) -> None:
        """Find the model.

        Raises:
            SettingsError: the folder lacks an ONNX model or a tokenizer, or there is no runtime.
        """
        model = next((folder / name for name in ONNX_FILES if (folder / name).is_file()), None)
        self._tokenizer_path = folder / "tokenizer.json"
        if model is None or not self._tokenizer_path.is_file():
            raise SettingsError(
                f"{folder} has no cross-encoder: an ONNX model ({', '.join(ONNX_FILES[-2:])}) and "
                "tokenizer.json"
            )
        require_runtime()
        self._model = model
        self._loaded: tuple[Any, Any] | None = None

    def score(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        """Return the logit of each text, pair by pair on one thread.

        Raises:
            RerankUnavailable: not all pairs were scored within ``seconds``, or the model cannot be
                loaded.
        """
        until = time.monotonic() + seconds
        self.warm_up()
        scores: list[float] = []
        for text in texts:
            if time.monotonic() > until:
                raise RerankUnavailable(
                    f"{len(scores)} of {len(texts)} texts were scored within {seconds:.2g} s"
                )
            scores.append(self._score(query, text))
        return scores

    def warm_up(self) -> None:
        """Load the model (raises RerankUnavailable)."""
        if self._loaded is None:  # at worst two threads load the same model
            try:
                self._loaded = open_onnx(self._model, self._tokenizer_path, _MAX_TOKENS)
            except EmbeddingUnavailable as error:
                raise RerankUnavailable(str(error)) from error

    def _score(self, query: str, text: str) -> float:
        import numpy as np

        assert self._loaded is not None  # `warm_up` sets it, or raises
        session, tokenizer = self._loaded
        pair = [part.encode("utf-8", "ignore").decode() for part in (query, text)]
        tokens = tokenizer.encode(*pair)
        tensors = {
            "input_ids": tokens.ids,
            "attention_mask": tokens.attention_mask,
            "token_type_ids": tokens.type_ids,
        }
        names = {value.name for value in session.get_inputs()}
        inputs = {k: np.array([v], np.int64) for k, v in tensors.items() if k in names}
        output: NDArray[np.float32] = session.run(None, inputs)[0].reshape(-1)
        # One logit, or the two of the classes "irrelevant" and "relevant".
        return float(output[0] if output.size == 1 else output[-1] - output[0])


MAX_TEXT_CHARS: Final = 2_000  # of the query or one text; cross-encoders read some 512 tokens
REST_SECONDS: Final = 15.0  # after a failure


class RerankModel(Protocol):
    """A model that scores texts against a query."""

    def score(self, query: str, texts: Sequence[str], seconds: float) -> Sequence[float]:
        """Return one number per text, higher for more relevant ones.

        Raises:
            RerankUnavailable: there are no scores in time.
        """

    def warm_up(self) -> None:
        """Prepare for the first query (raises RerankUnavailable)."""


# Field names of Cohere and Jina, and of text-embeddings-inference
_FIELDS: Final = ("documents", "texts")


class EndpointReranker:
    """A model behind ``/rerank``; remembers its endpoint's name for the texts field."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._client = EndpointClient(endpoint)
        self._model = model
        self._fields: tuple[str, ...] = _FIELDS

    def score(self, query: str, texts: Sequence[str], seconds: float) -> Sequence[float]:
        """Ask once, or once with each field name; see `RerankModel.score`."""
        until = time.monotonic() + seconds
        for name in self._fields:
            body = {"model": self._model, "query": query, name: [*texts]}
            try:
                scores = self._request(body, len(texts), until - time.monotonic())
            except EndpointError as error:
                if not isinstance(error, EndpointRefused) or name == self._fields[-1]:
                    raise RerankUnavailable(str(error)) from error
            else:
                self._fields = (name,)
                return scores
        raise AssertionError("the last field returns or raises")

    def _request(self, body: Mapping[str, Any], count: int, seconds: float) -> list[float]:
        def create(client: Any, limit: float) -> list[float]:
            options = {"timeout": limit}
            answer = client.post("/rerank", cast_to=object, body=body, options=options)
            return _read_scores(answer, count)

        return self._client.request(create, seconds=seconds)

    def warm_up(self) -> None:
        """Open the client, which takes longer than many requests."""
        try:
            self._client.warm_up()
        except EndpointError as error:
            raise RerankUnavailable(str(error)) from error


def _read_scores(answer: Any, count: int) -> list[float]:
    """Return the scores of an answer in the order of the texts, checking that each has one."""
    rows = answer["results"] if isinstance(answer, Mapping) else answer
    name = "relevance_score" if rows and "relevance_score" in rows[0] else "score"
    scores = {int(row["index"]): float(row[name]) for row in rows}
    if sorted(scores) != [*range(count)] or not all(map(math.isfinite, scores.values())):
        raise ValueError(f"{len(scores)} scores for {count} texts, or one that is no number")
    return [scores[index] for index in range(count)]


class Reranker:
    """A model that is skipped for a while after a failure; thread-safe."""

    def __init__(self, name: str, model: RerankModel) -> None:
        self.name = name
        self._model = model
        self._resting_until = 0.0
        self._failure = ""

    def relevances(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        """Return the relevance of each text, in [0, 1].

        Raises:
            RerankUnavailable: there is no answer within ``seconds``, or a recent attempt failed.
        """
        if time.monotonic() < self._resting_until:
            raise RerankUnavailable(self._failure)
        if seconds <= 0:
            raise RerankUnavailable("no time was left")
        try:
            cut = [text[:MAX_TEXT_CHARS] for text in (query, *texts)]
            scores = self._model.score(cut[0], cut[1:], seconds)
        except RerankUnavailable as error:
            self._failure = str(error)
            self._resting_until = time.monotonic() + REST_SECONDS
            raise
        return to_relevances(scores)

    def warm_up(self) -> None:
        """Load the model, or open its client (raises RerankUnavailable)."""
        self._model.warm_up()


def to_relevances(scores: Sequence[float]) -> list[float]:
    """Map scores to [0, 1]: unchanged if all lie within, else as logits."""
    if all(0 <= score <= 1 for score in scores):
        return [*scores]
    return [_sigmoid(score) for score in scores]


def _sigmoid(score: float) -> float:
    if score >= 0:
        return 1.0 / (1.0 + math.exp(-min(score, 700.0)))
    power = math.exp(max(score, -700.0))
    return power / (1.0 + power)


def configured_reranker(settings: Settings) -> Reranker | None:
    """Return the configured reranker; None for "none".

    Raises:
        SettingsError: no such endpoint is configured, the folder has no cross-encoder, or ONNX
            Runtime is not installed.
    """
    rerank = settings.of(Rerank)
    return find_reranker(rerank.model, settings.endpoints) if rerank.is_on else None


def find_reranker(name: str, endpoints: Mapping[str, Endpoint]) -> Reranker:
    """Return a reranker by name: "endpoint:NAME/MODEL" or the folder of an ONNX cross-encoder.

    Raises:
        SettingsError: see `configured_reranker`.
    """
    if name.startswith(ENDPOINT_PREFIX):
        title, endpoint, model = resolve_model(name, endpoints, "rerank.model")
        return _endpoint_reranker(f"{title}/{model}", endpoint, model)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise SettingsError(
            f"rerank.model is {name!r}: expected 'none', 'endpoint:NAME/MODEL' or the folder of a"
            " cross-encoder (an ONNX model with its tokenizer.json)"
        )
    return _folder_reranker(folder.resolve())


@lru_cache(maxsize=8)
def _endpoint_reranker(name: str, endpoint: Endpoint, model: str) -> Reranker:
    return Reranker(name, EndpointReranker(endpoint, model))


@lru_cache(maxsize=2)  # each is loaded once per process
def _folder_reranker(folder: Path) -> Reranker:
    return Reranker(folder.name, CrossEncoder(folder))
