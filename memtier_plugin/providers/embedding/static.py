"""Texts as vectors: by the static model that ships with MemTier, another one, or an endpoint.

A static model (model2vec; Tulkens and van Dongen 2024) is a table with one vector for each token;
a text's vector is the mean of its tokens', scaled to length one.  The files are read here and not
by model2vec, whose import alone costs more than a recall; the vectors are the same.

A static model's vector is a function of the text alone, whatever else is in the batch: an index
made anew from the same ledgers is equal to the first one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from itertools import chain
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from memtier_plugin.core.errors import EmbeddingUnavailable, SettingsError
from memtier_plugin.core.settings.schema import Endpoint, Settings
from memtier_plugin.providers.embedding.remote import EndpointEmbedder
from memtier_plugin.providers.embedding.token_cache import TokenCache
from memtier_plugin.providers.endpoint import ENDPOINT_PREFIX, resolve_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from memtier_plugin.core.hookspecs import Embedder

SHIPPED_MODEL: Final = Path(__file__).parent / "shipped"

_TOGETHER: Final = 16  # texts whose tokens' rows are read at once: more overflow the caches

_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")
# Where the layouts that model2vec knows keep the table, the tokenizer and the configuration.
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
_DTYPES: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "i1"}
_MOST_HEADER: Final = 100_000_000  # safetensors' own limit


@dataclass(frozen=True, slots=True)
class UnavailableEmbedder:
    """Stands for a model that is configured and cannot be had: words go on without it."""

    name: str
    reason: str
    dimensions: int = 0

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Raise EmbeddingUnavailable."""
        raise EmbeddingUnavailable(self.reason)


def configured_embedder(settings: Settings) -> Embedder | None:
    """Return the embedder that the settings name; one that cannot be had says so when asked."""
    name = settings.embedding.model
    try:
        return load_embedder(name, settings.endpoints)
    except SettingsError as error:
        return UnavailableEmbedder(name, str(error))


def load_embedder(
    name: str | None = None, endpoints: Mapping[str, Endpoint] | None = None
) -> Embedder | None:
    """Return the embedder of a name; its table is read, or its endpoint asked, at the first text.

    Args:
        name: None or "default" for the shipped model, "none" for no vectors at all,
            "endpoint:NAME/MODEL" for a model of a configured endpoint, else a folder with a
            model2vec model or the name of one on the Hugging Face hub. A model of the hub is
            downloaded once, here; what the hub's cache holds is used without asking the network.
        endpoints: what is configured, by name.

    Raises:
        SettingsError: there is no such model, or its files are not a static model's.
    """
    if name == "none":
        return None
    if name in (None, "default"):
        return _shipped()
    if name.startswith(ENDPOINT_PREFIX):
        return EndpointEmbedder(*resolve_model(name, endpoints or {}, "embedding.model"))
    folder = Path(name).expanduser()
    if folder.is_dir():
        return StaticEmbedder(folder)
    if _HUB_NAME.fullmatch(name):
        return StaticEmbedder(_from_hub(name), name.partition("/")[2])
    raise SettingsError(
        f"no embedding model {name!r}: expected 'default', 'none', a folder with a model2vec"
        " model, a hub name such as 'minishlab/potion-base-8M', or 'endpoint:NAME/MODEL'"
    )


class StaticEmbedder:
    """A static model in a folder; safe to use from many threads at once."""

    def __init__(self, folder: Path, title: str | None = None) -> None:
        self.folder = folder
        self._files = _Files.find(folder)
        self._title = title or folder.resolve().name
        self._loaded: _Table | None = None

    @cached_property
    def name(self) -> str:
        """The model's name, dimensions and the beginning of its files' hash."""
        if self.folder == SHIPPED_MODEL:  # a test holds it equal to the hash
            return str(json.loads(self._files.config.read_bytes())["name"])
        return f"{self._title}-{self.dimensions}-{fingerprint_model(self.folder)}"

    @property
    def dimensions(self) -> int:
        """The length of every vector."""
        return self._files.tensors[self._files.key].shape[1]

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a float32 row of length one for each text, of zeros if no token is known."""
        return cast("Sequence[Sequence[float]]", self._table().encode(texts))

    def encode_many(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return, to the bit, what `encode` does, in a third of the time where texts are many."""
        return cast("Sequence[Sequence[float]]", self._table().encode_many(texts))

    def _table(self) -> _Table:
        # Without a lock, which a fork could find held: two threads may read it, to the same end.
        if self._loaded is None:
            self._loaded = _Table.read(self._files)
        return self._loaded


@cache
def _shipped() -> StaticEmbedder:
    """Return the one of this process: to read its tokenizer takes as long as several recalls."""
    return StaticEmbedder(SHIPPED_MODEL)


def fingerprint_model(folder: Path) -> str:
    """Return the first 8 hex digits of the hash of what determines a model's vectors."""
    files = _Files.find(folder)
    digest = sha256(files.table.read_bytes())
    digest.update(files.tokenizer.read_bytes())
    return digest.hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Where a safetensors file holds an array."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class _Files:
    """A model's files, and what stands at the head of its table."""

    table: Path
    tokenizer: Path
    config: Path
    key: str
    tensors: Mapping[str, _Tensor]

    @classmethod
    def find(cls, folder: Path) -> _Files:
        for *names, key in _LAYOUTS:
            table, tokenizer, config = (folder / name for name in names)
            if table.is_file() and tokenizer.is_file() and config.is_file():
                tensors = _tensors(table)
                if key in tensors and len(tensors[key].shape) == 2:
                    return cls(table, tokenizer, config, key, tensors)
        raise SettingsError(
            f"{folder}: expected a model2vec model (model.safetensors with 'embeddings',"
            " tokenizer.json, config.json)"
        )

    def read(self, key: str) -> NDArray[Any] | None:
        """Map an array of the table; only the rows that are used are ever read."""
        import numpy as np

        if key not in self.tensors:
            return None
        at = self.tensors[key]
        return np.asarray(np.memmap(self.table, at.dtype, "r", at.offset, at.shape))


