"""The exports of two small conversations, and a tiny random model, for the trainers to read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bench.tests.test_bench import locomo
from bench.tests.test_router_learning import ASKED
from memtier_bench.training_export import export_training_rows

STEPS = 3
FILES = ("sft.jsonl", "grpo.jsonl", "retrieval.jsonl", "construction.jsonl")
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all exports of two small conversations."""
    folder = tmp_path_factory.mktemp("rows")
    export_training_rows(folder, locomo(tmp_path_factory.mktemp("data"), *ASKED, samples=2))
    return folder


@pytest.fixture(scope="module")
def tokenizer(rows: Path) -> Any:
    """Return a tokenizer that was trained on the exports: no hub is asked."""
    import tokenizers
    import transformers

    special = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"]
    plain = tokenizers.ByteLevelBPETokenizer()
    plain.train([str(rows / name) for name in FILES], vocab_size=600, special_tokens=special)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain._tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        chat_template=TEMPLATE,
    )


@pytest.fixture
def model_folder(tokenizer: Any, tmp_path: Path) -> Path:
    """Return a folder with a tiny model of random weights, and its tokenizer."""
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=8192,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def model(model_folder: Path) -> Any:
    """Return the model from its folder, as trl reads its reference again."""
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(model_folder)


def report(line: str) -> None:
    """Print a line of the run (`-s`)."""
    sys.stdout.write(f"\n{line}\n")
