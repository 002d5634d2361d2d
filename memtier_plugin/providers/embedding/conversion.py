"""Make embedding models: an int8 ONNX encoder from its weights, a static one by distilling."""

from __future__ import annotations

import json
import logging
import os
import shutil
import struct
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.errors import SettingsError, Unsupported
from memtier_plugin.core.installation import install_command
from memtier_plugin.core.records import Entry
from memtier_plugin.providers.embedding.static import Model2VecEmbedder
from memtier_plugin.text.phrases import is_quotable

# -- Serialise an ONNX model: the part of its protobuf format that an encoder needs
#
# The package `onnx` does this and much more, at 60 MB.  Field numbers are those of ``onnx.proto``
# (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).

Attribute = int | float | str

_IR_VERSION: Final = 9
_OPERATORS: Final = (("", 20), ("com.microsoft", 1))  # operator sets with their versions
_TYPES: Final = {"float32": 1, "int8": 3, "int64": 7}  # TensorProto.DataType
_VARINT, _BYTES, _FIXED32 = 0, 2, 5  # protobuf's wire types


@dataclass(slots=True)
class OnnxGraph:
    """A graph that is built node by node; tensors are referenced by name."""

    _nodes: list[bytes] = field(default_factory=list)
    _constants: dict[str, bytes] = field(default_factory=dict)

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Add a constant tensor and return its name."""
        message = b"".join(_varint_field(1, size) for size in values.shape)
        message += _varint_field(2, _TYPES[values.dtype.name]) + _text_field(8, name)
        self._constants[name] = message + _bytes_field(9, np.ascontiguousarray(values).tobytes())
        return name

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: str | Sequence[str],
        domain: str = "",
        **attributes: Attribute,
    ) -> str:
        """Add an operator and return the name of its first output."""
        names = [outputs] if isinstance(outputs, str) else [*outputs]
        message = b"".join(_text_field(1, name) for name in inputs)
        message += b"".join(_text_field(2, name) for name in names)
        message += _text_field(3, names[0]) + _text_field(4, operator)
        message += b"".join(_bytes_field(5, _attribute(*item)) for item in attributes.items())
        self._nodes.append(message + (_text_field(7, domain) if domain else b""))
        return names[0]

    def to_bytes(
        self,
        input_name: str,
        input_shape: Sequence[int | str],
        output_name: str,
        output_shape: Sequence[int | str],
    ) -> bytes:
        """Return the model, with an int64 input and a float32 output."""
        graph = b"".join(_bytes_field(1, node) for node in self._nodes) + _text_field(2, "encoder")
        graph += b"".join(_bytes_field(5, tensor) for tensor in self._constants.values())
        graph += _bytes_field(11, _value(input_name, _TYPES["int64"], input_shape))
        graph += _bytes_field(12, _value(output_name, _TYPES["float32"], output_shape))
        sets = b"".join(
            _bytes_field(8, _text_field(1, domain) + _varint_field(2, version))
            for domain, version in _OPERATORS
        )
        head = _varint_field(1, _IR_VERSION) + _text_field(2, "memtier")
        return head + _bytes_field(7, graph) + sets


def _attribute(name: str, value: Attribute) -> bytes:
    message = _text_field(1, name)
    if isinstance(value, float):
        return message + _key(2, _FIXED32) + struct.pack("<f", value) + _varint_field(20, 1)
    if isinstance(value, str):
        return message + _text_field(4, value) + _varint_field(20, 3)
    return message + _varint_field(3, value) + _varint_field(20, 2)


def _value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    dims = b"".join(
        _bytes_field(1, _text_field(2, size) if isinstance(size, str) else _varint_field(1, size))
        for size in shape
    )
    tensor = _varint_field(1, kind) + _bytes_field(2, dims)
    return _text_field(1, name) + _bytes_field(2, _bytes_field(1, tensor))


def _varint_field(number: int, value: int) -> bytes:
    return _key(number, _VARINT) + _varint(value & (1 << 64) - 1)


def _text_field(number: int, text: str) -> bytes:
    return _bytes_field(number, text.encode())


def _bytes_field(number: int, data: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(data)) + data


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


# -- Turn a BERT sentence encoder's weights (safetensors) into an ONNX model with int8 matrices
#
# Every matrix is stored as int8 with a scale for each column (for the word vectors, each row);
# activations are quantised as they come (ONNX Runtime's `DynamicQuantizeMatMul`).  Mean pooling and
# scaling to length one are part of the graph.  It takes one text at a time: quantised in a batch,
# the vector of a text would depend on the others.

_WORD_VECTORS: Final = "embeddings.word_embeddings.weight"

# Of weights, not 127: two products then sum to 16 bits, even on processors without VNNI.
_MAX_WEIGHT: Final = 63
_MAX_WORD: Final = 127
_MICROSOFT: Final = "com.microsoft"


class _Config(NamedTuple):
    hidden: int
    layers: int
    heads: int
    epsilon: float


def build_bert(folder: Path) -> bytes:
    """Return an ONNX model: ``input_ids`` (1, n) int64 -> ``vector`` (1, d) float32.

    Raises:
        SettingsError: the folder holds no BERT model.
    """
    from safetensors import SafetensorError, safe_open

    try:
        config = _read_config(folder)
        with safe_open(str(folder / "model.safetensors"), "numpy") as tensors:
            weights = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
        return _Builder(weights, config).build()
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise SettingsError(f"{folder}: not a BERT sentence encoder: {error!r}") from error


def _read_config(folder: Path) -> _Config:
    config = json.loads((folder / "config.json").read_bytes())
    kind, activation = config.get("model_type"), config.get("hidden_act", "gelu")
    if kind != "bert" or activation != "gelu":
        raise ValueError(f"model_type {kind!r} with {activation!r}, expected 'bert' with 'gelu'")
    return _Config(
        config["hidden_size"],
        config["num_hidden_layers"],
        config["num_attention_heads"],
        float(config.get("layer_norm_eps", 1e-12)),
    )


class _Builder:
    def __init__(self, weights: dict[str, NDArray[Any]], config: _Config) -> None:
        self._weights = {
            name.removeprefix("bert."): tensor.astype(np.float32)
            for name, tensor in weights.items()
            if tensor.dtype.kind == "f"
        }
        self._config = config
        self._graph = OnnxGraph()

    def build(self) -> bytes:
        state = self._embed()
        for layer in range(self._config.layers):
            state = self._layer(f"encoder.layer.{layer}", state)
        graph = self._graph
        axes = graph.constant("pooled_axes", np.array([1], np.int64))
        pooled = graph.node("ReduceMean", [state, axes], "pooled", keepdims=0)
        graph.node("LpNormalization", [pooled], "vector", axis=1, p=2)
        return graph.to_bytes("input_ids", [1, "n"], "vector", [1, self._config.hidden])

    def _embed(self) -> str:
        graph = self._graph
        table = self._weights[_WORD_VECTORS]
        scales = np.abs(table).max(axis=1, keepdims=True) / _MAX_WORD + 1e-12
        rows = graph.constant("words", np.rint(table / scales).astype(np.int8))
        sizes = graph.constant("word_scales", scales.astype(np.float32))
        rounded = graph.node("Gather", [rows, "input_ids"], "word_rows")
        rounded = graph.node("Cast", [rounded], "word_floats", to=1)
        size = graph.node("Gather", [sizes, "input_ids"], "word_sizes")
        words = graph.node("Mul", [rounded, size], "word_vectors")
        # All tokens of a single text have type 0, whose vector is added at each position.
        positions = self._weights["embeddings.position_embeddings.weight"]
        positions = positions + self._weights["embeddings.token_type_embeddings.weight"][0]
        table_name = graph.constant("positions", positions)
        zero = graph.constant("zero", np.array([0], np.int64))
        length = graph.node("Shape", ["input_ids"], "length", start=1)
        places = graph.node("Slice", [table_name, zero, length, zero], "places")
        return self._normalise(words, places, "embeddings.LayerNorm")

    def _layer(self, name: str, state: str) -> str:
        graph, attention = self._graph, f"{name}.attention"
        parts = [f"{attention}.self.{part}" for part in ("query", "key", "value")]
        weight = np.concatenate([self._weights[f"{part}.weight"] for part in parts])
        bias = np.concatenate([self._weights[f"{part}.bias"] for part in parts])
        together = self._multiply(state, f"{attention}.qkv", weight, bias)
        graph.node("Split", [together], parts, axis=2, num_outputs=3)
        heads = self._config.heads
        seen = graph.node(
            "MultiHeadAttention", parts, f"{attention}.seen", _MICROSOFT, num_heads=heads
        )
        seen = self._dense(seen, f"{attention}.output.dense")
        state = self._normalise(seen, state, f"{attention}.output.LayerNorm")
        inner = self._dense(state, f"{name}.intermediate.dense")
        inner = graph.node("Gelu", [inner], f"{name}.gelu")
        outer = self._dense(inner, f"{name}.output.dense")
        return self._normalise(outer, state, f"{name}.output.LayerNorm")

    def _dense(self, state: str, name: str) -> str:
        return self._multiply(
            state, name, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        )

    def _multiply(
        self, state: str, name: str, weight: NDArray[np.float32], bias: NDArray[np.float32]
    ) -> str:
        """Add a linear layer of weight (out, in)."""
        graph = self._graph
        scales = (np.abs(weight).max(axis=1) / _MAX_WEIGHT + 1e-12).astype(np.float32)
        columns = np.rint(weight / scales[:, None]).astype(np.int8).T
        inputs = [
            state,
            graph.constant(f"{name}.int8", columns),
            graph.constant(f"{name}.scales", scales),
            "",
            graph.constant(f"{name}.bias", bias),
        ]
        return graph.node("DynamicQuantizeMatMul", inputs, f"{name}.out", _MICROSOFT)

    def _normalise(self, state: str, residual: str, name: str) -> str:
        graph = self._graph
        total = graph.node("Add", [state, residual], f"{name}.sum")
        scale = graph.constant(f"{name}.scale", self._weights[f"{name}.weight"])
        shift = graph.constant(f"{name}.shift", self._weights[f"{name}.bias"])
        return graph.node(
            "LayerNormalization",
            [total, scale, shift],
            f"{name}.out",
            axis=-1,
            epsilon=self._config.epsilon,
        )


# -- Distil a static embedding model from a sentence encoder with model2vec (the extra `distill`)
#
# Every token of the encoder's tokenizer, and every word given, is embedded once by the encoder; the
# principal components of these vectors make the static model (model2vec; Tulkens and van Dongen
# 2024). The encoder is not needed afterwards.

DEFAULT_DIMENSIONS: Final = 256  # model2vec's default
_PROBE: Final = "A distilled model embeds this sentence."


@dataclass(frozen=True, slots=True)
class DistilledModel:
    """A written model: its name in an index, and its size."""

    folder: Path
    name: str
    dimensions: int
    tokens: int
    added_words: int
    size: int


def distill_model(
    teacher: str, folder: Path, words: Sequence[str] = (), dimensions: int = DEFAULT_DIMENSIONS
) -> DistilledModel:
    """Write a static model of an encoder to a new folder, with progress on stderr.

    Args:
        teacher: a folder with a transformers model, or the name of one on the Hugging Face hub.
        words: words that get a vector of their own if the teacher's tokenizer splits them.
        dimensions: of the vectors; at most the teacher's.

    Raises:
        Unsupported: the extra `distill` is not installed.
        SettingsError: the folder exists, or the teacher cannot be loaded or distilled; nothing is
            left in the folder.
    """
    if os.path.lexists(folder):
        raise SettingsError(f"{folder} exists; name a new folder for the model")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(
        tempfile.mkdtemp(suffix=".part", prefix=f".{folder.name}.", dir=folder.parent)
    )
    try:
        model, added_words = _distill(teacher, words, dimensions)
        model.save_pretrained(unfinished)
        Model2VecEmbedder(unfinished).encode([_PROBE])  # raises if it cannot be loaded
        size = _sync_files(unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    written = Model2VecEmbedder(folder)
    return DistilledModel(
        folder, written.name, written.dimensions, len(model.tokens), added_words, size
    )


def _distill(teacher: str, words: Sequence[str], dimensions: int) -> tuple[Any, int]:
    """Return model2vec's model and how many words got a token of their own."""
    try:
        from model2vec.distill import distill_from_model
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise Unsupported(
            f"distilling needs more packages ({error}): run `{install_command('memtier[distill]')}`"
            f"; to do without GPU libraries, first `{install_command('torch')} --index-url "
            "https://download.pytorch.org/whl/cpu`"
        ) from error

    logging.getLogger("model2vec").setLevel(logging.ERROR)  # it logs every known word
    try:
        # Code that ships with a model is never run: trust_remote_code stays off.
        encoder = AutoModel.from_pretrained(teacher)
        tokenizer = AutoTokenizer.from_pretrained(teacher, use_fast=True)
        if dimensions > encoder.config.hidden_size:
            raise ValueError(f"its vectors have only {encoder.config.hidden_size} dimensions")
        split = [word for word in words if len(tokenizer.tokenize(word)) > 1]
        model = distill_from_model(encoder, tokenizer, vocabulary=split, pca_dims=dimensions)
    except (OSError, ValueError, RuntimeError) as error:
        raise SettingsError(f"cannot distil {teacher!r}: {error}") from error
    return model, len(split)