def _tensors(path: Path) -> dict[str, _Tensor]:
    """Read the head of a safetensors file: its length in 8 bytes, then JSON, then the arrays."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            head = json.loads(file.read(min(length, _MOST_HEADER)))
        size = path.stat().st_size - 8 - length
        found = {}
        for name, record in head.items():
            if name == "__metadata__":
                continue
            dtype, shape, (start, end) = (record[k] for k in ("dtype", "shape", "data_offsets"))
            width = int(_DTYPES[dtype][-1])
            if not 0 <= start <= end <= size or end - start != prod(shape) * width:
                raise ValueError(f"{name!r} does not fit the file")
            found[name] = _Tensor(_DTYPES[dtype], tuple(shape), 8 + length + start)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(f"{path}: not a safetensors file of numbers: {error!r}") from error
    return found


@dataclass(frozen=True, slots=True)
class _Table:
    """A model in memory."""

    tokens: TokenCache
    vectors: NDArray[Any]
    weights: NDArray[Any] | None
    rows: NDArray[Any] | None

    @classmethod
    def read(cls, files: _Files) -> _Table:
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_file(str(files.tokenizer))
        except Exception as error:  # the library raises nothing narrower
            raise SettingsError(f"{files.tokenizer}: not a tokenizer: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        vectors, weights, rows = map(files.read, (files.key, "weights", "mapping"))
        assert vectors is not None  # `find` saw it
        entries = len(vectors if rows is None else rows)
        if (words := tokenizer.get_vocab_size()) > entries:
            raise SettingsError(f"{files.table}: {entries} entries for {words} tokens")
        return cls(TokenCache(tokenizer, _unknown(tokenizer)), vectors, weights, rows)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        out = np.zeros((len(texts), self.vectors.shape[1]), np.float32)
        for place, text in enumerate(texts):
            # One by one: a batch would start threads, which a host that forks later trips over.
            if tokens := self.tokens.tokenize(text):
                out[place] = self._rows(tokens).mean(axis=0)
        out /= np.linalg.norm(out, axis=1, keepdims=True) + 1e-32
        return out

    def encode_many(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        out = np.zeros((len(texts), self.vectors.shape[1]), np.float32)
        counts = np.ones((len(texts), 1), np.float32)
        for first in range(0, len(texts), _TOGETHER):
            tokens = [self.tokens.token_ids(text) for text in texts[first : first + _TOGETHER]]
            rows = self._rows([*chain.from_iterable(tokens)])
            if rows.dtype != np.float32:
                return self.encode(texts)  # a mean of doubles is rounded elsewhere
            end = 0
            for place, some in enumerate(tokens, first):
                if some:
                    begin, end = end, end + len(some)
                    np.add.reduce(rows[begin:end], axis=0, out=out[place])
                    counts[place] = len(some)
        out /= counts
        out /= np.linalg.norm(out, axis=1, keepdims=True) + 1e-32
        return out

    def _rows(self, tokens: Sequence[int]) -> NDArray[Any]:
        import numpy as np

        ids = np.array(tokens, np.intp)
        rows = self.vectors[ids if self.rows is None else self.rows[ids]]
        if self.weights is None:
            return rows.astype(np.float32)
        return rows * self.weights[ids].astype(np.float32)[:, None]


def _unknown(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token for what is unknown, which says nothing about a text."""
    model = tokenizer.model
    if hasattr(model, "unk_token"):
        return tokenizer.token_to_id(model.unk_token) if model.unk_token is not None else None
    unknown: int | None = json.loads(tokenizer.to_str())["model"].get("unk_id")
    return unknown


def _from_hub(name: str) -> Path:
    """Return the folder of a model in the hub's cache, downloaded if it is not there yet."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    wanted = sorted({file for *names, _ in _LAYOUTS for file in names})
    try:
        try:
            return Path(snapshot_download(name, allow_patterns=wanted, local_files_only=True))
        except LocalEntryNotFoundError:
            return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # the hub's client raises errors of several libraries
        raise SettingsError(f"cannot fetch the embedding model {name!r}: {error}") from error


def quantise(vectors: Sequence[Sequence[float]]) -> list[bytes]:
    """Return each vector as int8, its largest component at ±127.

    The cosine of two such blobs is that of the vectors to about .001. A vector of zeros stays one:
    it has no direction, and no cosine.
    """
    import numpy as np

    given = np.asarray(vectors, np.float32)
    peaks = np.abs(given).max(axis=1, keepdims=True)
    whole = np.rint(given * (127 / np.where(peaks > 0, peaks, 1))).astype(np.int8)
    return [row.tobytes() for row in whole]


def cosine_similarity(one: bytes, other: bytes) -> float:
    """Return the likeness of two vectors that `quantise` made; 0 if their lengths differ."""
    import numpy as np

    if len(one) != len(other):
        return 0.0
    a, b = (np.frombuffer(blob, np.int8).astype(np.float64) for blob in (one, other))
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-32))
