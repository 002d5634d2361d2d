"""Load the configured embedding model: shipped, encoder, folder, hub or endpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.errors import EmbeddingUnavailable, SettingsError
from memtier_plugin.core.settings.schema import ENDPOINT_PREFIX, Endpoint, Settings
from memtier_plugin.providers.embedding.static import (
    MODEL_FILES,
    Model2VecEmbedder,
    ShippedEmbedder,
)

if TYPE_CHECKING:
    from memtier_plugin.core.hookspecs import Embedder

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
        raise SettingsError(f"cannot fetch the embedding model {name!r}: {error}") from error
