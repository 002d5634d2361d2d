"""Render the report of `memtier bench durability`."""

from __future__ import annotations

from memtier_bench.tables import Report, ReportTable, Section


def durability_view(report: Report) -> list[Section]:
    """Return a table of both modes, for one writer and for several."""
    table = ReportTable(
        ("durability, writers", "entries/s", "end_run p50", "p95", "p99", "syncs", "runs"),
        title="milliseconds until a run is acknowledged",
    )
    for mode, rows in report["modes"].items():
        for writers, row in rows.items():
            times = (f"{row['latency_ms'][name]:.2f}" for name in ("p50", "p95", "p99"))
            figures = (str(row["syncs"]), str(row["runs"]))
            table.add_row(f"{mode}, {writers}", f"{row['entries_per_s']:.0f}", *times, *figures)
    return [table, f"{report['cores']} cores, load {report['load']:.1f} at the end"]
