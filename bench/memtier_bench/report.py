"""Render a benchmark's report on a console or as Markdown, from the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from memtier_bench.ablation_report import ablation_view, ablations_view, systems_view
from memtier_bench.answers import SCORES
from memtier_bench.answers_report import answers_view
from memtier_bench.attribution import attribution_view
from memtier_bench.code_marks import code_view
from memtier_bench.consolidation_report import consolidation_view
from memtier_bench.durability_report import durability_view
from memtier_bench.gate_report import gate_view
from memtier_bench.grid_report import grid_view
from memtier_bench.learning_report import gate_check_view, learners_view
from memtier_bench.peers.report import peers_view
from memtier_bench.recipes import recipes_view
from memtier_bench.router_learning_report import router_learning_view
from memtier_bench.router_report import router_view
from memtier_bench.serve_report import serve_view
from memtier_bench.shared_report import shared_view
from memtier_bench.speech_report import judgement_view, sets_view, silence_view
from memtier_bench.tables import (
    Report,
    ReportTable,
    Section,
    format_share,
    format_signed,
)
from memtier_bench.telemetry_report import telemetry_view
from memtier_bench.tiers_report import tiers_view
from memtier_bench.trees_report import trees_view
from memtier_bench.uplift import uplift_view
from memtier_bench.work.report import work_view

if TYPE_CHECKING:
    from rich.console import Console


CATEGORY_METRICS: Final = ("recall@10", "silent", "right")  # metrics compared by category


def report_sections(report: Report) -> list[Section]:
    """Return the paragraphs and tables of any report of `memtier bench`."""
    return VIEWS.get(report.get("kind", report["dataset"]), _retrieval_sections)(report)


def print_report(report: Report, console: Console) -> None:
    """Print a report on a console."""
    from rich import box
    from rich import table as rich_table

    for section in report_sections(report):
        if isinstance(section, str):
            console.print(section, markup=False, highlight=False)
            continue
        shown = rich_table.Table(
            box=box.SIMPLE,
            title=section.title or None,
            title_justify="left",
            collapse_padding=True,
        )
        for index, column in enumerate(section.columns):
            # Wrap long names: a truncated one would be ambiguous.
            shown.add_column(column, justify="right" if index else "left", overflow="fold")
        for row in section.rows:
            if row:
                shown.add_row(*row)
            else:
                shown.add_section()
        console.print(shown, markup=False)


def markdown(report: Report) -> str:
    """Return a report as a Markdown document."""
    parts = []
    for section in report_sections(report):
        if isinstance(section, str):
            parts.append("  \n".join(section.splitlines()))  # two spaces force a line break
            continue
        if section.title:
            parts.append(f"## {section.title}")
        rule = [":--", *("--:" for _ in section.columns[1:])]
        lines = [section.columns, rule, *(row for row in section.rows if row)]
        parts.append("\n".join(f"| {' | '.join(map(_escape_cell, line))} |" for line in lines))
    return "\n\n".join([f"# memtier bench: {report['dataset']}", *parts]) + "\n"


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _retrieval_sections(report: Report) -> list[Section]:
    return [_summary_text(report), _ranking_table(report), *_answer_tables(report)]


def _summary_text(report: Report) -> str:
    ingest, latency = report["ingest"], report["latency_ms"]
    rate = ingest["turns"] / max(ingest["seconds"], 1e-9)
    milliseconds = ", ".join(f"{name} {value:.1f}" for name, value in latency.items())
    lines = [
        " · ".join((report["dataset"], report["profile"], f"facts {report['facts']}")),
        f"{report['questions']} questions; {report['skipped']} without evidence were skipped",
        f"{report['unresolved']} evidence ids name no turn of their conversation",
        f"{ingest['turns']} turns ingested in {ingest['seconds']:.1f} s ({rate:.0f}/s)",
        f"recall {milliseconds} ms; peak memory {report['peak_rss_mb']:.0f} MB",
    ]
    if report["facts"] != "none":
        each = report["facts_stored"] / max(1, report["questions"])
        lines.append(f"{report['facts_stored']} facts in force, {each:.1f} a question")
    if report["injected_recall"] is not None:
        lines.append(
            f"injected recall {format_share(report['injected_recall'])} "
            f"at {report['injected_tokens']:.0f} tokens a block"
        )
    return "\n".join(lines)


def _ranking_table(report: Report) -> ReportTable:
    table = ReportTable(("", *(f"@{k}" for k in report["recall"]), "MRR", "injected", "n"))
    for name in ("recall", "hit", "all", "ndcg"):
        label = {"ndcg": "nDCG"}.get(name, name)
        table.add_row(
            label,
            *map(format_share, report[name].values()),
            *_tail_cells(report, name == "recall"),
        )
    table.add_row()
    for name, row in report["by_category"].items():
        table.add_row(name, *map(format_share, row["recall"].values()), *_tail_cells(row, True))
    return table


def _tail_cells(row: Report, shown: bool) -> tuple[str, ...]:
    if not shown:
        return ("", "", "")
    return format_share(row["mrr"]), format_share(row["injected_recall"]), str(row["questions"])


def _answer_tables(report: Report) -> Iterable[ReportTable]:
    """Yield the reader's scores with intervals, and by category as in MemTier, Table 1."""
    answers: Mapping[str, Report] = report.get("answers", {})
    if not answers:
        return
    title = f"Answers of {report['reader']}, with intervals of 95 %"
    table = ReportTable(("given", "soft-EM", "by tokens", "F1", "tokens read"), title=title)
    for name, row in answers.items():
        table.add_row(name, *(_format_score(row, s) for s in SCORES), f"{row['prompt_tokens']:.0f}")
    if "oracle" in answers and "memory" in answers:
        table.add_row()
        gaps = (answers["oracle"][score] - answers["memory"][score] for score in SCORES)
        table.add_row("oracle - memory", *map(format_signed, gaps), "")
    yield table
    categories = dict.fromkeys(name for row in answers.values() for name in row["by_category"])
    table = ReportTable(("soft-EM, by category", "n", *answers))
    for category in categories:
        rows = [row["by_category"].get(category) for row in answers.values()]
        count = max(row["questions"] for row in rows if row)
        table.add_row(category, str(count), *(format_share(row and row["soft_em"]) for row in rows))
    yield table


