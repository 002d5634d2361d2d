"""Render the reports of `memtier bench sets`, `silence` and `judgement`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from memtier_bench.tables import Report, ReportTable, Section

_SILENCE_COLUMNS: Final = ("prompts", "silent", "95 %", "tokens", "lines", "answered", "loss")


def sets_view(report: Report) -> list[Section]:
    """Return the paragraphs and tables of a report on sets."""
    sets, baseline = report["sets"], report["baseline"]
    questions = sum(row["questions"] for row in sets.values())
    head = (
        f"sets · {report['profile']} · facts {report['facts']} · MemTier {report['version']}\n"
        f"{questions} questions of {len(sets)} sets, each with the same weight in the mean; "
        f"beside MemTier {baseline} in the same run"
    )
    table = ReportTable(
        ("", "@1", "@5", "@10", "MRR", f"{baseline} @1", "@5", "@10", "MRR", "@10 - its", "n")
    )
    blocks = ReportTable(
        ("in the block", "injected", "tokens", "p50 ms", "p95 ms", "search p50", "p95", "turns/s")
    )
    for name, row in sets.items():
        change = row["than_baseline"]["recall@10"]
        difference = f"{change['difference']:+.3f}{'*' if change['real'] else ' '}"
        table.add_row(name, *_ranking_cells(row), difference, str(row["questions"]))
        ingest, speeds = row["ingest"], (row["inject_latency_ms"], row["latency_ms"])
        rate = ingest["turns"] / max(ingest["seconds"], 1e-9)
        times = (f"{speed[p]:.1f}" for speed in speeds for p in ("p50", "p95"))
        blocks.add_row(name, *_block_cells(row), *times, f"{rate:.0f}")
    macro = report["macro"]
    gap = macro["recall"]["10"] - macro["baseline"]["recall"]["10"]
    table.add_row()
    table.add_row("mean", *_ranking_cells(macro), f"{gap:+.3f} ", str(questions))
    blocks.add_row()
    blocks.add_row("mean", *_block_cells(macro), "", "", "", "", "")
    notes = (
        "* differs beyond chance (95 %, paired)\n"
        "a search asks each question first, so that the recall for the block finds it warm"
    )
    return [head, table, blocks, notes]


def _ranking_cells(row: Report) -> Iterator[str]:
    for figures in (row, row["baseline"]):
        yield from (f"{figures['recall'][k]:.3f}" for k in ("1", "5", "10"))
        yield f"{figures['mrr']:.3f}"


def _block_cells(row: Report) -> tuple[str, str]:
    return f"{row['injected_recall']:.3f}", f"{row['injected_tokens']:.0f}"


def silence_view(report: Report) -> list[Section]:
    """Return the paragraphs and tables of a report on silence."""
    reference = report["compared_with"]
    loss = (
        f"loss: own questions that {reference} answers, and this floor does not"
        if reference
        else "there is no retrieval.floor to compare: figures of the settings as they are"
    )
    head = (
        f"silence · {report['data']} · {report['profile']} · MemTier {report['version']}\n"
        "own: the conversation's questions; foreign: another one's, names exchanged; generic: "
        f"{report['prompts']} prompts that need no memory\n"
        f"answered: a gold line stands in the block; {loss}"
    )
    sections: list[Section] = [head, _silence_table("retrieval.floor", report["floors"])]
    sections += [_silence_table(name, floors) for name, floors in report["sets"].items()]
    for row in report["sizes"]:
        made_up = f", {row['made_up']:,} made up" if row["made_up"] else ""
        sections.append(_silence_table(f"{row['lines']:,} lines{made_up}", row["floors"]))
    for part in ("by_language", "by_kind"):
        sections.append(_generic_table(part, report["floors"]))
    return sections


def _silence_table(name: str, floors: Mapping[str, Report]) -> ReportTable:
    table = ReportTable((name, *_SILENCE_COLUMNS))
    for floor, figures in floors.items():
        if table.rows:
            table.add_row()
        for kind in ("own", "foreign", "generic"):
            row = figures[kind]
            low, high = row["interval"]
            table.add_row(
                f"{floor}: {kind}",
                str(row["prompts"]),
                _format(row["silent"]),
                f"[{low:.3f}, {high:.3f}]",
                _format(row["tokens"], 0),
                _format(row["lines"], 1),
                _format(row.get("answered")),
                _format(row.get("loss")),
            )
    return table


def _generic_table(part: str, floors: Mapping[str, Report]) -> ReportTable:
    """Return the share of generic prompts without a line, by language or kind."""
    label = part.replace("_", " ")
    table = ReportTable((f"generic, silent {label}", "prompts", *floors))
    first = next(iter(floors.values()))["generic"][part]
    for group, row in first.items():
        shares = (_format(figures["generic"][part][group]["silent"]) for figures in floors.values())
        table.add_row(group, str(row["prompts"]), *shares)
    return table


def _format(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def judgement_view(report: Report) -> list[Section]:
    """Return the paragraphs and tables of a report on judgement."""
    head = (
        f"judgement · {report['profile']} · MemTier {report['version']}\n"
        "1 is perfect; where a set has two sides, always or never speaking scores 0"
    )
    table = ReportTable(("", "share", "of"))
    for name, row in report["sets"].items():
        if table.rows:
            table.add_row()
        table.add_row(f"{name}: score", f"{row['score']:.3f}", "")
        for part, share in row["parts"].items():
            table.add_row(f"  {part}", f"{share:.3f}", str(row["of"][part]))
        for figure, value in row["mean"].items():
            table.add_row(f"  mean {figure}", f"{value:.2f}", "")
        for quantile in ("p50", "p95"):
            if row["latency_ms"]["p50"]:
                table.add_row(f"  recall {quantile}, ms", f"{row['latency_ms'][quantile]:.1f}", "")
    return [head, table, *_failures(report["sets"])]


def _failures(sets: Mapping[str, Report]) -> Iterator[str]:
    for name, row in sets.items():
        for failure in row["failures"]:
            details = {key: value for key, value in failure.items() if key != "part"}
            lines = [f"{name}, {failure['part']}:", *map(_describe, details.items())]
            yield "\n".join(lines)


def _describe(detail: tuple[str, Any]) -> str:
    name, value = detail
    shown = " / ".join(value) or "nothing" if isinstance(value, list) else value
    return f"  {name}: {shown}"
