"""Render the report of `memtier bench work`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from memtier_bench.tables import Report, ReportTable, Section

_TITLES: Final = {
    "needed": "all that is needed stands in the block",
    "misled": "something misleading stands there unmarked",
    "right": "right: the one and not the other",
}


def work_view(report: Report) -> list[Section]:
    """Return a table of each figure by arm and kind of probe, and the differences."""
    head = (
        f"work · {report['set']} · {report['projects']} projects, {report['probes']} probes · "
        f"{report['profile']} · MemTier {report['version']}\n"
        f"intervals of 95 %, projects resampled with seed {report['seed']}; bm25 has as many "
        "tokens for each probe as memtier took, bm25-always their mean for each, "
        "bm25-full all that a block may have"
    )
    tables = [*_share_tables(report), _tokens_table(report), _differences_table(report)]
    tables += [_obedience_table(report)] if report["obedience"] else []
    return [head, *tables, *report["failures"]]


def _share_tables(report: Report) -> Iterator[ReportTable]:
    arms = report["arms"]
    kinds = [*next(iter(arms.values()))]
    for figure, title in _TITLES.items():
        counted = [k for k in kinds if next(iter(arms.values()))[k][figure] is not None]
        table = ReportTable((figure, *counted), title=title)
        for name, row in arms.items():
            cells = [_format(row[kind][figure]) for kind in counted]
            table.add_row(name, *cells)
        yield table


def _tokens_table(report: Report) -> ReportTable:
    first = next(iter(report["arms"].values()))
    table = ReportTable(("tokens, p50 / mean", *first), title="What a block takes")
    table.add_row("probes", *(str(row["probes"]) for row in first.values()))
    for name, row in report["arms"].items():
        tokens = (kind["tokens"] for kind in row.values())
        table.add_row(name, *(f"{each['p50']} / {each['mean']:.0f}" for each in tokens))
    return table


def _differences_table(report: Report) -> ReportTable:
    table = ReportTable(("memtier minus", *_TITLES), title="On the same probes")
    for name, row in report["differences"].items():
        table.add_row(name, *(_format(row[figure], "+.3f") for figure in _TITLES))
    return table


def _obedience_table(report: Report) -> ReportTable:
    obedience = report["obedience"]
    model, probes = obedience["reader"]["model"], obedience["probes"]
    title = f"Whether {model} keeps the rule, by {probes} answers of each arm"
    table = ReportTable(("arm", "kept", "prompt tokens"), title=title)
    for name, row in obedience["arms"].items():
        table.add_row(name, _format(row["kept"]), f"{row['prompt_tokens']:.0f}")
    return table


def _format(values: Sequence[float] | None, form: str = ".3f") -> str:
    if values is None:
        return "-"
    value, low, high = (f"{each:{form}}" for each in values)
    return f"{value} [{low}, {high}]"