def _format_score(row: Report, score: str) -> str:
    low, high = row[f"{score}_interval"]
    return f"{row[score]:.3f} [{low:.3f}, {high:.3f}]"


# Label and path in a size's figures, by part of the table.
_SCALE_INGEST: Final = {
    "ingest, entries/s": "entries_per_s",
    "the model's own encoding, texts/s": "encoded_per_s",
    "ingest as a share of it": "ingest_share_of_encoding",
    "tokens of a new entry, mean": "ingest.mean_tokens",
    "index, bytes/entry": "bytes_per_entry",
}
_SCALE_RECALLS: Final = {
    "import MemTier, ms": "import_ms",
    "first recall of a process, ms": "cold_ms",
    **{f"warm recall {p}, ms": f"latency_ms.{p}" for p in ("p50", "p95", "p99")},
    "rank-bm25 scan of all entries, ms": "rank_bm25_ms",
    "times faster (p50)": "ratio_to_rank_bm25",
    "rank-bm25 scan of the agent's, ms": "rank_bm25_agent_ms",
    "times faster (p50) than that": "ratio_to_rank_bm25_of_agent",
    "exact numpy scan of all vectors, ms": "numpy_ms",
    "peak memory, MB": "peak_rss_mb",
}
_SCALE_READS: Final = {
    "postings read, mean": "postings_read",
    "postings read, most": "postings_read_max",
    "vectors read, mean": "vectors_read",
    "vectors read, most": "vectors_read_max",
}
_SCALE_PLANTED: Final = {
    "planted lines, recall@10": "planted_recall10",
    "asked in their words": "planted_recall10_by.own_words",
    "asked by paraphrase": "planted_recall10_by.paraphrase",
}


def _scale_sections(report: Report) -> list[Section]:
    sizes = report["sizes"]
    head = (
        f"scale · {report['source']} · {report['agents']} agents · {report['planted']} planted "
        f"lines · {report['recalls']:,} warm recalls of {report['queries']} queries in a fresh "
        f"process at each size · MemTier {report['version']}"
    )
    table = ReportTable(("", *(f"{size['entries']:,} entries" for size in sizes)))

    def rows(paths: Mapping[str, str], shown: Callable[[Any], str] = _format_figure) -> None:
        for label, path in paths.items():
            table.add_row(label, *(shown(_value_at(size, path)) for size in sizes))

    rows(_SCALE_INGEST)
    table.add_row()
    rows(_SCALE_RECALLS)
    rows({"recalls are labelled": "labels"}, ", ".join)
    table.add_row()
    rows(_SCALE_READS)
    table.add_row()
    rows(_SCALE_PLANTED, format_share)
    table.add_row()
    rows({f"{part}, MB": f"files_mb.{part}" for part in sizes[-1]["files_mb"]})
    pairs = (pair.split("/") for pair in report["p95_ratios"])
    ratios = [
        f"p95({int(large):,}) / p95({int(small):,}) = {_format_figure(ratio)}"
        for (large, small), ratio in zip(pairs, report["p95_ratios"].values(), strict=True)
    ]
    return [head, table, *(["\n".join(ratios)] if ratios else [])]


