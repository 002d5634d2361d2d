"""Measure the regression gate: does it refuse harmful weights, and only those?

A conversation of a data set is recorded and its questions asked, and the lines used by right
answers are credited, so the project has a history.  Bad weights are drawn until enough of them
lower recall@10 on the data set's own evidence, which the gate does not know, along with harmless
changes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

import memtier_plugin
from memtier_bench.progress import Progress, no_progress
from memtier_bench.retrieval import BenchRun, select_questions
from memtier_bench.synthetic import SyntheticChat
from memtier_bench.weights import load_any
from memtier_papers.memtier.fit import Example
from memtier_papers.memtier.weight_job import WeightLearner, signals_of, with_weights
from memtier_plugin.credit.regression import measure
from memtier_plugin.memory import MemTier

HARM: Final = 0.05  # drop of recall@10 from which drawn weights count as bad
JITTER: Final = 0.02  # of each weight, in a harmless change
_QUESTIONS: Final = 100  # of the conversation
_DEPTH: Final = 10
_MOST_DRAWN: Final = 50  # draws per bad set of weights wanted
_SEED: Final = 42


def run_gate_check(
    data: Path, draws: int = 20, entries: int = 0, progress: Progress | None = None
) -> dict[str, Any]:
    """Plant bad weights and harmless ones, and return the gate's verdicts as JSON.

    Args:
        draws: how many of each kind.
        entries: synthetic entries to record into the project too.

    Raises:
        ImportFileError: it is no data set, or has no evidence.
    """
    tell = progress or no_progress
    loaded = select_questions(load_any(data)[0], data)
    first = replace(loaded, conversations=loaded.conversations[:1])
    run = BenchRun(
        loaded=select_questions(first, data, sample=_QUESTIONS),
        facts="none",
        progress=tell,
        learn=True,
    )
    for memory, conversation, recorded in run.recorded_conversations(None):
        if entries:
            _fill(memory, entries)
        [*run.ask(memory, conversation, recorded)]
        memory.catch_up()
        names = [*WeightLearner(memory.actor).start]
        examples = []
        for question in conversation.questions:
            hits = memory.recall(question.text, at=question.at).hits
            gold = {turn: number for number, turn in enumerate(sorted(question.gold))}
            turns = [recorded.turns([hit]) for hit in hits]
            brought = tuple(tuple(gold[t] for t in hit_turns if t in gold) for hit_turns in turns)
            examples.append(Example(conversation.id, signals_of(hits, names), brought, len(gold)))
        return _check(memory, examples, draws, tell) | {"entries": memory.status()["entries"]}
    raise AssertionError("a data set has a conversation")


def _check(memory: MemTier, examples: list[Example], draws: int, tell: Progress) -> dict[str, Any]:
    at, started = memory.actor.clock(), time.perf_counter()
    questions = memory.regression.questions(at)
    before = measure(memory.actor, questions, at)
    seconds = 2 * (time.perf_counter() - started)  # a check asks each question twice
    start = np.array([*WeightLearner(memory.actor).start.values()])
    usual = _recall(examples, start)
    report: dict[str, Any] = {
        "kind": "gate_check",
        "dataset": examples[0].group,
        "questions": len(questions),
        "history": sum(question.evidence != "probe" for question in questions),
        "seconds": round(seconds, 2),
        "before": round(sum(before) / len(before), 4),
        "recall": round(usual, 4),
        "version": memtier_plugin.__version__,
    }
    for kind, drawn in (("bad", _bad(examples, start, usual)), ("harmless", _harmless(start))):
        rows = []
        for weights in islice(drawn, draws):
            values = dict(zip(WeightLearner(memory.actor).start, weights.tolist(), strict=True))
            settings = with_weights(memory.settings, values)
            after = measure(memory.actor, questions, at, settings)
            verdict = memory.regression.report("", questions, before, after).verdict
            change = _recall(examples, weights) - usual
            rows.append({**verdict.to_json(), "recall_change": round(change, 4)})
            tell(f"{kind} weights", len(rows), draws)
        report[kind] = {
            "drawn": len(rows),
            "refused": sum(row["refused"] for row in rows),
            "changes": rows,
        }
    return report


def _recall(examples: list[Example], weights: np.ndarray) -> float:
    return float(np.mean([example.recall(weights, _DEPTH) for example in examples]))


def _bad(examples: list[Example], start: np.ndarray, usual: float) -> Iterator[np.ndarray]:
    """Yield weights that lose recall: some set to 0, others enlarged, or all permuted."""
    chance = np.random.default_rng(_SEED)
    for number in range(_MOST_DRAWN * 20):
        weights = start.copy()
        if number % 2:
            chance.shuffle(weights)
        weights[chance.random(len(weights)) < 0.5] = 0.0
        weights[chance.random(len(weights)) < 0.2] *= 10.0
        weights = np.minimum(weights, 100.0)
        if _recall(examples, weights) < usual - HARM:
            yield weights


def _harmless(start: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the present weights at another scale, each slightly changed."""
    chance = random.Random(_SEED)
    while True:
        scale = chance.uniform(0.5, 2.0)
        yield np.array([w * scale * (1 + chance.uniform(-JITTER, JITTER)) for w in start])


def _fill(memory: MemTier, entries: int) -> None:
    sessions = islice(SyntheticChat(_SEED).sessions(), entries // 20)
    for _ in memory.record_sessions(sessions):
        pass
    memory.catch_up()


def gate_check_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row per kind of change: drawn, refused, and the range of the differences."""
    for kind in ("bad", "harmless"):
        part = report[kind]
        rows = part["changes"]
        ranges = [
            f"{min(row[name] for row in rows):+.3f} to {max(row[name] for row in rows):+.3f}"
            for name in ("recall_change", "difference", "high")
        ]
        yield (kind, str(part["drawn"]), str(part["refused"]), *ranges)
