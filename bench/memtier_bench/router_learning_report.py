"""Render the tables of the trained router: strategies, and both routes of escalated questions."""

from __future__ import annotations

from typing import Final

from memtier_bench.tables import Report, ReportTable, Section

_CELLS: Final = {
    "SR": "both would be right",
    "Sr": "the log would spoil it",
    "sR": "the log repairs it",
    "sr": "neither is right",
}
_SHOWN: Final = {"tiermem-13": "hand-set", "tiermem-14": "SFT + GRPO"}


def router_learning_view(report: Report) -> list[Section]:
    """Return the paragraphs and tables of a report on learning to route."""
    head = (
        f"{report['dataset']} · {report['table']}: {report['title']} · facts {report['facts']} "
        f"({report['facts_stored']})\n{report['questions']} questions about "
        f"{report['conversations']} conversations, each held out in turn; right is what shows "
        "every gold turn; the router costs no tokens"
    )
    if report["table"] in _SHOWN:
        return [head, *_both_ways(report["strategies"][_SHOWN[report["table"]]])]
    columns = (
        *("", "R-rate", "hard recall", "F1", "right", "reward", "against hand-set"),
        *("injected", "tokens", "tokens at equal recall"),
    )
    table = ReportTable(columns)
    for name, row in report["strategies"].items():
        against = row["against_hand"]
        equal = row.get("tokens_at_equal_recall")
        table.add_row(
            name,
            f"{row['escalated']:.1%}",
            f"{row['hard_recall']:.1%}",
            f"{row['f1']:.3f}",
            f"{row['right']:.3f}",
            f"{row['reward']:+.3f}",
            f"{against['difference']:+.3f} ({against['low']:+.3f} to {against['high']:+.3f})",
            f"{row['injected_recall']:.3f}",
            f"{row['tokens']:.0f}",
            "" if equal is None else f"{equal:.0f}",
        )
    note = (
        f"Equal recall: the limit moved until {report['equal_recall']:.3f} of the gold turns are "
        "injected, as with the hand-set router."
    )
    sections: list[Section] = [head, table, note]
    if report["exported"]:
        files = ", ".join(f"{name}: {rows} rows" for name, rows in report["exported"].items())
        sections.append(f"Exported: {files}")
    return sections


def _both_ways(row: Report) -> list[Section]:
    table = ReportTable(("of the escalated questions", "count"))
    for cell, name in _CELLS.items():
        table.add_row(name, str(row["counts"][cell]))
    table.add_row("all", str(sum(row["counts"].values())))
    rates = (
        f"escalation repairs {row['repair_rate']:.1%} of what the facts alone get wrong, and "
        f"spoils {row['regress_rate']:.1%} of what they get right"
    )
    return [table, rates]
