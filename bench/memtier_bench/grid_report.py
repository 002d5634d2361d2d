"""Render the grid of embedders and rerankers."""

from __future__ import annotations

from memtier_bench.tables import Report, ReportTable, Section


def grid_view(report: Report) -> list[Section]:
    """Return Table 6 (statistics over the cells) or Table 7 (every cell, best first)."""
    score, summary = report["score"], report["summary"]
    head = (
        f"Table {report['table'].removeprefix('tm-')} of True Memory, in kind: {score} on "
        f"{report['dataset']}, {summary['cells']} cells"
    )
    if report["table"] == "tm-6":
        table = ReportTable(("cells", "best", "worst", "mean", "median", "spread"))
        names = ("best", "worst", "mean", "median", "spread")
        table.add_row(str(summary["cells"]), *(f"{summary[name]:.3f}" for name in names))
        return [head, table]
    table = ReportTable(
        ("embedder", "reranker", "made-up answer", score, "95 % interval", "injected", "ms")
    )
    for row in report["rows"]:
        table.add_row(
            row["embedder"],
            row["reranker"],
            "yes" if row["hypothetical"] else "no",
            f"{row['score']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}",
            f"{row['injected']:.3f}",
            f"{row['ms']:.1f}",
        )
    return [head, table]
