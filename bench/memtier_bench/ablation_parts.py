"""`memtier bench ablation` on one data set, several sets and the judgement cases, part by part."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import memtier_plugin
from memtier_bench.ablation import AblationPlan
from memtier_bench.ablation import ablate as ablate_dataset
from memtier_bench.compare import compare_metrics
from memtier_bench.datasets import Dataset, load_sets
from memtier_bench.judgement import run_judgement
from memtier_bench.progress import Progress, no_progress
from memtier_bench.reading import ReaderModel
from memtier_bench.retrieval import prepare_dataset, select_questions

Keep = Callable[[dict[str, Any]], None]


def run_ablations(
    dataset: str | None,
    data: Path | None = None,
    sets: Path | None = None,
    judgement: Path | None = None,
    profile: str | None = None,
    facts: str = "none",
    only: Sequence[str] = (),
    limit: int | None = None,
    sample: int | None = None,
    silence: int = 0,
    reader: ReaderModel | None = None,
    progress: Progress | None = None,
    keep: Keep | None = None,
    *,
    learn: bool = False,
) -> dict[str, Any]:
    """Measure each variant on a data set, on sets and on the judgement cases; return the reports.

    Args:
        dataset, data, limit, sample, progress: as for `run_retrieval`; limits apply to each set.
        sets: the folder or file of `load_sets`.
        judgement: the folder of `run_judgement`.
        profile, facts, only, silence, reader, learn: as in `AblationPlan`.
        keep: called with the report so far, after each conversation and judged variant.

    Raises:
        ImportFileError, EndpointError, SettingsError, Unsupported: as by the parts.
    """
    plan = AblationPlan(
        profile=profile,
        facts=facts,
        only=tuple(only),
        reader=reader,
        learn=learn,
        silence=silence,
    )
    loaded: list[Dataset] = []
    if dataset and data:
        answered = reader is not None
        loaded.append(prepare_dataset(dataset, data, facts, limit, sample, answered=answered))
    if sets:
        loaded += [select_questions(each, sets, facts, limit, sample) for each in load_sets(sets)]
    parts: list[dict[str, Any]] = []

    def tell(part: dict[str, Any]) -> None:
        if keep is not None:
            keep(_join([*parts, part]))

    for each in loaded:
        named = _naming(progress, each.name) if len(loaded) > 1 else progress
        parts.append(ablate_dataset(each, replace(plan, keep=tell), named))
    if judgement:
        parts.append(ablate_judgement(judgement, replace(plan, keep=tell), progress))
    return _join(parts)


def ablate_judgement(
    folder: Path, plan: AblationPlan, progress: Progress | None = None
) -> dict[str, Any]:
    """Judge the cases of a folder once for each variant; return the differences."""
    tell = progress or no_progress
    with tempfile.TemporaryDirectory(prefix="memtier-bench-") as home:
        arms = plan.arms(Path(home))
    judged: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    report: dict[str, Any] = {}
    for number, arm in enumerate(arms):
        tell("judgement", number, len(arms))
        figures = run_judgement(folder, overrides=arm.overrides)
        variant = arm.variant
        row = {
            "group": variant.group,
            "name": variant.name,
            "overrides": dict(variant.overrides),
            "scores": {name: part["score"] for name, part in figures["sets"].items()},
            "latency_ms": figures["sets"]["currency"]["latency_ms"],
        }
        judged.append((arm.profile, row, figures))
        report = _judgement_report(judged, figures)
        if plan.keep is not None:
            plan.keep(report)
    tell("judgement", len(arms), len(arms))
    return report


def _judgement_report(
    judged: Sequence[tuple[str, dict[str, Any], dict[str, Any]]], figures: Mapping[str, Any]
) -> dict[str, Any]:
    profiles = []
    for profile, base, before in judged:
        if base["group"]:
            continue
        rows = [
            {**row, "difference": _differences(after, before)}
            for other, row, after in judged
            if other == profile and row["group"]
        ]
        profiles.append({"profile": profile, "base": base, "rows": rows})
    return {
        "kind": "ablation",
        "dataset": "judgement",
        "questions": len(figures["per_question"]),
        "reader": None,
        "profiles": profiles,
        "version": memtier_plugin.__version__,
        "fingerprint": figures["fingerprint"],
    }


def _differences(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return, for each set, the difference in the share judged right."""
    differences = {}
    for name in after["sets"]:
        ours, theirs = (
            [row for row in side["per_question"] if row["id"].startswith(f"{name}/")]
            for side in (after, before)
        )
        differences[name] = compare_metrics(ours, theirs)["right"]
    return differences


def _join(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the report of the only part, or of all."""
    if len(reports) == 1:
        return reports[0]
    version = memtier_plugin.__version__
    return {"kind": "ablations", "dataset": "ablation", "parts": [*reports], "version": version}


def _naming(progress: Progress | None, name: str) -> Progress | None:
    if progress is None:
        return None
    return lambda what, done, total: progress(f"{name}: {what}", done, total)