def _value_at(size: Report, path: str) -> Any:
    """Return a size's value at a dotted path; None if it was not measured."""
    value: Any = size
    for key in path.split("."):
        value = value.get(key) if value is not None else None
    return value


def _format_figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _languages_sections(report: Report) -> list[Section]:
    figures = ("recall5", "mrr", "recall5_no_grams", "recall5_stemmed")
    columns = ("recall@5", "MRR", "@5 without n-grams", "@5 with its stems")
    table = ReportTable(("", "lines", "questions", *columns))
    for row in report["sets"]:
        shares = (format_share(row[figure]) for figure in figures)
        table.add_row(row["language"], str(row["lines"]), str(row["questions"]), *shares)
    return [table]


def _compare_sections(report: Report) -> list[Section]:
    names = [
        f"{side}: {row['profile']}, facts {row['facts']} ({row['file']})"
        for side, row in (("A", report["ours"]), ("B", report["theirs"]))
    ]
    lines = [f"{report['dataset']} · {report['questions']} questions", *names]
    lines += [
        f"{key}: {ours!r} in A, {other!r} in B" for key, (ours, other) in report["settings"].items()
    ]
    columns = ("A", "B", "A - B", "95 %", "p", "real?", "n")
    table = ReportTable(("", *columns))
    for metric, row in report["metrics"].items():
        table.add_row(metric, *_difference_cells(row))
    by_category = []
    for metric in CATEGORY_METRICS:
        rows = ReportTable((f"{metric} by category", *columns))
        for category, metrics in report["by_category"].items():
            if metric in metrics:
                rows.add_row(category, *_difference_cells(metrics[metric]))
        by_category += [rows] if rows.rows else []
    note = (
        f"real: 0 lies outside the interval ({report['samples']:,} resamples of the questions); "
        "of twenty comparisons without a difference one looks real."
    )
    return ["\n".join(lines), table, *by_category, note]


def _difference_cells(row: Report) -> tuple[str, ...]:
    return (
        format_share(row["ours"]),
        format_share(row["theirs"]),
        format_signed(row["difference"]),
        f"{format_signed(row['low'])} to {format_signed(row['high'])}",
        f"{row['p']:.4f}",
        "yes" if row["real"] else "no",
        str(row["questions"]),
    )


def _learning_sections(report: Report) -> list[Section]:
    earned = f"soft-EM of {report['reader']}" if report["reader"] else "evidence injected"
    head = (
        f"{report['dataset']} · weights of eq. 2 learned from {report['questions']} questions, "
        f"{report['rewarded']} of them rewarded ({earned})"
    )
    table = ReportTable(("weight", "before", "after", "moved", "spread of weight x signal"))
    for row in report["weights"]:
        # A signal without spread over the candidates cannot have been learned.
        spread = f"{row['spread']:.3f}" if row["spread"] else "none: moved by chance"
        moved = format_signed(row["after"] - row["before"])
        table.add_row(
            row["name"], format_share(row["before"]), format_share(row["after"]), moved, spread
        )
    tail = (
        f"{earned}: {report['right_before']} before, {report['right_after']} after; "
        f"the block changed for {report['blocks_changed']} questions"
    )
    return [head, table, tail]


def _paper_table_sections(report: Report) -> list[Section]:
    name = f"Table {report['table']}" if report["table"].isdigit() else "Appendix E"
    shown: list[Section] = [f"{name} of the MemTier paper: {report['title']}"]
    for part in report["parts"]:
        shown += [f"--- {part['name']} ---"] if part["name"] else []
        shown += report_sections(part["report"])
    if report["table"] != "5" and not report["parts"][0]["report"]["reader"]:
        shown.append("Accuracy and F1 need a model that answers: --reader, --reader-model.")
    return shown


def _steps_sections(report: Report) -> list[Section]:
    """Return what multi-turn retrieval covers after each step, beside one recall."""
    columns = ("after step", "coverage", "one recall", "difference", "95 % interval", "tokens")
    table = ReportTable(columns)
    for row in report["steps"]:
        table.add_row(
            str(row["step"]),
            format_share(row["coverage"]),
            format_share(row["one_recall"]),
            format_signed(row["difference"]),
            f"{format_signed(row['low'])} to {format_signed(row['high'])}",
            str(row["tokens"]),
        )
    head = f"{report['dataset']} · steps · {report['questions']} multi-hop questions"
    by = "an oracle" if report["planner"] == "oracle" else "rules"
    note = f"Coverage of the gold turns by searches of {by}; one recall has as many tokens."
    return [head, table, note]


