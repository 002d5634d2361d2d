"""`memtier bench durability`: sync beside os, in the same run."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from memtier_plugin.cli.main import main


def test_durability(tmp_path: Path) -> None:
    """Both modes end the same number of runs; only `sync` syncs, at most once a run."""
    file = tmp_path / "report.json"
    arguments = ["--runs", "8", "--writers", "2", "--folder", str(tmp_path), "--json", str(file)]
    done = CliRunner().invoke(main, ["bench", "durability", *arguments], catch_exceptions=False)
    assert done.exit_code == 0 and "entries/s" in done.output
    report = json.loads(file.read_text())
    for writers in ("1", "2"):
        loose, durable = (report["modes"][mode][writers] for mode in ("os", "sync"))
        assert loose["runs"] == durable["runs"] == 8
        assert loose["syncs"] == 0 < durable["syncs"] <= 8
        assert durable["latency_ms"]["p95"] > 0 and durable["entries_per_s"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
