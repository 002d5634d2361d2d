"""`memtier bench consolidation`: what a consolidation costs, and what recalls notice of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from memtier_bench.consolidation import WHERE, _fill
from memtier_plugin.cli.main import main
from memtier_plugin.memory import MemTier


def test_the_store_holds_what_rules_find(home: Path) -> None:
    """Of the made-up messages a known share says something, and the rules find it."""
    _fill(home, 120, 1)
    with MemTier.open(home, "scale", "agent-0") as memory:
        report = memory.consolidate()
        assert report.read > 110 and 3 <= report.facts <= 70  # random words sound like much
        assert {entry.agent_id for entry in memory.entries()} == {f"agent-{n}" for n in range(4)}


@pytest.mark.slow
def test_the_report(tmp_path: Path) -> None:
    """The command measures recalls of every kind of process, idle and during, and says how many."""
    file = tmp_path / "report.json"
    arguments = ["bench", "consolidation", "--entries", "100", "--recalls", "5"]
    done = CliRunner().invoke(main, [*arguments, "--json", str(file)])
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text())
    assert report["alone"]["read"] > 90 and report["alone"]["facts"] > 0
    assert set(report["recalls"]) == set(WHERE)
    for row in report["recalls"].values():
        assert row["idle"]["recalls"] and row["during"]["recalls"]
        assert row["ratio"]["p95"] > 0
    assert "memtier serve" in done.output and "ratio" in done.output
