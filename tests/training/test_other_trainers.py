"""The exports in LLaMA-Factory and verl: read by their own loaders, and three steps on a CPU.

Each has a virtual environment of its own, which `make test-train` makes, as their pins clash.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.training.conftest import STEPS, report

pytest.importorskip("trl", reason="needs the extra: pip install 'memtier[train]'")
pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]  # each loads its packages first

ROOT = Path(__file__).parents[2]


def run_in(trainer: str, script: str, *arguments: Path | int) -> Any:
    """Run a script with a trainer's own packages; return what its last line says."""
    python = ROOT / ".venv" / f"train-{trainer}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"needs {trainer} in an environment of its own: make test-train")
    path = Path(__file__).with_name(script)
    ended = subprocess.run(
        [python, path, *map(str, arguments)],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return json.loads(ended.stdout.splitlines()[-1])


def test_llama_factory(rows: Path, model_folder: Path, tmp_path: Path) -> None:
    """LLaMA-Factory finds the rows by `dataset_info.json`; three of its steps lower the loss.

    Its loss of a step is the one before it.
    """
    script = "steps_llama_factory.py"
    done = run_in("llamafactory", script, rows, model_folder, tmp_path / "out", STEPS)
    losses = done["losses"]
    report(f"LLaMA-Factory, {done['names']}: loss {losses[0]:.3f} -> {losses[STEPS]:.3f}")
    assert losses[STEPS] < losses[0]


def test_verl(rows: Path, model_folder: Path) -> None:
    """Verl's data sets read every file; three steps by its losses lower each.

    The loss of a group starts at 0, as its advantages have no mean.
    """
    done = run_in("verl", "steps_verl.py", rows, model_folder, STEPS)
    for name, result in done.items():
        losses, count = result["losses"], len((rows / name).read_text("utf-8").splitlines())
        report(f"verl, {name}: {count} rows, loss {losses[0]:.4f} -> {losses[STEPS]:.4f}")
        assert result["rows"] == count
        assert losses[STEPS] < losses[0] and all(map(math.isfinite, losses))
    assert {*done} == {"sft.jsonl", "grpo.jsonl", "retrieval.jsonl", "construction.jsonl"}
