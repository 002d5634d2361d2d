"""Render the report of `memtier bench router`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memtier_bench.tables import Report, ReportTable, Section

_NAMES: Final = {
    "facts": "facts only",
    "raw": "always raw",
    "routed": "routed",
    "routed, no links": "routed, without links to source lines",
    "mixed": "mixed (the default)",
    "raw cut": "always raw, cut as routed is",
    "pages": "five whole pages, as TierMem",
}
_CELLS: Final = {"SR": "both", "Sr": "only facts", "sR": "only raw", "sr": "neither"}


def router_view(report: Report) -> list[Section]:
    """Return the paragraphs and tables of a routing report."""
    routes, goal, against = report["routes"], report["goal"], report["against_raw"]["routed"]
    met = all(
        (against["injected_recall"] >= goal["injected_recall"], against["tokens"] <= goal["tokens"])
    )
    head = (
        f"router · {report['dataset']} · facts {report['facts']} ({report['facts_stored']}) · "
        f"k {report['k']}, {report['token_budget']} tokens · MemTier {report['version']}\n"
        f"{report['questions']} questions; {routes['escalated']:.1%} escalated to the log, by "
        "features of the question and the facts (no model, no tokens of its own)\n"
        f"routed: {against['injected_recall']:.1%} of always raw's injected recall at "
        f"{against['tokens']:.1%} of its tokens; the goal, {goal['injected_recall']:.0%} at "
        f"{goal['tokens']:.0%}, is {'met' if met else 'not met'}\n"
        f"answered from facts that lack a gold turn which the log would have shown: "
        f"{routes['unverifiable_omission']:.1%} of all, "
        f"{routes['omission_from_facts']:.1%} of the answers from facts"
    )
    table = ReportTable(("", "injected", "of raw's", "tokens", "of raw's", "p50 ms", "p95 ms"))
    for arm, row in report["arms"].items():
        if arm == "mixed":
            table.add_row()
        ratio = report["against_raw"][arm]
        table.add_row(
            _NAMES[arm],
            f"{row['injected_recall']:.3f}",
            f"{ratio['injected_recall']:.1%}",
            f"{row['tokens'] + row['router_tokens']:.0f}",
            f"{ratio['tokens']:.1%}",
            f"{row['latency_ms']['p50']:.1f}",
            f"{row['latency_ms']['p95']:.1f}",
        )
    groups = ReportTable(("", "n", "escalated", "facts", "raw", "routed", "tokens: raw", "routed"))
    for name, group in report["by_category"].items():
        arms = group["arms"]
        shares = (f"{arms[arm]['injected_recall']:.3f}" for arm in ("facts", "raw", "routed"))
        tokens = (f"{arms[arm]['tokens']:.0f}" for arm in ("raw", "routed"))
        escalated = f"{group['routes']['escalated']:.1%}"
        groups.add_row(name, str(group["questions"]), escalated, *shares, *tokens)
    title = "Which arm shows every gold turn, by route"
    counts = ReportTable(("routed to", *_CELLS.values()), title=title)
    for route, name in (("S", "facts"), ("R", "the log")):
        counts.add_row(name, *(str(routes["table"][route][cell]) for cell in _CELLS))
    rates = (
        f"escalation repairs {routes['repair_rate']:.1%} of what facts alone get wrong, and spoils "
        f"{routes['regress_rate']:.1%} of what they get right"
    )
    return [head, table, groups, counts, rates, *_epochs(report["epochs"])]


def _epochs(epochs: Sequence[Report]) -> list[Section]:
    """Return Table 5 of TierMem, if the questions were asked in several epochs."""
    if len(epochs) < 2:
        return []
    title = (
        "Replay: after an epoch the gold lines that escalations showed are written back as facts"
    )
    columns = ("epoch", "right", "from facts", "right of these", "tokens", "ms", "added")
    table = ReportTable(columns, title=title)
    for row in epochs:
        table.add_row(
            str(row["epoch"]),
            f"{row['accuracy']:.3f}",
            str(row["s_traffic"]),
            f"{row['s_correct']} ({row['s_accuracy']:.1%})",
            f"{row['tokens']:.0f}",
            f"{row['latency_ms']:.1f}",
            str(row["added"]),
        )
    return [table]
