"""`memtier bench serve`: real residents, and a report of what their clients saw."""

from __future__ import annotations

from memtier_bench.report import markdown
from memtier_bench.serve import run_serve


def test_tenants_on_a_resident() -> None:
    """Every call is counted, none fails, and no tenant sees another's lines."""
    report = run_serve(tenants=6, clients=3, turns=8)
    part = report["tenants"]
    assert [row["calls"] for row in part["phases"]] == [12, 16, 16]
    assert not any(row["errors"] for row in part["phases"])
    assert (part["foreign"], part["tracebacks"]) == (0, 0)
    assert "6 tenants" in markdown(report) and "kill" not in report
