"""Three steps of LLaMA-Factory's own supervised fine-tuning on an export; prints the losses.

Run by `test_other_trainers.py` in the virtual environment of LLaMA-Factory:
`python steps_llama_factory.py ROWS MODEL OUTPUT STEPS`.
"""

from __future__ import annotations

import importlib.machinery
import json
import sys
import types
from pathlib import Path


def leave_out(name: str) -> None:
    """Stand in for a package of images or sound that cannot be loaded without its GPU libraries."""
    try:
        __import__(name)
    except (ImportError, OSError, RuntimeError):
        for loaded in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[loaded]
        stub = types.ModuleType(name)
        stub.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = stub if name == "torchaudio" else None  # type: ignore[assignment]


def main(rows: Path, model: Path, output: Path, steps: int) -> None:
    """Train by the datasets that `dataset_info.json` names."""
    leave_out("torchvision")
    leave_out("torchaudio")
    from llamafactory.train.tuner import run_exp

    names = [*json.loads((rows / "dataset_info.json").read_text("utf-8"))]
    run_exp(
        {
            "stage": "sft",
            "do_train": True,
            "model_name_or_path": str(model),
            "finetuning_type": "full",
            "dataset_dir": str(rows),
            "dataset": ",".join(names),
            "template": "empty",
            "cutoff_len": 4096,
            "per_device_train_batch_size": 2,
            "learning_rate": 0.01,
            "lr_scheduler_type": "constant",
            "max_steps": steps + 1,  # the loss of a step is that before it
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
            "bf16": False,
            "overwrite_cache": True,
            "output_dir": str(output),
        }
    )
    log = (output / "trainer_log.jsonl").read_text("utf-8").splitlines()
    losses = [entry["loss"] for entry in map(json.loads, log) if "loss" in entry]
    sys.stdout.write(f"\n{json.dumps({'names': names, 'losses': losses})}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), int(sys.argv[4]))
