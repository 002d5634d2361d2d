"""A model of two texts: a sentence encoder reads each alone, a small head both together.

The encoder stays as published, so a text's token vectors are made once, whatever it is compared
with; the head is what is trained, on one core in minutes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

PAD: Final = 0
MAX_TOKENS: Final = 64
_KERNELS: Final = torch.linspace(-0.3, 0.9, 9)
_BATCH_TOKENS: Final = 2_048


class Encoder:
    """A BERT encoder of a folder (``config.json``, ``model.safetensors``, ``tokenizer.json``)."""

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        weights = load_file(folder / "model.safetensors")
        self.weights = {name.removeprefix("bert."): tensor for name, tensor in weights.items()}
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> list[Tensor]:
        """Return the unit vectors of each text's tokens: (tokens, hidden), float16."""
        ids = [encoded.ids for encoded in self.tokenizer.encode_batch([*texts])]
        states: list[Tensor] = [torch.empty(0)] * len(ids)
        batch: list[int] = []
        for number in sorted(range(len(ids)), key=lambda n: len(ids[n])):
            if batch and len(ids[number]) * (len(batch) + 1) > _BATCH_TOKENS:
                self._encode(batch, ids, states)
                batch = []
            batch.append(number)
        if batch:
            self._encode(batch, ids, states)
        return states

    def _encode(self, batch: list[int], ids: list[list[int]], states: list[Tensor]) -> None:
        padded, seen = pad([torch.tensor(ids[number]) for number in batch])
        for number, state, kept in zip(batch, self._read(padded, seen), seen, strict=True):
            vectors = functional.normalize(state[kept], dim=1).half()
            states[number] = vectors[1:-1] if len(vectors) > 2 else vectors  # no [CLS], no [SEP]

    def _read(self, ids: Tensor, seen: Tensor) -> Tensor:
        weights = self.weights
        state = weights["embeddings.word_embeddings.weight"][ids]
        state = state + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        state = state + weights["embeddings.token_type_embeddings.weight"][0]
        state = self._norm(state, "embeddings.LayerNorm")
        for number in range(self.config["num_hidden_layers"]):
            state = self._layer(state, seen, f"encoder.layer.{number}")
        return state

    def _layer(self, state: Tensor, seen: Tensor, name: str) -> Tensor:
        rows, count, size = state.shape
        parts = [
            self._dense(state, f"{name}.attention.self.{part}")
            .view(rows, count, self.config["num_attention_heads"], -1)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        ]
        mixed = functional.scaled_dot_product_attention(*parts, attn_mask=seen[:, None, None])
        mixed = self._dense(
            mixed.transpose(1, 2).reshape(rows, count, size), f"{name}.attention.output.dense"
        )
        state = self._norm(state + mixed, f"{name}.attention.output.LayerNorm")
        inner = functional.gelu(self._dense(state, f"{name}.intermediate.dense"))
        outer = self._dense(inner, f"{name}.output.dense")
        return self._norm(state + outer, f"{name}.output.LayerNorm")

    def _dense(self, state: Tensor, name: str) -> Tensor:
        return functional.linear(
            state, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        )

    def _norm(self, state: Tensor, name: str) -> Tensor:
        return functional.layer_norm(
            state,
            state.shape[-1:],
            self.weights[f"{name}.weight"],
            self.weights[f"{name}.bias"],
            self.config["layer_norm_eps"],
        )


