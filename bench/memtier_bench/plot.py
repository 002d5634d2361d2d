"""Draw a benchmark's report as an SVG file with matplotlib (the extra `bench`).

The output is deterministic: the same report gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memtier_bench.answers import SCORES
from memtier_bench.report import CATEGORY_METRICS
from memtier_bench.tables import Report
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.installation import install_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PLAIN: Final = "tab:gray"
_REAL: Final = "tab:blue"
_ROW: Final = 0.22  # height of a row in a chart of differences

_PERCENTILES: Final = ("p50", "p95", "p99")
_SCANS: Final = {"rank-bm25 scan": "rank_bm25_ms", "exact numpy scan": "numpy_ms"}

DifferenceRows = Sequence[tuple[str, Report | None]]


def require(path: Path) -> None:
    """Check that a plot can be drawn, before measuring for it.

    Raises:
        Unsupported: matplotlib is not installed, or the file is not to be an SVG.
    """
    if path.suffix.lower() != ".svg":
        raise Unsupported(f"{path}: plots are SVG; name the file *.svg")
    if find_spec("matplotlib") is None:
        command = install_command("memtier-bench[plot]")
        raise Unsupported(f"--plot needs matplotlib, which is missing: run `{command}`")


def draw(report: Report, path: Path) -> None:
    """Draw the figures of any report of `memtier bench`.

    Raises:
        Unsupported: matplotlib is not installed, or the file is not to be an SVG.
    """
    require(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Fixed ids, and text kept as text.
    with rc_context({"svg.hashsalt": "memtier", "svg.fonttype": "none"}):
        figure = Figure(layout="constrained")
        _drawing_for(report)(report, figure)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _draw_retrieval(report: Report, figure: Figure) -> None:
    answers: Report = report.get("answers", {})
    figure.set_size_inches(11 if answers else 6, 4.5)
    first, *others = figure.subplots(1, 2 if answers else 1, squeeze=False)[0]
    for name, row in report["by_category"].items():
        first.plot([*row["recall"]], [*row["recall"].values()], marker=".", lw=1, label=name)
    every = report["recall"]
    first.plot([*every], [*every.values()], marker="o", lw=2.5, color="black", label="all")
    first.set(
        title=f"{report['dataset']}, {report['profile']}: {report['questions']} questions",
        xlabel="k",
        ylabel="recall@k",
        ylim=(0, 1),
    )
    first.legend(fontsize="small")
    for axes in others:
        _draw_scores(axes, answers, report["reader"])


def _draw_answers(report: Report, figure: Figure) -> None:
    figure.set_size_inches(6, 4.5)
    _draw_scores(figure.subplots(), report["arms"], report["reader"]["model"])


def _draw_scores(axes: Axes, answers: Report, reader: str) -> None:
    _draw_bars(
        axes,
        {name: [row[score] for score in SCORES] for name, row in answers.items()},
        [[row[f"{score}_interval"] for score in SCORES] for row in answers.values()],
    )
    axes.set_xticks(range(len(SCORES)), ["soft-EM", "by tokens", "F1"])
    axes.set(title=f"answers of {reader}, 95 % intervals", ylim=(0, 1))


def _draw_bars(
    axes: Axes,
    groups: Mapping[str, Sequence[float]],
    intervals: Sequence[Sequence[Sequence[float]]] = (),
) -> None:
    """Draw grouped bars, with intervals if given."""
    width = 0.8 / len(groups)
    for number, (name, values) in enumerate(groups.items()):
        places = [index + (number - (len(groups) - 1) / 2) * width for index in range(len(values))]
        axes.bar(places, values, width, label=name)
        if intervals:
            low, high = zip(*intervals[number], strict=True)
            axes.errorbar(
                places, values, _error_bars(values, low, high), fmt="none", ecolor="black"
            )
    axes.legend(fontsize="small")


def _draw_compare(report: Report, figure: Figure) -> None:
    # Token counts are not shares, and would squeeze everything else.
    rows = [(name, row) for name, row in report["metrics"].items() if name != "tokens"]
    rows += [
        (f"{metric}, {category}", metrics[metric])
        for metric in CATEGORY_METRICS
        for category, metrics in report["by_category"].items()
        if metric in metrics
    ]
    figure.set_size_inches(7, 1.2 + _ROW * len(rows))
    _draw_differences(figure.subplots(), rows)
    names = " - ".join(report[side]["profile"] for side in ("ours", "theirs"))
    figure.suptitle(f"{report['dataset']}: {names}, 95 % intervals", fontsize="medium")


def _draw_ablation(report: Report, figure: Figure) -> None:
    profiles = [profile for profile in report["profiles"] if profile["rows"]]
    metrics = ["recall@10", "injected_recall", *(["soft_em"] if report["reader"] else [])]
    heights = [1.2 + _ROW * len(profile["rows"]) for profile in profiles]
    figure.set_size_inches(4 + 3 * len(metrics), sum(heights))
    grid = figure.subplots(
        len(profiles), len(metrics), squeeze=False, sharey="row", height_ratios=heights
    )
    for axes, profile in zip(grid, profiles, strict=True):
        for cell, metric in zip(axes, metrics, strict=True):
            _draw_differences(
                cell, [(row["name"], row["difference"].get(metric)) for row in profile["rows"]]
            )
            cell.set_title(f"{profile['profile']}: change of {metric}", fontsize="medium")


def _draw_ablations(report: Report, figure: Figure) -> None:
    """Draw the variants of each data set, one below the other."""
    profiles = [
        {**profile, "profile": f"{part['dataset']}, {profile['profile']}"}
        for part in report["parts"]
        for profile in part["profiles"]
    ]
    reader = any(part["reader"] for part in report["parts"])
    _draw_ablation({"profiles": profiles, "reader": reader}, figure)


def _draw_differences(axes: Axes, rows: DifferenceRows) -> None:
    """Draw differences with intervals, from top to bottom; significant ones in colour."""
    for index, (_, row) in enumerate(rows):
        if row is not None:
            error_bars = _error_bars([row["difference"]], [row["low"]], [row["high"]])
            color = _REAL if row["real"] else _PLAIN
            axes.errorbar(
                [row["difference"]], [index], xerr=error_bars, fmt="o", ms=4, capsize=2, color=color
            )
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", lw=0.3)


def _error_bars(
    values: Sequence[float], low: Sequence[float], high: Sequence[float]
) -> list[list[float]]:
    """Return the distances of the bounds from the values, clipped at 0, for matplotlib."""
    return [
        [max(0.0, value - bound) for value, bound in zip(values, low, strict=True)],
        [max(0.0, bound - value) for value, bound in zip(values, high, strict=True)],
    ]


def _draw_languages(report: Report, figure: Figure) -> None:
    figure.set_size_inches(9, 4)
    axes = figure.subplots()
    shown = {"recall5": "recall@5", "recall5_no_grams": "without n-grams"}
    _draw_bars(axes, {name: [row[key] for row in report["sets"]] for key, name in shown.items()})
    axes.set_xticks(range(len(report["sets"])), [row["language"] for row in report["sets"]])
    axes.set(ylim=(0, 1), ylabel="recall@5")


def _draw_scale(report: Report, figure: Figure) -> None:
    figure.set_size_inches(6, 4.5)
    axes = figure.subplots()
    sizes = report["sizes"]
    lines = {f"recall {name}": [s["latency_ms"][name] for s in sizes] for name in _PERCENTILES}
    lines |= {label: [s[key] for s in sizes] for label, key in _SCANS.items()}
    for label, values in lines.items():
        points = [(s["entries"], v) for s, v in zip(sizes, values, strict=True) if v is not None]
        if points:  # not every size has a full scan
            axes.plot(*zip(*points, strict=True), marker="o", label=label)
    axes.set(xscale="log", yscale="log", xlabel="entries", ylabel="ms, warm")
    axes.grid(lw=0.3)
    axes.legend(fontsize="small")


def _draw_learning(report: Report, figure: Figure) -> None:
    figure.set_size_inches(6, 4)
    axes = figure.subplots()
    rows = report["weights"]
    _draw_bars(axes, {when: [row[when] for row in rows] for when in ("before", "after")})
    axes.set_xticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_title(f"{report['dataset']}: weights learned from {report['questions']} questions")


def _draw_paper_table(report: Report, figure: Figure) -> None:
    """Draw the single report of a table, or recall@k of several."""
    parts = report["parts"]
    if len(parts) == 1:
        _drawing_for(parts[0]["report"])(parts[0]["report"], figure)
        return
    figure.set_size_inches(6, 4.5)
    axes = figure.subplots()
    for part in parts:
        recall = part["report"]["recall"]
        axes.plot([*recall], [*recall.values()], marker="o", label=part["name"])
    axes.set(xlabel="k", ylabel="recall@k", ylim=(0, 1), title=report["title"])
    axes.legend(fontsize="small")


def _draw_sets(report: Report, figure: Figure) -> None:
    sets = report["sets"]
    figure.set_size_inches(2 + 1.2 * len(sets), 4)
    axes = figure.subplots()
    rows = [*sets.values(), report["macro"]]
    shown = {
        "MemTier @10": [row["recall"]["10"] for row in rows],
        f"{report['baseline']} @10": [row["baseline"]["recall"]["10"] for row in rows],
        "injected": [row["injected_recall"] for row in rows],
    }
    _draw_bars(axes, shown)
    axes.set_xticks(range(len(rows)), [*sets, "mean"], rotation=30, ha="right")
    axes.set(ylim=(0, 1), ylabel="recall")


def _draw_silence(report: Report, figure: Figure) -> None:
    """Draw the operating curve: silence gained against answers lost."""
    figure.set_size_inches(6, 4.5)
    axes = figure.subplots()
    floors = report["floors"]
    relative = report["compared_with"] is not None
    lost = [_lost_share(row["own"], relative) for row in floors.values()]
    for kind in ("generic", "foreign"):
        silent = [row[kind]["silent"] for row in floors.values()]
        points = [(x, y) for x, y in zip(lost, silent, strict=True) if y is not None]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", label=f"{kind} prompts")
    for name, x in zip(floors, lost, strict=True):
        axes.annotate(name, (x, 0.01), rotation=90, fontsize="small", color=_PLAIN)
    axes.set(
        title=f"{report['data']}: silence",
        xlabel=f"own questions that only {report['compared_with']} answers"
        if relative
        else "own questions not answered",
        ylabel="share silent",
        ylim=(0, 1.02),
    )
    axes.grid(lw=0.3)
    axes.legend(fontsize="small")


def _lost_share(figures: Report, relative: bool) -> float:
    return float(figures["loss"] if relative else 1 - figures["answered"])


def _draw_judgement(report: Report, figure: Figure) -> None:
    figure.set_size_inches(6, 3.5)
    axes = figure.subplots()
    sets = report["sets"]
    axes.bar(range(len(sets)), [row["score"] for row in sets.values()])
    axes.set_xticks(range(len(sets)), [*sets])
    axes.axhline(0, color="black", lw=0.8)
    axes.set(ylim=(min(0.0, *(row["score"] for row in sets.values())), 1), ylabel="score")


def _draw_work(report: Report, figure: Figure) -> None:
    figure.set_size_inches(8, 4.5)
    axes = figure.subplots()
    rows = {name: kinds["all"] for name, kinds in report["arms"].items()}
    first = next(iter(rows.values()))
    counted = [each for each in ("needed", "misled", "right") if first[each] is not None]
    _draw_bars(
        axes,
        {name: [row[each][0] for each in counted] for name, row in rows.items()},
        [[row[each][1:] for each in counted] for row in rows.values()],
    )
    axes.set_xticks(range(len(counted)), counted)
    axes.set(title=f"work, {report['set']}: 95 % intervals", ylim=(0, 1))


def _drawing_for(report: Report) -> Callable[[Report, Figure], None]:
    return DRAWINGS.get(report.get("kind", report["dataset"]), _draw_retrieval)


DRAWINGS: Final[Mapping[str, Callable[[Report, Figure], None]]] = {
    "ablation": _draw_ablation,
    "ablations": _draw_ablations,
    "answers": _draw_answers,
    "compare": _draw_compare,
    "judgement": _draw_judgement,
    "languages": _draw_languages,
    "learning": _draw_learning,
    "scale": _draw_scale,
    "sets": _draw_sets,
    "silence": _draw_silence,
    "table": _draw_paper_table,
    "work": _draw_work,
}
