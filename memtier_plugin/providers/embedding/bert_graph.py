"""Turn a BERT sentence encoder's weights (safetensors) into an ONNX model with int8 matrices.

Every matrix is stored as int8 with a scale for each column (for the word vectors, each row);
activations are quantised as they come (ONNX Runtime's `DynamicQuantizeMatMul`).  Mean pooling and
scaling to length one are part of the graph.  It takes one text at a time: quantised in a batch, the
vector of a text would depend on the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.providers.embedding.onnx_writer import OnnxGraph

_WORD_VECTORS: Final = "embeddings.word_embeddings.weight"

# Of weights, not 127: the products of two pairs fit into 16 bits, on processors without VNNI too.
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
        # All of one text is of type 0, whose vector is added to that of each position.
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
