"""Render the report of `memtier bench peers`."""

from __future__ import annotations

from collections.abc import Iterator

from memtier_bench.tables import Report, ReportTable, Section

_COLUMNS = {
    "recall": "recall",
    "foreign": "silent, foreign",
    "generic": "needless",
    "needed": "needed",
    "misled": "misled",
    "right": "right",
    "change": "currency",
    "correction": "corrections",
    "who": "identity",
}
_ALWAYS = ("foreign", "generic")  # a budget changes neither


def peers_view(report: Report) -> list[Section]:
    """Return the table of each system as it comes, and that of equal tokens."""
    prompts = report["prompts"]
    head = (
        f"peers · MemTier {report['version']} · {report['machine']}\n"
        f"{prompts['talk']} questions of LoCoMo, {prompts['foreign']} foreign and "
        f"{prompts['generic']} needless prompts; {prompts['work']} probes of work; "
        f"{prompts['identity']} checks of identity"
    )
    budgets = report["budgets"]
    equal = f"At equal tokens: {budgets['talk']} a question, {budgets['work']} a probe"
    return [
        head,
        _table(report, "default", "As it comes"),
        _table(report, "equal", equal),
        *_notes(report),
    ]


def _table(report: Report, kind: str, title: str) -> ReportTable:
    usual = kind == "default"
    names = [name for name in _COLUMNS if usual or name not in _ALWAYS]
    more = ("tokens, talk / work", "ms", "MB") if usual else ()
    table = ReportTable(("", *(_COLUMNS[name] for name in names), *more), title=title)
    for name, row in report["peers"].items():
        if figures := row.get(kind):
            cells = [_share(figures[column]) for column in names]
            if usual:
                cells.append(f"{figures['talk_tokens']:.0f} / {figures['work_tokens']:.0f}")
                stored = row["bytes"]
                cells += [f"{row['ms']:.1f}", "-" if stored is None else f"{stored / 1e6:.1f}"]
            table.add_row(name, *cells)
    return table


def _notes(report: Report) -> Iterator[Section]:
    for name, row in report["peers"].items():
        if name == "minilm" and report["threshold"]:
            yield f"{name}: {row['version']}; {row['how']}: {report['threshold']}"
        elif "failed" in row:
            yield f"{name}: {row['version']}; not run: {row['failed']}"
        else:
            yield f"{name}: {row['version']}; {row['how']}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".replace("0.", ".", 1)
