"""`memtier bench telemetry`: off, on and down, in the same run."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from memtier_plugin.cli.main import main


def test_telemetry(tmp_path: Path) -> None:
    """Every mode makes the same number of recalls, and none of them waits for a collector."""
    file = tmp_path / "report.json"
    arguments = ["--entries", "40", "--recalls", "2", "--json", str(file)]
    done = CliRunner().invoke(main, ["bench", "telemetry", *arguments], catch_exceptions=False)
    assert done.exit_code == 0 and "recall p50" in done.output
    modes = json.loads(file.read_text())["modes"]
    assert {mode: row["recalls"] for mode, row in modes.items()} == {"off": 2, "on": 2, "down": 2}
    assert all(row["latency_ms"]["p99"] < 1000 for row in modes.values())