def _facts_sections(report: Report) -> list[Section]:
    spent, sample = report["consolidation"], report["sample"]
    rate = spent["entries"] / max(spent["seconds"], 1e-9)
    head = (
        f"facts · {report['dataset']} · {report['by'] or 'rules'} · MemTier {report['version']}\n"
        f"{report['facts']} facts of {report['turns']} turns: {report['per_100_turns']:.1f} per 100"
        f", {report['proposed']} of them proposed"
        f"\n{spent['entries']} entries consolidated in {spent['seconds']:.1f} s ({rate:.0f}/s)"
    )
    counts = ReportTable(("", "n"), title="By relation, and what was left out")
    for part in ("relations", "rejected"):
        counts.add_row()
        for name, count in report[part].items():
            counts.add_row(name, str(count))
    recalls = ReportTable(("facts given", "recall@1", "recall@10", "injected", "tokens"))
    for name, row in report["recall"].items():
        cells = [format_share(row["recall"]["1"]), format_share(row["recall"]["10"])]
        for column, metric in enumerate(("recall@1", "recall@10")):
            if change := row["than_none"].get(metric):
                star = "*" if change["real"] and name != "none" else " "
                cells[column] += f" {format_signed(change['difference'])}{star}"
        tokens = f"{row['injected_tokens']:.0f}"
        recalls.add_row(name, *cells, format_share(row["injected_recall"]), tokens)
    questions = f"{report['questions']} questions; * differs from none beyond chance (95 %, paired)"
    drawn = f"{sample['facts']} facts drawn to be judged, with seed {sample['seed']}"
    return [head, counts, recalls, questions, drawn, *_judged_sections(report["judged"])]


def _judged_facts_sections(report: Report) -> list[Section]:
    head = f"judged facts · {report['facts']} in the sample · MemTier {report['version']}"
    return [head, *_judged_sections(report["judged"])]


def _judged_sections(judged: Report | None) -> Iterable[Section]:
    if judged is None:
        return
    heads = ("true", "self-contained", "complete", "useful", "dated", "all five")
    names = ("true", "self_contained", "complete", "useful", "dated", "all")
    for judge in judged["judges"]:
        title = f"Judged by the rubric ({judge['file']}), with intervals of 95 %"
        table = ReportTable(("", "n", *heads), title=title)
        cells = (
            f"{format_share(judge[n]['share'])} {_format_interval(judge[n]['interval'])}"
            for n in names
        )
        table.add_row("all", str(judge["facts"]), *cells)
        for part in ("by_conversation", "by_relation"):
            table.add_row()
            for name, row in judge[part].items():
                shares = (format_share(row[n]["share"]) for n in names)
                table.add_row(name, str(row["facts"]), *shares)
        yield table
        yield (
            f"{judge['missing']} of the sample without a judgement; {judge['stale']} judgements "
            "of facts that are not in it as it reads now: neither counts"
        )
    if agreement := judged["agreement"]:
        table = ReportTable(("", *heads), title=f"Agreement on {agreement['facts']} facts")
        for label, key in (("met by all", "met_by_all"), ("agreed", "agreed"), ("kappa", "kappa")):
            values = (agreement[name][key] for name in names)
            table.add_row(label, *("–" if v is None else f"{v:.3f}" for v in values))
        yield table


def _format_interval(interval: Iterable[float]) -> str:
    return "[{:.3f}, {:.3f}]".format(*interval)


VIEWS: Final[Mapping[str, Callable[[Report], list[Section]]]] = {
    "ablation": ablation_view,
    "ablations": ablations_view,
    "answers": answers_view,
    "attribution": attribution_view,
    "compare": _compare_sections,
    "consolidation": consolidation_view,
    "durability": durability_view,
    "telemetry": telemetry_view,
    "facts": _facts_sections,
    "gate": gate_view,
    "gate_check": gate_check_view,
    "grid": grid_view,
    "hmo": tiers_view,
    "judged_facts": _judged_facts_sections,
    "judgement": judgement_view,
    "languages": _languages_sections,
    "learners": learners_view,
    "learning": _learning_sections,
    "code": code_view,
    "peers": peers_view,
    "recipes": recipes_view,
    "router": router_view,
    "router_learning": router_learning_view,
    "scale": _scale_sections,
    "sets": sets_view,
    "serve": serve_view,
    "shared": shared_view,
    "silence": silence_view,
    "steps": _steps_sections,
    "systems": systems_view,
    "table": _paper_table_sections,
    "trees": trees_view,
    "uplift": uplift_view,
    "work": work_view,
}
