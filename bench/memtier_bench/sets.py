"""`memtier bench sets`: recall on several sets of conversations, with stemmed BM25 in the same run.

Each set counts the same in the mean, whatever its number of questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import memtier_plugin
from memtier_bench.compare import compare_metrics
from memtier_bench.datasets import Dataset, load_sets
from memtier_bench.probe import peak_rss_mb
from memtier_bench.progress import Progress, no_progress
from memtier_bench.retrieval import measure_dataset, select_questions

BASELINE: Final = "bm25-stem"

_BASELINE_FIGURES: Final = ("recall", "mrr", "ndcg", "latency_ms")
_SET_FIGURES: Final = (
    "questions",
    "skipped",
    "unresolved",
    "facts_stored",
    "recall",
    "hit",
    "all",
    "ndcg",
    "mrr",
    "injected_recall",
    "injected_tokens",
    "latency_ms",
    "inject_latency_ms",
    "ingest",
    "by_category",
)


def run_sets(
    data: Path,
    profile: str | None = None,
    facts: str = "none",
    limit: int | None = None,
    sample: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Ask every question of each set, with MemTier and with stemmed BM25; return a JSON report.

    Args:
        data: a set's file, or a folder of them.
        profile, facts, overrides, progress: as for `run_retrieval`.
        limit, sample: ask only the first questions of each set, or a stratified sample.

    Raises:
        ImportFileError: the files are not as described, or without evidence.
        Unsupported: no such facts.
        SettingsError: an override is not a setting.
    """
    tell = progress or no_progress
    chosen = {**(overrides or {}), **({"retrieval.profile": profile} if profile else {})}
    loaded = [select_questions(part, data, facts, limit, sample) for part in load_sets(data)]
    sets: dict[str, dict[str, Any]] = {}
    questions: list[dict[str, Any]] = []
    reports = [_measure_set(part, facts, chosen, _naming(tell, part.name)) for part in loaded]
    for ours, theirs in reports:
        name = ours["dataset"]
        baseline = {figure: theirs[figure] for figure in _BASELINE_FIGURES}
        change = compare_metrics(ours["per_question"], theirs["per_question"])
        figures = {figure: ours[figure] for figure in _SET_FIGURES}
        sets[name] = {**figures, "baseline": baseline, "than_baseline": change}
        questions += [
            {**question, "id": f"{name}/{question['id']}", "category": name}
            for question in ours["per_question"]
        ]
    first = reports[0][0]
    fingerprints = "".join(ours["fingerprint"] for ours, _ in reports)
    return {
        "dataset": "sets",
        "kind": "sets",
        "profile": first["profile"],
        "facts": facts,
        "baseline": BASELINE,
        "questions": sum(row["questions"] for row in sets.values()),
        "macro": _macro_means([*sets.values()]),
        "sets": sets,
        "peak_rss_mb": peak_rss_mb(),
        "version": memtier_plugin.__version__,
        "settings": first["settings"],
        "fingerprint": sha256(fingerprints.encode()).hexdigest()[:16],
        "per_question": questions,
    }


def _measure_set(
    loaded: Dataset, facts: str, overrides: Mapping[str, Any], tell: Progress
) -> tuple[dict[str, Any], dict[str, Any]]:
    ours = measure_dataset(loaded, facts, overrides=overrides, progress=tell)
    return ours, measure_dataset(loaded, baseline=BASELINE, progress=_naming(tell, BASELINE))


def _naming(tell: Progress, name: str) -> Progress:
    """Return a progress callback that adds the name of the set."""
    return lambda what, done, total: tell(f"{name}: {what}", done, total)


def _macro_means(sets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the means over the sets."""
    baselines = [row["baseline"] for row in sets]
    injected = ("injected_recall", "injected_tokens")
    return {
        **_ranking_means(sets),
        **{figure: _mean(row[figure] for row in sets) for figure in injected},
        "baseline": _ranking_means(baselines),
    }


def _ranking_means(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    recall = {k: _mean(row["recall"][k] for row in rows) for k in rows[0]["recall"]}
    return {"recall": recall, "mrr": _mean(row["mrr"] for row in rows)}


def _mean(values: Iterable[float]) -> float:
    return round(fmean(values), 4)
