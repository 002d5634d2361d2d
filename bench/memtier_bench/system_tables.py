"""`memtier bench table tm-4`, `tm-5` and `mem-t-4`: systems by category.

True Memory's Tables 4 (LongMemEval) and 5 (BEAM) compare its accuracy with that of other systems,
by category.  Here MemTier's default is compared with True Memory's own ranking (the profile `rrf`),
words alone and vectors alone, on the same recording, with the same reader.  The upper half of
Mem-T's Table 4 leaves out one store at a time, scored by F1.  Without a reader each is scored by
recall@10; the report also has the share of evidence in the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.ablation import STORES, AblationPlan, Variant, ablate
from memtier_bench.progress import Progress
from memtier_bench.reading import ReaderModel
from memtier_bench.retrieval import prepare_dataset
from memtier_plugin.core.settings.schema import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTable:
    """A table of systems: its data set, the systems compared, and the score for answers."""

    paper: str
    title: str
    dataset: str
    systems: Mapping[str, Mapping[str, Any]]
    measure: str = "soft_em"
    conditions: Sequence[str] = ()  # further contexts given to the reader with the default settings


def _alone(signal: str) -> dict[str, Any]:
    """Return the settings that rank by one signal only."""
    weights = {f"retrieval.weights.{name}": float(name == signal) for name in asdict(Weights())}
    return {**weights, "retrieval.floor": "off"}


_RANKED: Final[Mapping[str, Mapping[str, Any]]] = {
    "True Memory's ranks (rrf)": {"retrieval.profile": "rrf"},
    "words alone (BM25)": _alone("words"),
    "vectors alone (RAG)": _alone("dense"),
}
TABLES: Final[Mapping[str, SystemTable]] = {
    "tm-4": SystemTable(
        paper="True Memory, Table 4",
        title="accuracy beside plain retrieval",
        dataset="longmemeval",
        systems=_RANKED,
        conditions=("oracle", "none"),
    ),
    "tm-5": SystemTable(
        paper="True Memory, Table 5",
        title="accuracy on long chats, by memory ability",
        dataset="beam",
        systems=_RANKED,
    ),
    "mem-t-4": SystemTable(
        paper="Mem-T, Table 4, upper half",
        title="each store left out",
        dataset="locomo",
        systems=STORES,
        measure="memt_f1",
    ),
}
_DEFAULT: Final = "MemTier"
_RECALL: Final = "recall@10"


def run_system_table(
    table: str,
    data: Path,
    dataset: str | None = None,
    facts: str = "extracted",
    sample: int | None = None,
    reader: ReaderModel | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure one of `TABLES`; return a JSON report.

    Args:
        dataset: the format of the file [the paper's].
        facts, sample: as for `run_retrieval` [all questions].
        reader: the answering model; without one the score is recall@10.

    Raises:
        ImportFileError, EndpointError: as by `run_retrieval`.
    """
    chosen = TABLES[table]
    source = dataset or chosen.dataset
    loaded = prepare_dataset(source, data, facts, None, sample, answered=reader is not None)
    variants = [Variant("systems", name, changed) for name, changed in chosen.systems.items()]
    plan = AblationPlan(
        profile="recall_first",
        facts=facts,
        variants=variants,
        reader=reader,
        conditions=chosen.conditions if reader else (),
    )
    report = ablate(loaded, plan, progress)
    [profile] = report["profiles"]
    measure = chosen.measure if reader else _RECALL
    rows = [_row(_DEFAULT, profile["base"], measure)]
    rows += [_row(each["name"], each, measure) for each in profile["rows"]]
    rows += [
        _answer_row(f"the reader with {name}", profile["base"]["answers"][name], measure)
        for name in plan.conditions
    ]
    return {
        "kind": "systems",
        "dataset": source,
        "table": table,
        "paper": chosen.paper,
        "title": chosen.title,
        "facts": facts,
        "questions": report["questions"],
        "score": {"soft_em": "accuracy", "memt_f1": "F1"}.get(measure, measure),
        "reader": report["reader"],
        "rows": rows,
        "version": memtier_plugin.__version__,
        "fingerprint": report["fingerprint"],
    }


def _row(name: str, figures: Mapping[str, Any], measure: str) -> dict[str, Any]:
    """Return a system's scores; ``difference`` is relative to MemTier's."""
    kept = {
        "difference": figures.get("difference", {}).get(measure),
        "ms": figures["latency_ms"]["p50"],
        "injected": figures["injected_recall"],
    }
    if measure != _RECALL:
        return {**_answer_row(name, figures["answers"]["memory"], measure), **kept}
    by_category = figures["by_category"]
    return {
        "name": name,
        "value": figures["recall"]["10"],
        "interval": figures["recall10_interval"],
        "questions": sum(row["questions"] for row in by_category.values()),
        "by_category": {each: row["recall"]["10"] for each, row in by_category.items()},
        **kept,
    }


def _answer_row(name: str, answers: Mapping[str, Any], measure: str) -> dict[str, Any]:
    return {
        "name": name,
        "value": answers[measure],
        "interval": answers[f"{measure}_interval"],
        "questions": answers["questions"],
        "by_category": {each: row[measure] for each, row in answers["by_category"].items()},
        "difference": None,
        "ms": None,
    }
