"""Repeat the weight learning of MemTier (section 4.4, eq. 4, Table 4) on a data set.

A question earns +1 when the reader's answer is right by soft exact match, else -1; without a reader
+1 when a turn of its evidence is injected.  `learning.ppo` has the arithmetic.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.datasets import DatasetQuestion
from memtier_bench.progress import Progress, no_progress
from memtier_bench.reading import ReaderModel
from memtier_bench.retrieval import BenchRun, dataset_fingerprint, prepare_dataset
from memtier_papers.memtier.ppo import SIGMA, Episode, learn_weights
from memtier_papers.memtier.scorer import normalise_weights
from memtier_papers.memtier.settings import Paper, PaperWeights
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.results import Recall
from memtier_plugin.retrieval.block import BlockPlan

LEARNED_SIGNALS: Final = ("bm25", "decay", "cw", "tier")  # the semantic weight stays 0
_OVERRIDES: Final = {"retrieval.profile": "paper", "retrieval.candidates": 10_000}
_SEED: Final = 42

Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _AskedQuestion:
    """A question with all its candidates and its gold entries."""

    question: DatasetQuestion
    recall: Recall
    gold: frozenset[str]

    def block(self, weights: Weights) -> tuple[tuple[str, ...], str]:
        """Return the entries that these weights inject, and the block."""
        scores = {
            h.id: sum(weights[n] * h.signals[n] for n in LEARNED_SIGNALS) for h in self.recall.hits
        }
        ranked = sorted(self.recall.hits, key=lambda hit: (-scores[hit.id], hit.id))
        shown, text = BlockPlan(ranked, Paper().k, Paper().token_budget).fill(self.recall.id)
        return tuple(source.entry for hit in shown for source in hit.sources), text

    def is_right(self, weights: Weights, reader: ReaderModel | None) -> bool:
        """Return whether these weights get a question answered, or its evidence injected."""
        entries, text = self.block(weights)
        if reader:
            return reader.answer(self.question, text, self.recall.id).soft_em
        return not self.gold.isdisjoint(entries)


def run_learning(
    dataset: str,
    data: Path,
    facts: str = "none",
    sample: int | None = 100,
    reader: ReaderModel | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Learn the weights of MemTier, eq. 2, from questions; return a JSON report.

    Args:
        facts, sample, reader, progress: as `retrieval.run_retrieval` takes them.

    Raises:
        ImportFileError: the data set is unknown, not as published, or without evidence.
        Unsupported: every question earned the same reward, or the data set has no answers.
        EndpointError: the reader does not answer.
    """
    loaded = prepare_dataset(dataset, data, facts, None, sample, answered=reader is not None)
    run = BenchRun(loaded=loaded, facts=facts, progress=progress or no_progress)
    questions = list(_recall_questions(run))
    start = {name: getattr(PaperWeights(), name) for name in LEARNED_SIGNALS}
    chance = random.Random(_SEED)
    episodes = []
    for question in questions:
        action = tuple(chance.gauss(weight, SIGMA) for weight in start.values())
        drawn = normalise_weights(dict(zip(LEARNED_SIGNALS, action, strict=True)))
        episodes.append(Episode(action, 1.0 if question.is_right(drawn, reader) else -1.0))
    try:
        mean = learn_weights([*start.values()], episodes, chance)
    except ValueError as error:
        raise Unsupported(str(error)) from None
    after = normalise_weights(dict(zip(LEARNED_SIGNALS, mean, strict=True)))
    return {
        "kind": "learning",
        "dataset": dataset,
        "facts": facts,
        "facts_stored": run.facts_stored,
        "questions": len(questions),
        "reader": reader.model if reader else None,
        "weights": [
            {
                "name": name,
                "before": start[name],
                "after": round(after[name], 4),
                "spread": round(_mean_spread(questions, name, start[name]), 4),
            }
            for name in LEARNED_SIGNALS
        ],
        "rewarded": sum(episode.reward > 0 for episode in episodes),
        "right_before": sum(question.is_right(start, reader) for question in questions),
        "right_after": sum(question.is_right(after, reader) for question in questions),
        "blocks_changed": sum(
            question.block(start) != question.block(after) for question in questions
        ),
        "version": memtier_plugin.__version__,
        "fingerprint": dataset_fingerprint(loaded),
    }


def _recall_questions(run: BenchRun) -> Iterator[_AskedQuestion]:
    for memory, conversation, recorded in run.recorded_conversations(_OVERRIDES):
        for question in conversation.questions:
            gold = frozenset(recorded.hits[turn].id for turn in question.gold)
            yield _AskedQuestion(question, memory.recall(question.text, at=question.at), gold)


def _mean_spread(questions: Sequence[_AskedQuestion], name: str, weight: float) -> float:
    """Return the mean spread of a weighted signal over a question's candidates."""
    signals = [
        [weight * hit.signals[name] for hit in question.recall.hits] for question in questions
    ]
    return sum(max(values) - min(values) for values in signals if values) / len(signals)
