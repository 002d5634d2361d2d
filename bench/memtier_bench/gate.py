"""`memtier bench gate`: what the encoding gate detects, saves and costs (True Memory, 4.1).

A line is positive if a question of the data set names it as evidence.  For each signal of the gate,
for surprise and for the length alone the report says how well it separates these lines from the
others, and how large and how good the index is when the rejected lines have no vectors and n-grams.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.compare import compare_metrics
from memtier_bench.datasets import Conversation, load_dataset
from memtier_bench.intervals import roc_area
from memtier_bench.metrics import QuestionOutcome, question_figures
from memtier_bench.progress import Progress, no_progress
from memtier_bench.retrieval import (
    BenchRun,
    RecordedConversation,
    dataset_fingerprint,
    select_questions,
)
from memtier_papers.true_memory import gate
from memtier_papers.true_memory.gatekeeper import Gatekeeper
from memtier_papers.true_memory.surprise import fingerprints, line_surprise
from memtier_papers.true_memory.verdicts import GateEvent
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.memory import MemTier

_MODES: Final = ("off", "index")
_ALL: Final = 100_000  # lines; more than any conversation has


@dataclass(slots=True)
class _Labelled:
    """The values of each signal with the labels of the lines, and the number of rejected lines."""

    values: dict[str, list[tuple[float, bool]]] = field(default_factory=dict)
    rejected: int = 0

    def add(self, memory: MemTier, gold: Collection[str], turns: Mapping[str, str]) -> None:
        """Add the lines that the gate judged, in the order of writing."""
        texts = {entry.id: entry.content for entry in memory.entries(limit=_ALL)}
        known: set[str] = set()
        events = [GateEvent.of(e) for e in memory.events(kinds=[GateEvent.KIND], limit=_ALL)]
        judged = {
            item: (event.verdict, signals)
            for event in events
            for item, signals in zip(event.items, event.signals, strict=True)
        }
        for item, (verdict, (novelty, salience, error)) in sorted(judged.items()):
            assert novelty is not None and salience is not None
            text, label = texts[item], turns.get(item) in gold
            signals = {
                "gate": gate.decide(novelty, salience, error).score,
                "novelty": novelty,
                "salience": salience,
                "prediction error": error or 0.0,
                "surprise": line_surprise(text, lambda mark: mark not in known),
                "length alone": float(len(text)),
            }
            known.update(fingerprints(text))
            self.rejected += verdict != "admitted"
            for name, value in signals.items():
                self.values.setdefault(name, []).append((value, label))

    def areas(self) -> dict[str, dict[str, float]]:
        """Return the area under the ROC curve of each signal, with its interval."""
        areas = {name: roc_area(values) for name, values in self.values.items()}
        return {
            name: {"auc": area, "low": low, "high": high}
            for name, (area, low, high) in areas.items()
        }


def run_gate(
    dataset: str,
    data: Path,
    limit: int | None = None,
    sample: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure the gate on a data set; return a JSON report.

    Args:
        dataset, data, progress: as for `run_retrieval`.
        limit, sample: applied to the questions asked; the labels use all of them.

    Raises:
        ImportFileError: the data set is not as published, or without evidence.
        Unsupported: every line is evidence, or none is.
    """
    every = load_dataset(dataset, data)
    gold = {c.id: {turn for q in c.questions for turn in q.gold} for c in every.conversations}
    loaded = select_questions(every, data, limit=limit, sample=sample)
    run = BenchRun(
        loaded=loaded, facts="none", progress=progress or no_progress, recordings=2, repeats=2
    )
    labelled, sizes, outcomes = _measure(run, gold)
    try:
        areas = labelled.areas()
    except ValueError as error:
        raise Unsupported(f"{data}: nothing to tell apart: {error}") from None
    figures = [[question_figures(outcome) for outcome in outcomes[mode]] for mode in _MODES]
    return {
        "kind": "gate",
        "dataset": dataset,
        "lines": len(labelled.values["gate"]),
        "rejected": labelled.rejected,
        "signals": areas,
        "questions": len(outcomes["off"]),
        "index_bytes": sizes,
        "difference": compare_metrics(figures[1], figures[0]),
        "version": memtier_plugin.__version__,
        "fingerprint": dataset_fingerprint(loaded),
    }


def _measure(
    run: BenchRun, gold: Mapping[str, set[str]]
) -> tuple[_Labelled, dict[str, int], dict[str, list[QuestionOutcome]]]:
    """Return the labelled lines, and the bytes of the index and the outcomes of each mode."""
    labelled = _Labelled()
    sizes = dict.fromkeys(_MODES, 0)
    outcomes: dict[str, list[QuestionOutcome]] = {mode: [] for mode in _MODES}
    with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder:
        for conversation in run.loaded.conversations:
            for mode in _MODES:
                home = Path(folder) / mode
                recorded = _record(run, home, conversation, mode)
                with MemTier.open(home, conversation.id, settings=_settings(mode)) as memory:
                    # Measured first: the write-ahead log of a freshly opened index is empty.
                    sizes[mode] += memory.store.measure_usage(datetime.now(UTC)).index
                    outcomes[mode] += run.ask(memory, conversation, recorded)
                    if mode != "off":
                        labelled.add(memory, gold[conversation.id], recorded.names)
    return labelled, sizes, outcomes


def _settings(mode: str) -> dict[str, Any]:
    return {"gate.mode": mode}


def _record(
    run: BenchRun, home: Path, conversation: Conversation, mode: str
) -> RecordedConversation:
    """Record a conversation, judge its lines, and rebuild its index without gaps."""
    with MemTier.open(home, conversation.id, settings=_settings(mode)) as memory:
        recorded = run.record(memory, conversation)
        while mode != "off" and Gatekeeper(memory.actor).run().left:
            pass
        memory.reindex()
    return recorded
