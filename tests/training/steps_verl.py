"""The exports in verl's data sets, and three steps by verl's own losses; prints the losses.

Its trainers need NCCL, so that they do not run on a CPU: what they would call is called here.

Run by `test_other_trainers.py` in the virtual environment of verl:
`python steps_verl.py ROWS MODEL STEPS`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import (
    compute_grpo_outcome_advantage,
    compute_policy_loss_vanilla,
)
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.utils.torch_functional import masked_mean
from verl.workers.config import ActorConfig

GROUP, REPLY = 8, 8  # replies to a prompt, and their tokens


def log_probabilities(model: Any, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of each token but the first."""
    logits = model(input_ids=tokens, attention_mask=mask).logits[:, :-1]
    return torch.log_softmax(logits, -1).gather(2, tokens[:, 1:, None])[..., 0]


def fine_tune(rows: Path, name: str, folder: Path, steps: int) -> dict[str, Any]:
    """Learn the assistant's turns of a file of messages, or of prompts with completions."""
    loaded = datasets.load_dataset("json", data_files=str(rows / name), split="train")
    if "messages" not in loaded.column_names:
        loaded = loaded.map(lambda row: {"messages": row["prompt"] + row["completion"]})
    path = rows / f"{name}.parquet"
    loaded.select_columns(["messages"]).to_parquet(str(path))
    tokenizer, model = load(folder)
    config = OmegaConf.create({"max_length": 4096, "pad_mode": "right", "truncation": "error"})
    data = MultiTurnSFTDataset(str(path), tokenizer, config)
    [batch] = torch.utils.data.DataLoader(
        torch.utils.data.Subset(data, range(2)), batch_size=2, collate_fn=collate_fn
    )

    def loss() -> torch.Tensor:
        logs = log_probabilities(model, batch["input_ids"], batch["attention_mask"])
        return -masked_mean(logs, batch["loss_mask"][:, 1:])

    return {"rows": len(data), "losses": take_steps(model, loss, steps, 0.01)}


def optimise_groups(rows: Path, name: str, folder: Path, steps: int) -> dict[str, Any]:
    """Learn from groups of replies, by a reward that tells them apart."""
    tokenizer, model = load(folder)
    tokenizer.padding_side = "left"
    config = OmegaConf.create({"max_prompt_length": 4096, "cache_dir": str(folder / "cache")})
    data = RLHFDataset(str(rows / name), tokenizer, config)
    batch = collate_fn([data[0], data[len(data) - 1]])
    prompts = tokenizer.apply_chat_template(
        [list(prompt) for prompt in batch["raw_prompt"]],
        add_generation_prompt=True,
        padding=True,
        return_tensors="pt",
        return_dict=True,
    )
    torch.manual_seed(1)
    tokens = model.generate(
        **prompts,
        max_new_tokens=REPLY,
        min_new_tokens=REPLY,
        do_sample=True,
        num_return_sequences=GROUP,
    )
    replies = tokenizer.batch_decode(tokens[:, -REPLY:])
    rewards = torch.zeros(len(replies), REPLY)
    rewards[:, -1] = torch.tensor([sum(map(str.isalpha, reply)) / 10 for reply in replies])
    index = [number // GROUP for number in range(len(replies))]
    advantages, _ = compute_grpo_outcome_advantage(rewards, torch.ones_like(rewards), index)
    mask = torch.cat(
        [prompts["attention_mask"].repeat_interleave(GROUP, 0), torch.ones_like(rewards)], 1
    )
    settings = ActorConfig(strategy="fsdp", rollout_n=GROUP, ppo_micro_batch_size_per_gpu=1)
    with torch.no_grad():
        old = log_probabilities(model, tokens, mask)[:, -REPLY:]

    def loss() -> torch.Tensor:
        now = log_probabilities(model, tokens, mask)[:, -REPLY:]
        ones = torch.ones_like(now)
        return compute_policy_loss_vanilla(old, now, advantages, ones, config=settings)[0]

    shape = [bool(batch["s_right"][0]), bool(batch["r_right"][0])]
    return {"rows": len(data), "losses": take_steps(model, loss, steps, 0.0005), "labels": shape}


def take_steps(model: Any, loss: Any, steps: int, rate: float) -> list[float]:
    """Return the loss before, and after each of so many steps."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    for step in range(steps + 1):
        value = loss()
        losses.append(float(value))
        if step < steps:
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
    return losses


def load(folder: Path) -> tuple[Any, Any]:
    """Return the tokenizer and the model, as they were saved."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder), model


def main(rows: Path, folder: Path, steps: int) -> None:
    """Take the steps of each file, and print what came of them as one line of JSON."""
    results = {
        name: fine_tune(rows, name, folder, steps)
        for name in ("sft.jsonl", "retrieval.jsonl", "construction.jsonl")
    }
    results["grpo.jsonl"] = optimise_groups(rows, "grpo.jsonl", folder, steps)
    sys.stdout.write(f"\n{json.dumps(results)}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]), int(sys.argv[3]))