def pad(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return rows of different lengths as a tensor (rows, longest, ...), and a mask of what is."""
    longest = max(len(row) for row in rows)
    padded = torch.zeros(len(rows), longest, *rows[0].shape[1:], dtype=rows[0].dtype)
    seen = torch.zeros(len(rows), longest, dtype=torch.bool)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
        seen[number, : len(row)] = True
    return padded, seen


class PairHead(nn.Module):
    """Token vectors of two texts -> logits.

    Each token of the first text is matched with those of the second, in the encoder's own space and
    in a learned one: its best match, that of the third matched worst, and how many match about how
    well (kernels, as in K-NRM).  Tokens count by a learned weight.  With ``layers``, attention over
    both texts adds to that.
    """

    def __init__(
        self, hidden: int = 384, size: int = 128, layers: int = 0, labels: int = 1
    ) -> None:
        super().__init__()
        self.project = nn.Linear(hidden, size, bias=False)
        nn.init.orthogonal_(self.project.weight)
        self.importance = nn.Linear(hidden, 1)
        self.second_importance = nn.Linear(hidden, 1)
        for part in (self.importance, self.second_importance):
            nn.init.zeros_(part.weight)
        self.widths = nn.Parameter(torch.full((len(_KERNELS),), 3.0))
        self.segments = nn.Parameter(torch.zeros(2, size))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(size, 4, 2 * size, 0.1, "gelu", batch_first=True)
            for _ in range(layers)
        )
        features = 9 + len(_KERNELS) + (4 * size if layers else 0)
        self.inner = nn.Linear(features, 48)
        self.dropout = nn.Dropout(0.1)
        self.outer = nn.Linear(48, labels)
        self.direct = nn.Linear(features, labels)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.direct.weight)
        with torch.no_grad():  # at first the matches of the encoder's own vectors
            self.direct.weight[:, 0] = 2.0
            self.direct.weight[:, 2:4] = 6.0
            self.direct.bias.fill_(-6.0)

    def forward(self, first: Tensor, kept: Tensor, second: Tensor, seen: Tensor) -> Tensor:
        """Return logits (pairs, labels).

        Args:
            first, second: (pairs, tokens, hidden), unit vectors.
            kept, seen: (pairs, tokens), which of them are no padding.
        """
        pooled = (_mean(first, kept) * _mean(second, seen)).sum(1)
        weights = self.importance(first)[..., 0].masked_fill(~kept, -1e4).softmax(1)
        gates = torch.sigmoid(self.second_importance(second)[..., 0] + 2)
        learned = [functional.normalize(self.project(side), dim=2) for side in (first, second)]
        features = [pooled]
        for left, right in ((first, second), learned):
            match = (left @ right.transpose(1, 2)).masked_fill(~seen[:, None], -1.0)
            best = match.max(2).values
            even = kept / kept.sum(1, keepdim=True)
            features += [(weights * best).sum(1), (even * best).sum(1), _least(best, kept)]
        back = match.masked_fill(~kept[..., None], -1.0).max(1).values
        features.append((back * seen).sum(1) / seen.sum(1))
        features.append(seen.sum(1).float().log() / 4)
        near = torch.exp(-functional.softplus(self.widths) * 8 * (match[..., None] - _KERNELS) ** 2)
        near = (near * (gates * seen)[:, None, :, None]).sum(2)
        kernels = (torch.log1p(near) * weights[..., None]).sum(1)
        rows = torch.cat([torch.stack(features, 1), kernels], 1)
        if len(self.layers):
            rows = torch.cat([rows, self._together(*learned, kept, seen)], 1)
        inner = self.dropout(functional.gelu(self.inner(rows)))
        logits: Tensor = self.direct(rows) + self.outer(inner)
        return logits

    def _together(self, first: Tensor, second: Tensor, kept: Tensor, seen: Tensor) -> Tensor:
        size = first.shape[1]
        state = torch.cat([first + self.segments[0], second + self.segments[1]], 1)
        mask = torch.cat([kept, seen], 1)
        for layer in self.layers:
            state = layer(state, src_key_padding_mask=~mask)
        left, right = _mean(state[:, :size], kept), _mean(state[:, size:], seen)
        return torch.cat([left, right, left * right, (left - right).abs()], 1)


def _least(best: Tensor, kept: Tensor) -> Tensor:
    """Return the mean match of the third of the tokens that is matched worst: (pairs)."""
    ordered = best.masked_fill(~kept, 9.0).sort(1).values
    count = (kept.sum(1, keepdim=True) / 3).ceil()
    some = torch.arange(best.shape[1]) < count
    return (ordered.masked_fill(~some, 0.0).sum(1, keepdim=True) / count)[:, 0]


def _mean(state: Tensor, seen: Tensor) -> Tensor:
    """Return the mean of what is seen, of length one."""
    return functional.normalize((state * seen[..., None]).sum(1), dim=1)
