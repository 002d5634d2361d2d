"""Embed texts by static models: the shipped one, or any that model2vec can load.

The vector of a text is the mean of its tokens' vectors, scaled to length one (model2vec; Tulkens
and van Dongen 2024). It depends on that text alone, not on the rest of the batch, so that an index
rebuilt from the same ledgers is identical.

The shipped model is loaded without model2vec, whose import takes longer than a recall; a test
checks that the vectors equal those of `model2vec.StaticModel`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.text.languages import is_written_in
from memtier_plugin.text.tokenizer import LONGEST_CACHED, WordCache

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer


SHIPPED_MODEL: Final = Path(__file__).parent / "shipped"

# The layouts that model2vec knows: table, tokenizer, configuration, and the table's tensor.
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
    """Embeds texts on this machine, without a network; thread-safe.

    Attributes:
        scripts: the Unicode names of the scripts that the model knows; None for all.
    """

    dimensions: int
    scripts: Sequence[str] | None = None

    def __init__(self) -> None:
        self._loaded: TokenTable | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """The model's name, its dimensions and the start of its files' hash."""

    @abstractmethod
    def _read(self) -> TokenTable: ...

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a float32 unit vector for each text.

        It is zero if no token is known, or the text's script is not.
        """
        return cast("Sequence[Sequence[float]]", self.table().encode(self._readable(texts)))

    def encode_many(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return what `encode` returns, bit for bit, in a third of the time for many texts."""
        return cast("Sequence[Sequence[float]]", self.table().encode_many(self._readable(texts)))

    def _readable(self, texts: Sequence[str]) -> Sequence[str]:
        """Return the texts, replacing those in a script unknown to the model by an empty one."""
        scripts = self.scripts
        if scripts is None:
            return texts
        latin = "Latin" in scripts  # as ASCII is
        return [
            text if (latin and text.isascii()) or is_written_in(text, scripts) else ""
            for text in texts
        ]

    def table(self) -> TokenTable:
        """Return the model's table, read at the first call."""
        # Without a lock, which a fork could inherit held: at worst two threads load the same table.
        if self._loaded is None:
            self._loaded = self._read()
        return self._loaded


class ShippedEmbedder(StaticEmbedder):
    """Embeds texts by the model that ships with MemTier."""

    def __init__(self) -> None:
        super().__init__()
        config = json.loads((SHIPPED_MODEL / "config.json").read_bytes())
        self._name = str(config["name"])  # a test compares it with the hash
        self.dimensions = int(config["hidden_dim"])
        self.scripts = tuple(config["scripts"])

    @property
    def name(self) -> str:
        """The name in the model's configuration."""
        return self._name

    def _read(self) -> TokenTable:
        from safetensors import safe_open
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(SHIPPED_MODEL / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        with safe_open(str(SHIPPED_MODEL / "model.safetensors"), "numpy") as tensors:
            vectors, weights = (tensors.get_tensor(key) for key in ("embeddings", "weights"))
        return TokenTable(TokenCache(tokenizer, unknown_token(tokenizer)), vectors, weights)


class Model2VecEmbedder(StaticEmbedder):
    """Embeds texts by a model that model2vec loads from a folder."""

    def __init__(self, folder: Path, title: str | None = None) -> None:
        super().__init__()
        self._folder = folder
        self._title = title or folder.resolve().name
        self.dimensions = _find_files(folder).dimensions

    @cached_property
    def name(self) -> str:
        """The folder's title, the dimensions and the start of the files' hash."""
        return f"{self._title}-{self.dimensions}-{fingerprint_model(self._folder)}"

    def _read(self) -> TokenTable:
        import numpy as np
        from model2vec import StaticModel

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
            vectors = vectors.astype(np.float32, copy=False)  # averages of half floats lose digits
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
    """Return the files of a model, and the dimensions stated in its table's header."""
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


# -- The table of a static model, in memory
#
# Functions import numpy themselves, as its import takes longer than a recall by words.

# Texts whose token vectors are gathered at once: more would overflow the CPU caches
_BATCH_TEXTS: Final = 16


@dataclass(frozen=True, slots=True)
class TokenTable:
    """A static model in memory.

    Shapes: ``vectors`` is (rows, d) int8 or float32; ``weights`` (tokens) float; ``mapping``
    (tokens) maps tokens to rows, None if they are the same.
    """

    tokens: TokenCache
    vectors: NDArray[Any]
    weights: NDArray[Any] | None = None
    mapping: NDArray[Any] | None = None

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the unit vectors of texts, each tokenized as a whole, or zeros without tokens."""
        import numpy as np

        means = np.zeros((len(texts), self.vectors.shape[1]), np.float32)
        for row, text in enumerate(texts):
            # One by one: a batch would start threads, which a fork would lose.
            if ids := self.tokens.tokenize(text):
                means[row] = self._token_vectors(ids).mean(axis=0)
        return _scale_to_one(means)

    def encode_many(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return what `encode` returns, bit for bit, tokenizing each word only once."""
        import numpy as np

        means = np.zeros((len(texts), self.vectors.shape[1]), np.float32)
        counts = np.ones((len(texts), 1), np.float32)
        for first in range(0, len(texts), _BATCH_TEXTS):
            tokens = self.tokens.token_ids_of_each(texts[first : first + _BATCH_TEXTS])
            vectors = self._token_vectors([*chain.from_iterable(tokens)])
            end = 0
            for row, ids in enumerate(tokens, first):
                if ids:
                    begin, end = end, end + len(ids)
                    np.add.reduce(vectors[begin:end], axis=0, out=means[row])
                    counts[row] = len(ids)
        return _scale_to_one(means / counts)

    def _token_vectors(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Return the weighted vectors of tokens: (n) -> (n, d) float32."""
        import numpy as np

        tokens = np.array(ids, np.intp)
        vectors = self.vectors[tokens if self.mapping is None else self.mapping[tokens]]
        if self.weights is None:
            return vectors.astype(np.float32)
        weighted: NDArray[np.float32] = vectors * self.weights[tokens].astype(np.float32)[:, None]
        return weighted


def _scale_to_one(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Divide rows by their length; zero rows stay zero."""
    import numpy as np

    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-32
    return vectors


# -- Tokens: each distinct word is tokenized once
#
# BERT's tokenizer (normalise, split at white space and punctuation, WordPiece) works word by word,
# so the tokens of a text are those of its words, and most words of a text occurred in another one.
# The cache takes a sixth of the tokenizer's time, which dominates a static model's.

_WORD: Final = re.compile(r"[a-z0-9]+|[^a-z0-9\s]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # removed by the normaliser


class TokenCache:
    """Maps each word to the ids of its known tokens, looked up on first use."""

    def __init__(self, tokenizer: Tokenizer, unknown: int | None) -> None:
        self._words = WordCache(self._word_ids)
        self._tokenizer = tokenizer
        self._unknown = unknown
        # Texts that are one token wherever they occur, even inside a word.
        added = tokenizer.get_added_tokens_decoder().values()
        self._added = tuple(token.content.lower() for token in added)
        self._by_word = _splits_by_word(tokenizer)

    def token_ids(self, text: str) -> list[int]:
        """Return the ids of a text's known tokens, using the cache where possible."""
        if self._by_word and text.isascii() and not _CONTROL.search(text):
            lower = text.lower()
            if not any(token in lower for token in self._added):
                return [*self._words.of_all(_WORD.findall(lower))]
        return self.tokenize(text)

    def token_ids_of_each(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the `token_ids` of each text."""
        return [self.token_ids(text) for text in texts]

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text's known tokens, by the tokenizer."""
        clean = text.encode("utf-8", "ignore").decode()  # the tokenizer rejects lone surrogates
        ids = self._tokenizer.encode(clean, add_special_tokens=False).ids
        return [token for token in ids if token != self._unknown]

    def _word_ids(self, word: str) -> Sequence[int]:
        # A word that is a token itself is not split.
        token = self._tokenizer.token_to_id(word) if len(word) <= LONGEST_CACHED else None
        return self.tokenize(word) if token is None or token == self._unknown else (token,)


def _splits_by_word(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer treats each lower-case word separately, like BERT's."""
    from tokenizers import models, normalizers, pre_tokenizers

    normalizer = tokenizer.normalizer
    return (
        isinstance(normalizer, normalizers.BertNormalizer)
        and normalizer.lowercase
        and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and isinstance(tokenizer.model, models.WordPiece)
        and tokenizer.model.max_input_chars_per_word >= LONGEST_CACHED
    )


def unknown_token(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token for unknown words, which carries no information."""
    model = tokenizer.model
    if hasattr(model, "unk_token"):
        return tokenizer.token_to_id(model.unk_token) if model.unk_token is not None else None
    unknown: int | None = json.loads(tokenizer.to_str())["model"].get("unk_id")
    return unknown
