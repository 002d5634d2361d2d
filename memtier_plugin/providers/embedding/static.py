"""Embed texts by static models: the shipped one, or any that model2vec can load.

The shipped model is read without model2vec, whose import takes longer than a recall; a test holds
the vectors equal to those of `model2vec.StaticModel`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.providers.embedding.token_cache import TokenCache, unknown_token
from memtier_plugin.text.languages import is_written_in

if TYPE_CHECKING:
    from memtier_plugin.providers.embedding.token_table import TokenTable

SHIPPED_MODEL: Final = Path(__file__).parent / "shipped"

# The layouts that model2vec knows: table, tokenizer, configuration, and the tensor of the table.
_LAYOUTS: Final = (
    ("model.safetensors", "tokenizer.json", "config.json", "embeddings"),
    (
        "model.safetensors",
        "tokenizer.json",
        "config_sentence_transformers.json",
        "embedding.weight",
    ),
    (
        "0_StaticEmbedding/model.safetensors",
        "0_StaticEmbedding/tokenizer.json",
        "config_sentence_transformers.json",
        "embedding.weight",
    ),
)
MODEL_FILES: Final = tuple(sorted({name for *names, _ in _LAYOUTS for name in names}))


class StaticEmbedder(ABC):
    """Embed texts on this machine, without a network; safe to use from many threads at once.

    Attributes:
        scripts: the Unicode names of the scripts that the model knows; all when None.
    """

    dimensions: int
    scripts: Sequence[str] | None = None

    def __init__(self) -> None:
        self._loaded: TokenTable | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """The model's name, its dimensions and the beginning of its files' hash."""

    @abstractmethod
    def _read(self) -> TokenTable: ...

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a float32 row of length one for each text.

        It has zeros if no token is known, or the text is written in a script that is not.
        """
        return cast("Sequence[Sequence[float]]", self.table().encode(self._readable(texts)))

    def encode_many(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return what `encode` returns, to the bit, in a third of the time where texts are many."""
        return cast("Sequence[Sequence[float]]", self.table().encode_many(self._readable(texts)))

    def _readable(self, texts: Sequence[str]) -> Sequence[str]:
        """Return the texts, empty where they are not written in a script that the model knows."""
        scripts = self.scripts
        if scripts is None:
            return texts
        return [text if is_written_in(text, scripts) else "" for text in texts]

    def table(self) -> TokenTable:
        """Return the model's table, read at the first call."""
        # Without a lock, which a fork could find held: at worst two threads read the same table.
        if self._loaded is None:
            self._loaded = self._read()
        return self._loaded


class ShippedEmbedder(StaticEmbedder):
    """Embed texts by the model that ships with MemTier."""

    def __init__(self) -> None:
        super().__init__()
        config = json.loads((SHIPPED_MODEL / "config.json").read_bytes())
        self._name = str(config["name"])  # a test holds it equal to the hash
        self.dimensions = int(config["hidden_dim"])
        self.scripts = tuple(config["scripts"])

    @property
    def name(self) -> str:
        """The name in the model's configuration."""
        return self._name

    def _read(self) -> TokenTable:
        from safetensors import safe_open
        from tokenizers import Tokenizer

        from memtier_plugin.providers.embedding.token_table import TokenTable

        tokenizer = Tokenizer.from_file(str(SHIPPED_MODEL / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        with safe_open(str(SHIPPED_MODEL / "model.safetensors"), "numpy") as tensors:
            vectors, weights = (tensors.get_tensor(key) for key in ("embeddings", "weights"))
        return TokenTable(TokenCache(tokenizer, unknown_token(tokenizer)), vectors, weights)


class Model2VecEmbedder(StaticEmbedder):
    """Embed texts by a model that model2vec loads from a folder."""

    def __init__(self, folder: Path, title: str | None = None) -> None:
        super().__init__()
        self._folder = folder
        self._title = title or folder.resolve().name
        self.dimensions = _find_files(folder).dimensions

    @cached_property
    def name(self) -> str:
        """The folder's title, the dimensions and the beginning of the files' hash."""
        return f"{self._title}-{self.dimensions}-{fingerprint_model(self._folder)}"

    def _read(self) -> TokenTable:
        import numpy as np
        from model2vec import StaticModel

        from memtier_plugin.providers.embedding.token_table import TokenTable

        try:
            model = StaticModel.from_pretrained(self._folder, force_download=False)
        except Exception as error:  # the tokenizer's parser raises nothing narrower
            raise SettingsError(f"{self._folder}: not a model2vec model: {error}") from error
        vectors, weights, mapping = model.embedding, model.weights, model.token_mapping
        for entries in (weights, mapping):
            if entries is not None and len(entries) < len(model.tokens):
                raise SettingsError(
                    f"{self._folder}: {len(entries)} entries for {len(model.tokens)} tokens"
                )
        if vectors.dtype != np.int8:
            vectors = vectors.astype(np.float32, copy=False)  # means of half floats lose digits
        model.tokenizer.no_truncation()
        return TokenTable(
            TokenCache(model.tokenizer, model.unk_token_id), vectors, weights, mapping
        )


@dataclass(frozen=True, slots=True)
class _ModelFiles:
    table: Path
    tokenizer: Path
    dimensions: int


def _find_files(folder: Path) -> _ModelFiles:
    """Return the files of a model and the dimensions that the head of its table states."""
    from safetensors import SafetensorError, safe_open

    for *names, key in _LAYOUTS:
        table, tokenizer, config = (folder / name for name in names)
        if not (table.is_file() and tokenizer.is_file() and config.is_file()):
            continue
        try:
            with safe_open(str(table), "numpy") as tensors:
                present = key in set(tensors.keys())
                shape: list[int] = tensors.get_slice(key).get_shape() if present else []
        except (SafetensorError, OSError) as error:
            raise SettingsError(f"{table}: not a safetensors file: {error}") from error
        if len(shape) == 2:
            return _ModelFiles(table, tokenizer, shape[1])
    raise SettingsError(
        f"{folder}: expected a model2vec model (model.safetensors with 'embeddings',"
        " tokenizer.json, config.json) or a sentence encoder (tokenizer.json, config.json, and"
        " model.onnx or a BERT model.safetensors)"
    )


def fingerprint_model(folder: Path) -> str:
    """Return the first 8 hex digits of the hash of the files that determine a model's vectors."""
    files = _find_files(folder)
    digest = sha256(files.table.read_bytes())
    digest.update(files.tokenizer.read_bytes())
    return digest.hexdigest()[:8]
