"""`memtier bench table N`: reproduce the tables of the MemTier paper on a data file.

Each uses the paper's settings (k, token budget, number of questions).  Accuracy and F1 need a
reader; without one only retrieval is measured.  One thing differs: rules, not an LLM, extract the
facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench import grid, router_learning, system_tables, tiers
from memtier_bench.ablation import run_ablation
from memtier_bench.learning import run_learning
from memtier_bench.progress import Progress
from memtier_bench.reading import ReaderModel
from memtier_bench.retrieval import run_retrieval
from memtier_plugin.core.errors import Unsupported

_LARGER: Final = {"paper.k": 2, "paper.token_budget": 600}  # of the appendices


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """One table of the paper: its title, number of questions and settings."""

    title: str
    questions: int | None = None  # all when None
    overrides: Mapping[str, Any] | None = None
    only: Sequence[str] = ()  # of an ablation
    conditions: Sequence[str] = ()  # of a run whose answers are the table
    parts: Sequence[tuple[str, Mapping[str, Any]]] = ()  # several runs, by name
    learn: bool = False  # whether right answers move the weights, as in the paper's benchmark


TABLES: Final[Mapping[str, PaperTable]] = {
    "1": PaperTable(
        title="accuracy by type of question",
        parts=[
            ("episodes only", {"facts": "none", "conditions": ("none", "memory")}),
            ("with facts", {"conditions": ("memory",)}),
        ],
    ),
    "2": PaperTable(
        title="ablation of signals, scoping, k and token budget",
        only=("signals", "scope", "k", "token_budget"),
        learn=True,
    ),
    "3": PaperTable(title="LoCoMo", conditions=("memory", "full", "none")),
    "4": PaperTable(title="learned weights", questions=100),
    "5": PaperTable(
        title="retrieval with each Stage 1",
        questions=100,
        overrides=_LARGER,
        parts=[
            (f"Stage 1 by {how}", {"overrides": {"paper.stage_one": how}})
            for how in ("bm25", "dense", "rrf")
        ],
    ),
    "6": PaperTable(
        title="oracle",
        questions=100,
        overrides=_LARGER,
        conditions=("memory", "oracle", "sessions"),
    ),
    "7": PaperTable(
        title="Stage 1 by vectors", questions=100, overrides=_LARGER, only=("stage_one",)
    ),
    "8": PaperTable(
        title="how many sessions Stage 1 chooses",
        questions=50,
        overrides=_LARGER,
        only=("sessions", "scope"),
    ),
    "9": PaperTable(title="facts a question", conditions=("memory",)),
    "E": PaperTable(title="normalised BM25", questions=50, overrides=_LARGER, only=("normalise",)),
}


def run_table(
    table: str,
    data: Path,
    dataset: str | None = None,
    facts: str = "extracted",
    sample: int | None = None,
    reader: ReaderModel | None = None,
    progress: Progress | None = None,
    entries: Sequence[int] = (),
) -> dict[str, Any]:
    """Measure one table of the paper; return a JSON report.

    Args:
        table: one of `TABLES`, or of those of `tiers`, `grid` and `system_tables`.
        dataset: of the file [the paper's: LoCoMo for Table 3, else LongMemEval].
        facts, sample: as for `run_retrieval` [as many questions as in the paper].
        reader: the answering model; without one there is no accuracy.
        entries: the sizes of the stores of HMO's Table 3 [those of the conversations].

    Raises:
        Unsupported: there is no such table, or the data set has no answers or facts.
        ImportFileError, EndpointError: see `run_retrieval`.
    """
    if table in router_learning.TABLES:
        return router_learning.run_router_learning(table, data, dataset, facts, sample, progress)
    if table in tiers.TABLES or entries:
        return tiers.run_hmo_table(table, data, dataset, facts, sample, progress, entries)
    if table in grid.TABLES:
        return grid.run_grid(table, data, dataset, facts, sample, reader, progress)
    if table in system_tables.TABLES:
        return system_tables.run_system_table(table, data, dataset, facts, sample, reader, progress)
    if table not in TABLES:
        raise Unsupported(f"no table {table!r} in the paper; one of: {', '.join(TABLES)}")
    plan = TABLES[table]
    source = dataset or ("locomo" if table == "3" else "longmemeval")
    common: dict[str, Any] = {"facts": facts, "sample": sample or plan.questions}
    common |= {"reader": reader, "progress": progress}
    overrides = dict(plan.overrides or {})
    parts: list[tuple[str, dict[str, Any]]] = []
    if table == "4":
        parts.append(("", run_learning(source, data, **common)))
    elif plan.only:
        varied = {"only": plan.only, "overrides": overrides, "learn": plan.learn, **common}
        parts.append(("", run_ablation(source, data, "paper", **varied)))
    else:
        for name, more in plan.parts or [("", {"conditions": plan.conditions})]:
            chosen = {**overrides, **more.get("overrides", {})}
            if chosen.get("paper.stage_one", "bm25") != "bm25":
                chosen["embedding.model"] = "default"
            options = {**common, "facts": more.get("facts", facts), "overrides": chosen}
            options["conditions"] = more.get("conditions", ())
            parts.append((name, run_retrieval(source, data, "paper", **options)))
    return {
        "kind": "table",
        "dataset": source,
        "table": table,
        "title": plan.title,
        "parts": [{"name": name, "report": report} for name, report in parts],
        "version": memtier_plugin.__version__,
    }