def _sync_files(folder: Path) -> int:
    """Flush a folder's files to disk and return their size in bytes."""
    size = 0
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
            size += path.stat().st_size
    return size


# -- Collect the words that a project shares: a vocabulary for its own embedding model
#
# Whoever has a model's files can read its vocabulary, so a word must not betray what one person
# said once: it counts only if it recurs in several sessions and, if the project has several people
# or agents, is used by at least two of them.

MIN_SESSIONS: Final = 3
MIN_PEOPLE: Final = 2  # pairs of agent and sender, if the project has that many
MAX_WORDS: Final = 5_000

# Letters only: no number, key or identifier. Scripts without spaces are excluded.
_WORD: Final = regex.compile(
    r"(?<![\p{L}\p{M}\p{N}_])[[\p{L}\p{M}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]]{3,30}"
    r"(?![\p{L}\p{M}\p{N}_])",
    regex.V1,
)


@dataclass(slots=True)
class _Usage:
    sessions: set[tuple[str, str]] = field(default_factory=set)
    people: set[tuple[str, str | None]] = field(default_factory=set)
    forms: Counter[str] = field(default_factory=Counter)


def collect_shared_words(entries: Iterable[Entry]) -> list[str]:
    """Return words used in at least three sessions and by two people, most frequent first.

    A person is a pair of agent and sender; in a project with only one, that one suffices. Only what
    users and assistants said themselves counts: no tool output, and nothing tainted by it.
    """
    usages: defaultdict[str, _Usage] = defaultdict(_Usage)
    people: set[tuple[str, str | None]] = set()
    for entry in entries:
        if not is_quotable(entry):
            continue
        person = (entry.agent_id, entry.sender)
        people.add(person)
        for word in _WORD.findall(entry.content):
            usage = usages[word.casefold()]
            usage.sessions.add((entry.agent_id, entry.session_id))
            usage.people.add(person)
            usage.forms[word] += 1
    enough = min(MIN_PEOPLE, len(people))
    shared = [
        usage
        for usage in usages.values()
        if len(usage.sessions) >= MIN_SESSIONS and len(usage.people) >= enough
    ]
    shared.sort(key=lambda usage: (-usage.forms.total(), min(usage.forms)))
    return [usage.forms.most_common(1)[0][0] for usage in shared[:MAX_WORDS]]
