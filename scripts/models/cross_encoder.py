"""A model that reads a prompt and a line as a single text.

The lowest layers of a BERT encoder, from its own weights, and a linear layer over the first token
and the mean of all.  A token that the other text has, too, is told from one that it has not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

MAX_TOKENS: Final = 96
_MAX_PROMPT: Final = 40
_CLS, _SEP = 101, 102


class CrossEncoder(nn.Module):
    """Scores of pairs of texts; see the module.

    Args:
        folder: has ``config.json``, ``model.safetensors`` and ``tokenizer.json``.
        layers: the numbers of the layers that are kept, lowest first.
    """

    def __init__(self, folder: Path, layers: Sequence[int]) -> None:
        super().__init__()
        config = json.loads((folder / "config.json").read_text())
        self.size: int = config["hidden_size"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.words = nn.Embedding(config["vocab_size"], self.size)
        self.positions = nn.Embedding(MAX_TOKENS, self.size)
        self.kinds = nn.Embedding(4, self.size)  # of the prompt, the line; and in both
        self.norm = nn.LayerNorm(self.size, config["layer_norm_eps"])
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                self.size,
                config["num_attention_heads"],
                config["intermediate_size"],
                dropout=0.0,
                activation="gelu",
                layer_norm_eps=config["layer_norm_eps"],
                batch_first=True,
            )
            for _ in layers
        )
        self.score = nn.Linear(2 * self.size, 1)
        weights = load_file(folder / "model.safetensors")
        self._load({n.removeprefix("bert."): w for n, w in weights.items()}, layers)

    def _load(self, weights: dict[str, Tensor], layers: Sequence[int]) -> None:
        start = "embeddings."
        kinds = weights[f"{start}token_type_embeddings.weight"]
        state = {
            "words.weight": weights[f"{start}word_embeddings.weight"],
            "positions.weight": weights[f"{start}position_embeddings.weight"][:MAX_TOKENS],
            "kinds.weight": torch.cat([kinds[:1], kinds[:1], kinds[:1], kinds[:1]]),
            "norm.weight": weights[f"{start}LayerNorm.weight"],
            "norm.bias": weights[f"{start}LayerNorm.bias"],
            "score.weight": torch.zeros(1, 2 * self.size),
            "score.bias": torch.zeros(1),
        }
        names = {
            "self_attn.out_proj": "attention.output.dense",
            "linear1": "intermediate.dense",
            "linear2": "output.dense",
            "norm1": "attention.output.LayerNorm",
            "norm2": "output.LayerNorm",
        }
        for number, layer in enumerate(layers):
            old, new = f"encoder.layer.{layer}.", f"layers.{number}."
            for kind in ("weight", "bias"):
                parts = [
                    weights[f"{old}attention.self.{part}.{kind}"]
                    for part in ("query", "key", "value")
                ]
                state[f"{new}self_attn.in_proj_{kind}"] = torch.cat(parts)
                for ours, theirs in names.items():
                    state[f"{new}{ours}.{kind}"] = weights[f"{old}{theirs}.{kind}"]
        self.load_state_dict(state)

    def read(self, query: str, lines: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        """Return the tokens of each pair, and of each token its kind."""
        asked = self.tokenizer.encode(query, add_special_tokens=False).ids[:_MAX_PROMPT]
        encoded = self.tokenizer.encode_batch([*lines], add_special_tokens=False)
        pairs = []
        for each in encoded:
            line = each.ids[: MAX_TOKENS - len(asked) - 3]
            both = {*asked} & {*line}
            ids = [_CLS, *asked, _SEP, *line, _SEP]
            kinds = [0] * (len(asked) + 2) + [1] * (len(line) + 1)
            pairs.append((ids, [k + 2 * (i in both) for k, i in zip(kinds, ids, strict=True)]))
        return pairs

    def forward(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Tensor:
        """Return the logit of each pair (`read`), shape (pairs)."""
        longest = max(len(ids) for ids, _ in pairs)
        ids = torch.tensor([each + [0] * (longest - len(each)) for each, _ in pairs])
        kinds = torch.tensor([each + [0] * (longest - len(each)) for _, each in pairs])
        state = self.words(ids) + self.positions.weight[:longest] + self.kinds(kinds)
        state = self.norm(state)
        for layer in self.layers:
            state = layer(state, src_key_padding_mask=ids == 0)
        seen = (ids != 0)[..., None]
        mean = (state * seen).sum(1) / seen.sum(1)
        logits: Tensor = self.score(torch.cat([state[:, 0], mean], 1))[:, 0]
        return logits
