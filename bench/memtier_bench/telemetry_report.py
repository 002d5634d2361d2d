"""Render the report of `memtier bench telemetry`."""

from __future__ import annotations

from memtier_bench.tables import Report, ReportTable, Section


def telemetry_view(report: Report) -> list[Section]:
    """Return a table of the modes, and the machine's load."""
    table = ReportTable(
        ("telemetry", "recall p50", "p95", "p99", "recalls"),
        title=f"milliseconds of a recall among {report['entries']} entries",
    )
    for mode, row in report["modes"].items():
        times = (f"{row['latency_ms'][name]:.2f}" for name in ("p50", "p95", "p99"))
        table.add_row(mode, *times, str(row["recalls"]))
    return [table, f"{report['cores']} cores, load {report['load']:.1f} at the end"]
