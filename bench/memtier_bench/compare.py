"""`memtier bench compare`: test whether the difference between two runs is significant.

Both answered the same questions, so the per-question differences are resampled (`intervals`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.credit.verdict import SAMPLES, SEED, paired_difference
from memtier_plugin.transfer.importers.reading import load_json

QuestionFigures = Mapping[str, Any]  # as returned by `metrics.question_figures`


def _recall_metric(k: int) -> Callable[[QuestionFigures], Any]:
    return lambda question: (question.get("recall") or {}).get(str(k))


def _answer_metric(score: str) -> Callable[[QuestionFigures], Any]:
    return lambda question: question.get("answers", {}).get("memory", {}).get(score)


METRICS: Final[Mapping[str, Callable[[QuestionFigures], Any]]] = {
    "recall@1": _recall_metric(1),
    "recall@10": _recall_metric(10),
    "mrr": lambda question: question.get("mrr"),
    "injected_recall": lambda question: question.get("injected_recall"),
    "tokens": lambda question: question.get("tokens"),
    "silent": lambda question: question.get("silent"),
    "foreign_silent": lambda question: question.get("foreign_silent"),
    "answered": lambda question: question.get("answered"),
    "right": lambda question: question.get("right"),
    "soft_em": _answer_metric("soft_em"),
    "soft_em_tokens": _answer_metric("soft_em_tokens"),
    "f1": _answer_metric("f1"),
    "memt_f1": _answer_metric("memt_f1"),
}


def run_compare(ours: Path, theirs: Path, progress: object = None) -> dict[str, Any]:
    """Compare the JSON reports of two runs, and return the differences ready for JSON.

    Args:
        ours: the report A; differences are A minus B.
        theirs: the report B.

    Raises:
        ImportFileError: not reports of runs on the same questions; names file and remedy.
    """
    report, other = _read_report(ours), _read_report(theirs)
    if report["dataset"] != other["dataset"]:
        raise ImportFileError(
            f"{theirs}: measures {other['dataset']}, but {ours} measures {report['dataset']}: "
            f"run `memtier bench {report['dataset']} --json {theirs}` to have both on one data set"
        )
    first, second = _by_id(report["per_question"]), _by_id(other["per_question"])
    if report["fingerprint"] != other["fingerprint"] or first.keys() != second.keys():
        missing = len(first.keys() ^ second.keys())
        why = f"{missing} are in one of the two only" if missing else "their texts differ"
        raise ImportFileError(
            f"{theirs}: not on the questions of {ours} ({why}): run both with the same --data, "
            "options, such as --limit and --sample, and both with --reader or both without"
        )
    ids = sorted(first)
    categories = sorted({first[name]["category"] for name in ids})
    return {
        "kind": "compare",
        "dataset": report["dataset"],
        "ours": _describe_report(ours, report),
        "theirs": _describe_report(theirs, other),
        "questions": len(ids),
        "metrics": compare_metrics([first[i] for i in ids], [second[i] for i in ids]),
        "by_category": {
            category: compare_metrics([first[i] for i in chosen], [second[i] for i in chosen])
            for category in categories
            for chosen in [[i for i in ids if first[i]["category"] == category]]
        },
        "settings": _changed_settings(report["settings"], other["settings"]),
        "samples": SAMPLES,
        "seed": SEED,
        "version": memtier_plugin.__version__,
    }


def compare_metrics(
    ours: Sequence[QuestionFigures], theirs: Sequence[QuestionFigures]
) -> dict[str, dict[str, float | int | bool]]:
    """Return, for each metric of both runs, the means and the interval of their difference.

    Args:
        ours: the questions of one run, as returned by `metrics.question_figures`.
        theirs: the same questions of the other, in the same order.
    """
    results: dict[str, dict[str, float | int | bool]] = {}
    for name, metric in METRICS.items():
        pairs = [
            (mine_value, other)
            for mine_value, other in zip(map(metric, ours), map(metric, theirs), strict=True)
            if mine_value is not None and other is not None
        ]
        if not pairs:
            continue
        mine, others = zip(*pairs, strict=True)
        result = paired_difference(mine, others)
        results[name] = {
            "questions": len(pairs),
            "ours": round(sum(mine) / len(mine), 4),
            "theirs": round(sum(others) / len(others), 4),
            "difference": round(result.mean, 4),
            "low": round(result.low, 4),
            "high": round(result.high, 4),
            "p": result.p,
            "real": result.significant,
        }
    return results


def _read_report(path: Path) -> dict[str, Any]:
    report = load_json(path)
    if not isinstance(report, dict) or "per_question" not in report:
        kind = report.get("kind", report.get("dataset")) if isinstance(report, dict) else None
        problem = (
            f"a report of {kind!r} lacks the figures of each question"
            if kind
            else "not a report with the figures of each question"
        )
        raise ImportFileError(
            f"{path}: {problem}; compare files written by "
            "`memtier bench locomo|beam|longmemeval|sets|silence|judgement --json FILE`"
        )
    return report


def _by_id(questions: Sequence[QuestionFigures]) -> dict[str, QuestionFigures]:
    """Return the questions by id; repeated ids get a number."""
    by_id: dict[str, QuestionFigures] = {}
    for question in questions:
        name, again = question["id"], 1
        while name in by_id:
            again += 1
            name = f"{question['id']} ({again})"
        by_id[name] = question
    return by_id


def _describe_report(path: Path, report: Mapping[str, Any]) -> dict[str, Any]:
    names = ("profile", "facts", "reader", "version")
    return {"file": path.name, **{key: report.get(key) for key in names}}


def _changed_settings(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the settings that differ; a baseline has none."""
    both = ours.keys() & theirs.keys()
    return {key: [ours[key], theirs[key]] for key in sorted(both) if ours[key] != theirs[key]}
