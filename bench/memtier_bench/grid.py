"""`memtier bench table tm-6` and `tm-7`: embedders by rerankers (True Memory, section 7).

The paper's grid has 56 cells, of 7 embedders and 8 rerankers.  This one has the cells available on
this machine: the shipped embedder, none and the configured one, without a reranker and with the
configured one (`rerank.model`), in the profile `rrf`.  With a reader the score is the share of
right answers, and its model makes up answers for one more cell (`ask.hypothetical`); without one it
is recall@10.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import memtier_plugin
from memtier_bench.intervals import bootstrap_interval, wilson_interval
from memtier_bench.progress import Progress
from memtier_bench.reading import ReaderModel
from memtier_bench.retrieval import run_retrieval

TABLES: Final = ("tm-6", "tm-7")
_RERANKER: Final = "MEMTIER_RERANK__MODEL"
_EMBEDDER: Final = "MEMTIER_EMBEDDING__MODEL"
_CUTOFF: Final = "10"  # True Memory's k


@dataclass(frozen=True, slots=True)
class GridCell:
    """One configuration of the grid."""

    embedder: str
    reranker: str = "none"
    hypothetical: bool = False


def list_cells(reader: bool) -> Iterator[GridCell]:
    """Yield the cells available on this machine.

    Args:
        reader: whether there is a model that makes up answers.
    """
    reranker = os.environ.get(_RERANKER, "none")
    embedders = dict.fromkeys(("default", "none", os.environ.get(_EMBEDDER, "default")))
    for embedder in embedders:
        for chosen in dict.fromkeys(("none", reranker)):
            yield GridCell(embedder, chosen)
    if reader:
        yield GridCell("default", reranker, hypothetical=True)


def run_grid(
    table: str,
    data: Path,
    dataset: str | None = None,
    facts: str = "none",
    sample: int | None = None,
    reader: ReaderModel | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure each cell; return the rows of Table 7, or the statistics over them of Table 6.

    Raises:
        ImportFileError, EndpointError, SettingsError: as by `run_retrieval`.
    """
    rows = []
    for cell in list_cells(reader is not None):
        report = run_retrieval(
            dataset or "locomo",
            data,
            "rrf",
            facts,
            sample=sample,
            overrides=_overrides(cell, reader),
            reader=reader,
            conditions=("memory",),
            progress=progress,
        )
        rows.append(_row(cell, report, reader is not None))
    return {
        "kind": "grid",
        "dataset": dataset or "locomo",
        "table": table,
        "score": "accuracy" if reader else f"recall@{_CUTOFF}",
        "reader": reader.model if reader else None,
        "rows": sorted(rows, key=lambda row: -row["score"]),
        "summary": _summary([row["score"] for row in rows]),
        "version": memtier_plugin.__version__,
    }


def _overrides(cell: GridCell, reader: ReaderModel | None) -> Mapping[str, Any]:
    chosen: dict[str, Any] = {"embedding.model": cell.embedder, "rerank.model": cell.reranker}
    if cell.hypothetical and reader is not None:
        chosen |= {
            "endpoints.reader.base_url": reader.endpoint.base_url,
            "endpoints.reader.key_env": reader.endpoint.key_env,
            "ask.model": f"endpoint:reader/{reader.model}",
            "ask.hypothetical": True,
            "consolidation.max_calls_per_day": 1_000_000,
        }
    return chosen


def _row(cell: GridCell, report: Mapping[str, Any], answered: bool) -> dict[str, Any]:
    questions = [question for question in report["per_question"] if question["recall"]]
    if answered:
        values = [
            question["answers"]["memory"]["soft_em"]
            for question in report["per_question"]
            if "answers" in question
        ]
        interval = wilson_interval(round(sum(values)), len(values))
    else:
        values = [question["recall"][_CUTOFF] for question in questions]
        interval = bootstrap_interval(values)
    return {
        "embedder": cell.embedder,
        "reranker": cell.reranker,
        "hypothetical": cell.hypothetical,
        "questions": len(values),
        "score": round(mean(values), 4),
        "low": round(interval[0], 4),
        "high": round(interval[1], 4),
        "injected": report["injected_recall"],
        "ms": report["latency_ms"]["p50"],
    }


def _summary(scores: list[float]) -> dict[str, Any]:
    return {
        "cells": len(scores),
        "best": max(scores),
        "worst": min(scores),
        "mean": round(mean(scores), 4),
        "median": round(median(scores), 4),
        "spread": round(max(scores) - min(scores), 4),
    }
