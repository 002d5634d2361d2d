"""Render the report of `memtier bench answers`."""

from __future__ import annotations

from typing import Final

from memtier_bench.tables import Report, ReportTable, Section, format_share, format_signed

_LABELS: Final = {
    "none": "no memory",
    "bm25": "stemmed BM25",
    "memory": "MemTier's block",
    "gold": "the gold lines",
    "ask": "memtier ask",
}


def answers_view(report: Report) -> list[Section]:
    """Return what was asked of whom, the scores of each arm, and the paired differences."""
    reader = report["reader"]
    head = (
        f"answers · {report['dataset']} · {report['profile']} · facts {report['facts']}\n"
        f"{report['questions']} questions with an answer, {report['unanswerable']} without; "
        f"order drawn by seed {report['seed']}\n"
        f"reader {reader['model']}, temperature {reader['temperature']}; "
        f"its instruction: {reader['instruction']}"
    )
    if cites := report["cites_gold"]["of"]:
        share = _score(report["cites_gold"]["share"], report["cites_gold"]["interval"])
        head += f"\nof {cites} answers of `memtier ask` {share} cite a gold line"
    return [head, _arms_table(report), _categories_table(report), _differences_table(report)]


def _arms_table(report: Report) -> ReportTable:
    columns = ("given", "F1", "holds it", "dates, numbers", "unknown, right", "unknown, needless")
    table = ReportTable(
        (*columns, "tokens read", "block, estimated", "s"), title="With intervals of 95 %"
    )
    for name, row in report["arms"].items():
        table.add_row(
            _LABELS[name],
            _score(row.get("f1"), row.get("f1_interval")),
            _score(row.get("soft_em_tokens"), row.get("soft_em_tokens_interval")),
            *(
                _score(row[key]["share"], row[key]["interval"]) if key in row else "-"
                for key in ("numbers", "unknown", "needless_unknown")
            ),
            f"{row['prompt_tokens']:.0f}",
            f"{row['block_tokens']:.0f}",
            f"{row['seconds']['mean']:.1f}",
        )
    return table


def _categories_table(report: Report) -> ReportTable:
    arms = report["arms"]
    names = dict.fromkeys(name for row in arms.values() for name in row.get("by_category", {}))
    table = ReportTable(("F1, by category", "n", *(_LABELS[arm] for arm in arms)))
    for name in names:
        rows = [row["by_category"][name] for row in arms.values()]
        table.add_row(name, str(rows[0]["questions"]), *(format_share(row["f1"]) for row in rows))
    return table


def _differences_table(report: Report) -> ReportTable:
    table = ReportTable(("paired difference", "F1", "holds it"))
    for name, scores in report["differences"].items():
        first, second = (_LABELS[arm] for arm in name.split(" - "))
        cells = [
            f"{format_signed(mean)} [{low:+.3f}, {high:+.3f}]"
            for mean, low, high in (scores["f1"], scores["soft_em_tokens"])
        ]
        table.add_row(f"{first} - {second}", *cells)
    return table


def _score(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None or interval is None:
        return "-"
    return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"
