"""Render the report of `memtier bench trees`."""

from __future__ import annotations

from typing import Final

from memtier_bench.tables import Report, ReportTable, Section

_NAMES: Final = {
    "untrained": "untrained",
    "chain": "by chains (GRPO)",
    "tree": "by trees (MoT-GRPO)",
    "tree, no intra": "by trees, without A_intra",
    "tree, no inter": "by trees, without A_inter",
}


def trees_view(report: Report) -> list[Section]:
    """Return the paragraphs and tables of a report on trees."""
    head = (
        f"{report['dataset']} · trees · facts {report['facts']} ({report['facts_stored']})\n"
        f"{report['questions']} questions; each of {report['folds']} conversations held out in "
        f"turn, {report['seeds']} seeds of {report['updates']} updates; all trained in "
        f"{report['training_seconds']:.0f} s"
    )
    title = "Share of the gold turns shown, on conversations that were not trained on"
    columns = (
        *("", "drawn", "spread", "tree minus this", "95 % interval", "searches"),
        *("likeliest", "spread", "searches", "tokens"),
    )
    table = ReportTable(columns, title=title)
    for name, row in report["arms"].items():
        against = report["against_tree"].get(name)
        table.add_row(
            _NAMES[name],
            f"{row['coverage']:.3f}",
            f"{row['spread']:.3f}",
            f"{against['difference']:+.3f}" if against else "",
            f"{against['low']:+.3f} to {against['high']:+.3f}" if against else "",
            f"{row['searches']:.1f}",
            *(
                (f"{row['best_coverage']:.3f}", f"{row['best_spread']:.3f}")
                if name != "untrained"
                else ("", "")
            ),
            *(
                (f"{row['best_searches']:.1f}", f"{row['best_tokens']:.0f}")
                if name != "untrained"
                else ("", "")
            ),
        )
    once = report["one_recall"]
    table.add_row()
    table.add_row(
        "one recall of the question",
        *[""] * 5,
        f"{once['coverage']:.3f}",
        "",
        "1.0",
        f"{once['tokens']:.0f}",
    )
    note = (
        "Drawn: by the policy's own chances, as it was trained; likeliest: its best calls. "
        "Spread: the standard deviation over the seeds. One recall has as many tokens as the "
        "tree-trained policy shows."
    )
    sections: list[Section] = [head, table, note]
    if report["exported"]:
        files = ", ".join(f"{name}: {rows} rows" for name, rows in report["exported"].items())
        sections.append(f"Exported: {files}")
    return sections
