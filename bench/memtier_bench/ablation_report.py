"""Render the reports of `memtier bench ablation`, and of tables made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from memtier_bench.answers import SCORES
from memtier_bench.tables import (
    Report,
    ReportTable,
    Section,
    format_share,
    format_signed,
)

_METRICS: Final = {"recall@1": "recall@1", "recall@10": "recall@10", "injected_recall": "injected"}
_MEGABYTE: Final = 1_000_000


def ablations_view(report: Report) -> list[Section]:
    """Return the sections of each data set of a report on several."""
    return [section for part in report["parts"] for section in ablation_view(part)]


def ablation_view(report: Report) -> list[Section]:
    """Return for each profile a table of its variants, and one of the intervals."""
    if report["dataset"] == "judgement":
        return [section for p in report["profiles"] for section in _judged(p, report["questions"])]
    finished, conversations = report["conversations"]
    head = " · ".join(
        (
            report["dataset"],
            "ablation",
            f"facts {report['facts']} ({report['facts_stored']})",
            f"{report['questions']} questions",
            *([f"{report['quiet']} prompts that need no memory"] if report["quiet"] else []),
            *([f"{report['foreign']} foreign questions"] if report["foreign"] else []),
            *([f"{finished} of {conversations} conversations"] if finished < conversations else []),
        )
    )
    count = sum(len(profile["rows"]) for profile in report["profiles"])
    note = (
        "Beside each figure: the difference to the profile as it is; * where 0 lies outside its "
        f"95 % interval, which chance does to {count / 20:.1f} of {count} variants without effect."
    )
    shown: list[Section] = [head]
    for profile in report["profiles"]:
        metrics = _metrics_of(report)
        shown += [_figures_table(profile, metrics), _intervals_table(profile, metrics)]
    if not report["facts_stored"]:
        shown.append("Without facts there is no Stage 1; give it some with --facts.")
    return [*shown, note]


def _metrics_of(report: Report) -> dict[str, str]:
    metrics = dict(_METRICS)
    metrics |= {"soft_em": "soft-EM", "f1": "F1"} if report["reader"] else {}
    metrics |= {"silent": "silent"} if report["quiet"] else {}
    metrics |= {"foreign_silent": "of foreign"} if report["foreign"] else {}
    return metrics


def _figures_table(profile: Report, metrics: Mapping[str, str]) -> ReportTable:
    sized = any(row["index_bytes"] for row in (profile["base"], *profile["rows"]))
    columns = (*metrics.values(), "tokens", "ms", *(["index, MB"] if sized else []))
    table = ReportTable((profile["profile"], *columns))
    for row in _grouped(table, profile):
        cells = [_format_change(row, metric) for metric in metrics]
        cells += [f"{row['injected_tokens']:.0f}", f"{row['latency_ms']['p50']:.1f}"]
        cells += [f"{row['index_bytes'] / _MEGABYTE:.2f}"] if sized else []
        table.add_row(row["name"], *cells)
    return table


def _grouped(table: ReportTable, profile: Report) -> Iterator[Report]:
    """Yield the rows, the unchanged profile first, with a rule before each group."""
    group = ""
    for row in ({"group": "", "name": "as it is", **profile["base"]}, *profile["rows"]):
        if row["group"] != group:
            table.add_row()
            group = row["group"]
        yield row


def _intervals_table(profile: Report, metrics: Mapping[str, str]) -> ReportTable:
    title = "intervals of 95 % of the differences, by bootstrap over the questions"
    names = {**metrics, "tokens": "tokens"}
    table = ReportTable((profile["profile"], *names.values()), title=title)
    for row in profile["rows"]:
        changes = (row["difference"].get(metric) for metric in names)
        table.add_row(row["name"], *(_format_interval(change) for change in changes))
    return table


def _format_interval(change: Report | None) -> str:
    if change is None:
        return "-"
    return f"{format_signed(change['low'])} to {format_signed(change['high'])}"


def _judged(profile: Report, questions: int) -> list[Section]:
    """Return the scores of the judgement sets; differences are in the shares judged right."""
    sets = [*profile["base"]["scores"]]
    head = (
        f"judgement · ablation · {questions} judgements; the score of each set, and the change of "
        "the share that is judged right with its interval of 95 %; * where 0 lies outside"
    )
    table = ReportTable((profile["profile"], *sets, "ms"))
    for row in _grouped(table, profile):
        cells = []
        for name in sets:
            change = row.get("difference", {}).get(name)
            star = "*" if change and change["real"] else ""
            moved = change and (change["low"] or change["high"])
            cells.append(
                format_share(row["scores"][name])
                + (f" [{_format_interval(change)}]{star}" if moved else "")
            )
        table.add_row(row["name"], *cells, f"{row['latency_ms']['p50']:.1f}")
    return [head, table]


def _format_change(row: Report, metric: str) -> str:
    """Format a figure and, for a variant, its difference from the base."""
    name, _, cutoff = metric.partition("@")
    figures = row["answers"]["memory"] if metric in SCORES else row
    value = figures[name][cutoff] if cutoff else figures[name]
    change = row.get("difference", {}).get(metric)
    if change is None:
        return f"{format_share(value)} {' ' * 7}"  # pad to keep figures aligned
    return f"{value:.3f} {format_signed(change['difference'])}{'*' if change['real'] else ' '}"


# -- tables of systems -----------------------------------------------------------------------------


def systems_view(report: Report) -> list[Section]:
    """Return a table of systems by category, and one of their scores with intervals."""
    head = f"{report['paper']}: {report['title']}; {report['questions']} questions of "
    head += f"{report['dataset']}, facts: {report['facts']}"
    categories = [*report["rows"][0]["by_category"]]
    scores = ReportTable((report["score"], "all", "interval", "n", "difference", "interval", "ms"))
    table = ReportTable((f"{report['score']} by category", *categories, "all"))
    for row in report["rows"]:
        change = row["difference"]
        scores.add_row(
            row["name"],
            format_share(row["value"]),
            "{:.3f} to {:.3f}".format(*row["interval"]),
            str(row["questions"]),
            format_signed(change["difference"]) + ("*" if change["real"] else "") if change else "",
            _format_interval(change) if change else "",
            "-" if row["ms"] is None else f"{row['ms']:.1f}",
        )
        cells = (format_share(row["by_category"].get(name)) for name in categories)
        table.add_row(row["name"], *cells, format_share(row["value"]))
    note = "" if report["reader"] else "Accuracy and F1 need a model that answers: --reader."
    return [head, scores, table, *([note] if note else [])]
