"""The exports, in real trainers: loaded by trl, and three steps of a tiny random model on a CPU.

Needs the extra `train`; run by `make test-train`.  The losses before and after are printed (`-s`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra: pip install 'memtier[train]'")
pytestmark = [
    pytest.mark.train,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]

import datasets  # noqa: E402
import torch  # noqa: E402
import trl  # noqa: E402

from memtier_papers.tiermem.router_reward import reward_completions  # noqa: E402
from tests.training.conftest import STEPS, report  # noqa: E402


def load(rows: Path, name: str) -> Any:
    """Load an export as trl's trainers expect it."""
    return datasets.load_dataset("json", data_files=str(rows / name), split="train")


def common(tmp_path: Path) -> dict[str, Any]:
    """Return the settings that all trainers share."""
    return {
        "output_dir": str(tmp_path),
        "max_steps": STEPS,
        "use_cpu": True,
        "bf16": False,
        "learning_rate": 0.01,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
    }


def fine_tuner(rows: Path, name: str, model: Any, tokenizer: Any, tmp_path: Path) -> Any:
    """Return trl's trainer for supervised fine-tuning on an export."""
    return trl.SFTTrainer(
        model=model,
        args=trl.SFTConfig(
            **common(tmp_path),
            per_device_train_batch_size=2,
            per_device_eval_batch_size=2,
            max_length=4096,
            gradient_checkpointing=False,
        ),
        train_dataset=load(rows, name),
        eval_dataset=load(rows, name).select(range(2)),
        processing_class=tokenizer,
    )


@pytest.mark.parametrize("name", ["sft.jsonl", "construction.jsonl"])
def test_fine_tuning(name: str, rows: Path, model: Any, tokenizer: Any, tmp_path: Path) -> None:
    """Three steps of `SFTTrainer` on the completions, or the messages, lower the loss."""
    trainer = fine_tuner(rows, name, model, tokenizer, tmp_path)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    report(f"{name}: {len(load(rows, name))} rows, loss {before:.3f} -> {after:.3f}")
    assert trainer.state.global_step == STEPS
    assert after < before


def test_group_relative_optimisation(
    rows: Path, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    """Three steps of `GRPOTrainer` by the router's own rewards, in groups of eight.

    A random model never writes a decision, so that all of a group earn the same; the second reward
    tells them apart, and the weights move.
    """
    seen: list[float] = []

    def route_reward(**given: Any) -> list[float]:
        rewards = reward_completions(**given)
        seen.extend(rewards)
        return rewards

    def count_letters(completions: Any, **_: Any) -> list[float]:
        return [sum(map(str.isalpha, reply[-1]["content"])) / 10 for reply in completions]

    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=[route_reward, count_letters],
        args=trl.GRPOConfig(
            **common(tmp_path),
            per_device_train_batch_size=8,
            num_generations=8,
            max_completion_length=8,
            temperature=1.2,
            beta=0.02,
            gradient_checkpointing=False,
        ),
        train_dataset=load(rows, "grpo.jsonl"),
        processing_class=tokenizer,
    )
    first = {name: value.clone() for name, value in model.named_parameters()}
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    total = len(load(rows, "grpo.jsonl"))
    report(f"grpo.jsonl: {total} rows, loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    assert trainer.state.global_step == STEPS
    assert len(seen) == 8 * STEPS and set(seen) <= {-1.6, -1.5, -1.0, 0.5, 0.9, 1.0}
    assert any(not torch.equal(first[name], value) for name, value in model.named_parameters())


def test_clipped_steps_on_the_calls(rows: Path, model: Any, tokenizer: Any, tmp_path: Path) -> None:
    """Three steps of PPO's clipped objective with the exported advantages lower the loss.

    The old log probabilities are the model's own: those of the export are the small policy's.
    """
    trainer = fine_tuner(rows, "retrieval.jsonl", model, tokenizer, tmp_path)
    batch = trainer.data_collator([trainer.train_dataset[index] for index in range(4)])
    advantages = torch.tensor(load(rows, "retrieval.jsonl")["advantage"][:4])
    targets = batch["labels"][:, 1:]  # -100 in the prompt and the padding

    def log_probabilities() -> torch.Tensor:
        shown = {name: batch[name] for name in ("input_ids", "attention_mask")}
        logs = torch.log_softmax(model(**shown).logits[:, :-1], -1)
        chosen = logs.gather(2, targets.clamp(min=0)[..., None])[..., 0]
        return (chosen * (targets >= 0)).sum(1)

    with torch.no_grad():
        old = log_probabilities()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.0005)
    losses = []
    for step in range(STEPS + 1):
        ratios = (log_probabilities() - old).exp()
        gains = torch.min(ratios * advantages, ratios.clamp(0.8, 1.2) * advantages)
        losses.append(-float(gains.mean()))
        if step < STEPS:
            optimiser.zero_grad()
            (-gains.mean()).backward()
            optimiser.step()
    total = len(load(rows, "retrieval.jsonl"))
    report(f"retrieval.jsonl: {total} rows, loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    assert losses[-1] < losses[0]


def test_the_page_for_llama_factory(rows: Path) -> None:
    """`dataset_info.json` names columns and roles that every row of the file has."""
    [info] = json.loads((rows / "dataset_info.json").read_text()).values()
    column, tags = info["columns"]["messages"], info["tags"]
    allowed = {tags["system_tag"], tags["user_tag"], tags["assistant_tag"]}
    for line in (rows / info["file_name"]).read_text("utf-8").splitlines():
        messages = json.loads(line)[column]
        roles = [message[tags["role_tag"]] for message in messages]
        assert set(roles) <= allowed and roles[-1] == tags["assistant_tag"]
        assert all(message[tags["content_tag"]] for message in messages)
