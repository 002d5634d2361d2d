"""`memtier bench facts`: measure the facts that a consolidation extracts, by rules or a model.

Each conversation is recorded and consolidated through the public API, and its questions are asked
with and without the facts.  A sample of the facts is written with their source lines, to be judged
by the rubric (`judged_facts`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import memtier_plugin
from memtier_bench.compare import compare_metrics
from memtier_bench.datasets import Conversation, Dataset, load_dataset, load_sets
from memtier_bench.judged_facts import (
    SAMPLE_SIZE,
    SEED,
    draw_sample,
    list_rows,
    read_sample,
    score_judgements,
    write_sample,
)
from memtier_bench.metrics import QuestionOutcome, question_figures, summarise_outcomes
from memtier_bench.progress import Progress, no_progress
from memtier_bench.reading import ReaderModel
from memtier_bench.retrieval import BenchRun, dataset_fingerprint, select_questions
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.records import Extractor
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.facts.backlog import MODEL, RULES
from memtier_plugin.memory import MemTier


@dataclass(slots=True, kw_only=True)
class _ConsolidationTally:
    """The results of the consolidations of all conversations by one extractor."""

    extractor: Extractor
    turns: int = 0
    read: int = 0
    seconds: float = 0.0
    proposed: int = 0
    relations: dict[str, Counter[str]] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    by_conversation: dict[str, dict[str, int]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return the counts of facts, by relation, and of what was rejected, for a report."""
        relations = sum(self.relations.values(), Counter[str]())
        facts = relations.total()
        return {
            "conversations": self.by_conversation,
            "turns": self.turns,
            "facts": facts,
            "proposed": self.proposed,
            "per_100_turns": round(100 * facts / max(1, self.turns), 2),
            "relations": dict(relations.most_common()),
            "rejected": dict(self.rejected.most_common()),
            "consolidation": {"entries": self.read, "seconds": round(self.seconds, 3)},
            "settings": self.settings,
        }


def run_facts(
    dataset: str,
    data: Path,
    sample: int = SAMPLE_SIZE,
    seed: int = SEED,
    sample_file: Path | None = None,
    judgements: Sequence[Path] = (),
    limit: int | None = None,
    model: ReaderModel | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Consolidate a data set and measure the facts; return a JSON report.

    Args:
        dataset: as for `run_retrieval`, or ``sets``: a set's file, or a folder of them.
        sample: how many facts are drawn for judging; all if there are fewer.
        seed: of the sample.
        sample_file: write the sample there as JSON Lines.
        judgements: JSON Lines files of judgements to count, one per judge.
        model: extracts the facts, in place of the rules.
        data, limit, overrides, progress: as for `run_retrieval`.

    Raises:
        ImportFileError: the data set or the judgements are malformed.
        SettingsError: an override is not a setting.
        Unsupported: the model does not answer.
    """
    # Malformed judgements must not fail after an hour of measuring
    score_judgements([], judgements)
    loaded = select_questions(_load(dataset, data), data, limit=limit)
    tally = _ConsolidationTally(extractor=MODEL if model else RULES)
    if model:
        overrides = {**(overrides or {}), **model.settings_for("consolidation.model")}
    tell = progress or no_progress
    outcomes = {"none": _ask_dataset(loaded, "none", None, overrides, tell)}
    outcomes["extracted"] = _ask_dataset(loaded, "none", tally, overrides, tell)
    if any(conversation.facts for conversation in loaded.conversations):
        outcomes["dataset"] = _ask_dataset(loaded, "dataset", None, overrides, tell)
    drawn = draw_sample([row for rows in tally.rows.values() for row in rows], sample, seed)
    if sample_file:
        write_sample(sample_file, drawn)
    return {
        "kind": "facts",
        "dataset": loaded.name,
        "by": model.model if model else None,
        **tally.describe(),
        "questions": len(outcomes["none"]),
        "recall": _compare_recalls(outcomes),
        "sample": {"size": sample, "seed": seed, "facts": len(drawn)},
        "judged": score_judgements(drawn, judgements),
        "version": memtier_plugin.__version__,
        "fingerprint": dataset_fingerprint(loaded),
    }


def run_judged(
    sample_file: Path, judgements: Sequence[Path], progress: Progress | None = None
) -> dict[str, Any]:
    """Score judgements of an earlier sample; return a JSON report.

    Raises:
        ImportFileError: the sample or the judgements are malformed.
    """
    sample = read_sample(sample_file)
    return {
        "kind": "judged_facts",
        "dataset": sample_file.name,
        "facts": len(sample),
        "judged": score_judgements(sample, judgements),
        "version": memtier_plugin.__version__,
    }


def _load(dataset: str, data: Path) -> Dataset:
    """Load a data set, or several sets as one."""
    if dataset != "sets":
        return load_dataset(dataset, data)
    first, *others = load_sets(data)
    if not others:
        return first
    parts = (first, *others)
    return Dataset(
        name=", ".join(part.name for part in parts),
        conversations=tuple(
            replace(conversation, id=f"{part.name}-{conversation.id}")
            for part in parts
            for conversation in part.conversations
        ),
        skipped=sum(part.skipped for part in parts),
        unresolved=sum(part.unresolved for part in parts),
    )


def _compare_recalls(outcomes: Mapping[str, Sequence[QuestionOutcome]]) -> dict[str, Any]:
    """Summarise the recalls with each kind of facts, and compare them with those without."""
    figures = {name: [*map(question_figures, results)] for name, results in outcomes.items()}
    return {
        name: {
            **summarise_outcomes(results),
            "than_none": compare_metrics(figures[name], figures["none"]),
        }
        for name, results in outcomes.items()
    }


def _ask_dataset(
    loaded: Dataset,
    facts: str,
    tally: _ConsolidationTally | None,
    overrides: Mapping[str, Any] | None,
    progress: Progress,
) -> list[QuestionOutcome]:
    """Record each conversation, consolidate it if a tally is given, and ask its questions."""
    run = BenchRun(loaded=loaded, facts=facts, progress=progress)
    outcomes: list[QuestionOutcome] = []
    complete = {conversation.id: conversation for conversation in loaded.conversations}
    for memory, conversation, recorded in run.recorded_conversations(overrides):
        if tally:
            _consolidate(memory, complete[conversation.id], recorded.names, tally)
            tally.settings = flatten_settings(memory.settings)
        outcomes += run.ask(memory, conversation, recorded)
    if tally:
        tally.turns = run.turns
    return outcomes


def _consolidate(
    memory: MemTier,
    conversation: Conversation,
    names: Mapping[str, str],
    tally: _ConsolidationTally,
) -> None:
    """Consolidate the recorded part of a conversation, and count its facts so far."""
    started = time.perf_counter()
    while (report := memory.consolidate(extractor=tally.extractor)).read:
        tally.read += report.read
        tally.proposed += report.proposed
        tally.rejected.update(report.rejected)
    if report.problem:
        raise Unsupported(report.problem)
    tally.seconds += time.perf_counter() - started
    facts = memory.facts(include_superseded=True)
    turns = len(conversation.turns)
    tally.by_conversation[conversation.id] = {"turns": turns, "facts": len(facts)}
    tally.relations[conversation.id] = Counter(fact.relation for fact in facts)
    tally.rows[conversation.id] = list_rows(facts, conversation, names)
