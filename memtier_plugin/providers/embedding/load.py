"""Load the configured embedding model, embed texts with it, and compare vectors."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from memtier_plugin.core.concurrency import WorkerPool
from memtier_plugin.core.errors import EmbeddingUnavailable, SettingsError
from memtier_plugin.core.settings.schema import ENDPOINT_PREFIX, Endpoint, Settings
from memtier_plugin.providers.embedding.static import (
    MODEL_FILES,
    Model2VecEmbedder,
    ShippedEmbedder,
)

if TYPE_CHECKING:
    from memtier_plugin.core.hookspecs import Embedder

# -- Find the model: shipped, encoder, folder, hub or endpoint

_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class UnavailableEmbedder:
    """A placeholder for a configured model that cannot be loaded: recalls use words only."""

    name: str
    reason: str
    dimensions: int = 0

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Raise EmbeddingUnavailable."""
        raise EmbeddingUnavailable(self.reason)


def configured_embedder(settings: Settings) -> Embedder | None:
    """Return the configured embedder; an unavailable one raises when it is used."""
    name = settings.embedding.model
    try:
        return load_embedder(name, settings.endpoints)
    except SettingsError as error:
        return UnavailableEmbedder(name, str(error))


def load_embedder(
    name: str | None = None, endpoints: Mapping[str, Endpoint] | None = None
) -> Embedder | None:
    """Return an embedder by name; files are read, or the endpoint asked, at the first text.

    Args:
        name: None or "default" for the shipped model, "none" for no vectors at all, "minilm" for
            the encoder all-MiniLM-L6-v2, "endpoint:NAME/MODEL" for a model of a configured
            endpoint, else a folder with a model2vec model or a sentence encoder, or the name of
            one on the Hugging Face hub. A model of the hub is downloaded once, here; a cached one
            is used without the network.
        endpoints: the configured endpoints by name.

    Raises:
        SettingsError: there is no such model, its files are of another kind, or an encoder's
            packages are not installed.
    """
    if name == "none":
        return None
    if name in (None, "default"):
        return _shipped()
    if name == "minilm":
        from memtier_plugin.providers.embedding.encoder import find_minilm

        return find_minilm()
    if name.startswith(ENDPOINT_PREFIX):
        from memtier_plugin.providers.embedding.remote import EndpointEmbedder
        from memtier_plugin.providers.endpoint import resolve_model

        return EndpointEmbedder(*resolve_model(name, endpoints or {}, "embedding.model"))
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _load_folder(folder)
    if _HUB_NAME.fullmatch(name):
        return _load_folder(_fetch_from_hub(name), name.partition("/")[2])
    raise SettingsError(
        f"no embedding model {name!r}: expected 'default', 'minilm', 'none', a folder with a"
        " model2vec model or a sentence encoder, a hub name such as 'minishlab/potion-base-8M', or"
        " 'endpoint:NAME/MODEL'"
    )


def _load_folder(folder: Path, title: str | None = None) -> Embedder:
    """Return the static model in a folder, or else its encoder."""
    try:
        return Model2VecEmbedder(folder, title)
    except SettingsError:
        from memtier_plugin.providers.embedding.encoder import find_encoder

        encoder = find_encoder(folder, title)
        if encoder is None:
            raise
        return encoder


@cache
def _shipped() -> ShippedEmbedder:
    """Return the process's shipped model, cached: loading it takes as long as several recalls."""
    return ShippedEmbedder()


def _fetch_from_hub(name: str) -> Path:
    """Return the folder of a model in the hub's cache, downloading it if missing."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    from memtier_plugin.providers.embedding.encoder import ENCODER_FILES

    files = [*MODEL_FILES, *ENCODER_FILES]
    try:
        try:
            return Path(snapshot_download(name, allow_patterns=files, local_files_only=True))
        except LocalEntryNotFoundError:
            return Path(snapshot_download(name, allow_patterns=files))
    except Exception as error:  # the hub's client raises errors of several libraries
        reason = str(error).partition("\n")[0]
        raise SettingsError(
            f"cannot fetch the embedding model {name!r}: {reason}; check its name and the network, "
            "or set `embedding.model: default`"
        ) from error


# -- Embed a recall's query within its deadline, with any kind of model

QUERY_TIMEOUT_SECONDS: Final = 5.0  # for a recall without a deadline
QUERY_SHARE: Final = 0.5  # of the time left; ranking by words needs the rest


@runtime_checkable
class RemoteEmbedder(Protocol):
    """An embedder that sends texts off this machine, and may cost money."""

    def embed_query(self, text: str, seconds: float) -> Sequence[float]:
        """Return the vector of a query, in one attempt within ``seconds``.

        Raises:
            EmbeddingUnavailable: there is none.
        """

    def warm_up(self) -> None:
        """Prepare for the first query (raises EndpointError)."""


@runtime_checkable
class SlowEmbedder(Protocol):
    """An embedder that takes milliseconds for a text."""

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
