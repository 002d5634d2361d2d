"""Render the report of `memtier bench gate`."""

from __future__ import annotations

from memtier_bench.tables import Report, ReportTable, Section, format_share, format_signed

_METRICS = ("recall@1", "recall@10", "injected_recall", "tokens")


def gate_view(report: Report) -> list[Section]:
    """Return a table of the signals, and one of the savings and costs of omitting lines."""
    lines, rejected = report["lines"], report["rejected"]
    head = f"gate · {report['dataset']} · {lines:,} lines, {rejected / lines:.0%} rejected"
    signals = ReportTable(("tells evidence from other lines", "area under the curve", "95 %"))
    for name, row in report["signals"].items():
        interval = f"{format_share(row['low'])} to {format_share(row['high'])}"
        signals.add_row(name, format_share(row["auc"]), interval)
    title = f"{report['questions']} questions, rejected lines without vectors and n-grams"
    table = ReportTable(("", "all lines", "without", "difference", "95 %"), title=title)
    for name in _METRICS:
        row = report["difference"][name]
        bounds = (format_signed(row[side]) for side in ("low", "high"))
        table.add_row(
            name,
            format_share(row["theirs"]),
            format_share(row["ours"]),
            format_signed(row["difference"]),
            " to ".join(bounds),
        )
    before, after = report["index_bytes"]["off"] / 1e6, report["index_bytes"]["index"] / 1e6
    table.add_row("index, MB", f"{before:.2f}", f"{after:.2f}", f"{after / before - 1:+.1%}", "")
    return [head, signals, table]
