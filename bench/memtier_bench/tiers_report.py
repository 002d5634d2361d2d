"""Render the reports of `memtier bench table hmo-...`."""

from __future__ import annotations

from memtier_bench.tables import Report, ReportTable, Section


def tiers_view(report: Report) -> list[Section]:
    """Return a heading, and for each store a table of its arms, or of the drift gate."""
    facts = f"facts: {report['facts']}"
    sections: list[Section] = [
        f"HMO, {report['table']}: {report['title']}; {report['questions']} questions, {facts}"
    ]
    for part in report["parts"]:
        title = f"{part['name']} ({part['entries']} entries)"
        sections += [*(_arms(part, title) if "arms" in part else [_gate(part, title)])]
    return sections


def _arms(part: Report, title: str) -> list[Section]:
    columns = ("", "Rec@5 (all gold)", "difference", "recall@5", "NDCG@5", "p50 ms", "read")
    table = ReportTable(columns, title=title)
    tiers = ReportTable(("", "answered", "Rec@5 of these", "p50 ms", "read"))
    for arm in part["arms"]:
        mean, low, high = arm["difference"]
        table.add_row(
            arm["name"],
            f"{arm['rec_all@5']:.3f}",
            f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]",
            f"{arm['recall@5']:.3f}",
            f"{arm['ndcg@5']:.3f}",
            f"{arm['p50_ms']:.1f}",
            f"{arm['read']:.0f}",
        )
        for name, row in arm["tiers"].items():
            right = "" if row["rec_all@5"] is None else f"{row['rec_all@5']:.3f}"
            figures = (f"{row['p50_ms']:.1f}", f"{row['read']:.0f}")
            tiers.add_row(f"{arm['name']}: {name}", f"{row['answered']:.1%}", right, *figures)
    return [table, tiers]


def _gate(part: Report, title: str) -> ReportTable:
    table = ReportTable(("", "always", "past the gate"), title=title)
    for name in ("rescorings", "rescored"):
        table.add_row(name, str(part[name]["always"]), str(part[name]["gate"]))
    table.add_row("saved", "", "-" if part["saved"] is None else f"{part['saved']:.1%}")
    for tier, value in part["jaccard"].items():
        lowest = part["lowest"][tier]
        table.add_row(f"Jaccard of the {tier}, mean (lowest)", "", f"{value:.3f} ({lowest:.3f})")
    return table
