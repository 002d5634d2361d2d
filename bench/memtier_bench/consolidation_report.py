"""Render the report of `memtier bench consolidation`."""

from __future__ import annotations

from typing import Final

from memtier_bench.tables import Report, ReportTable, Section

_TITLES: Final = {
    "aside": "another process (beside memtier daemon)",
    "serve": "memtier serve (its own background)",
    "within": "the consolidating process itself (none of ours)",
}


def consolidation_view(report: Report) -> list[Section]:
    """Return a paragraph on the consolidation and a table of the recalls during it."""
    alone = report["alone"]
    head = (
        f"consolidation of {alone['read']:,} entries by rules: {alone['seconds']:.2f} s "
        f"({alone['entries_per_s']:.0f}/s), {alone['facts']} facts; peak memory "
        f"{alone['peak_rss_mb']:.0f} MB ({alone['rss_before_mb']:.0f} MB before)"
    )
    table = ReportTable(
        ("recalls by", "idle p50", "p95", "during p50", "p95", "worst", "ratio p50", "p95", "n"),
        title="milliseconds of a recall, idle and during a consolidation",
    )
    for where, row in report["recalls"].items():
        idle, during = row["idle"]["latency_ms"], row["during"]["latency_ms"]
        times = (idle["p50"], idle["p95"], during["p50"], during["p95"], row["during"]["worst_ms"])
        ratios = (f"{row['ratio'][name]:.2f}" for name in ("p50", "p95"))
        cells = (f"{value:.1f}" for value in times)
        table.add_row(_TITLES[where], *cells, *ratios, str(row["during"]["recalls"]))
    within = f"the goal is a ratio of at most {report['goal']:g}; {report['cores']} cores"
    return [head, table, f"{within}, load {report['load']:.1f} at the beginning"]
