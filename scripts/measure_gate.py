"""Measure the encoding gate on LoCoMo or BEAM.

    python scripts/measure_gate.py --dataset locomo --data locomo.json

A line is labelled positive if a question of the data set names it as evidence.  Prints for each
signal of the gate, for surprise and for the length how well it tells these lines from the others
(area under the ROC curve, 95 % interval of Hanley and McNeil 1982), and what the index takes and
finds when the rejected lines are left out of vectors and n-grams.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from memtier_plugin.bench.datasets import load_dataset
from memtier_plugin.bench.metrics import mean, question_figures
from memtier_plugin.bench.progress import no_progress
from memtier_plugin.bench.retrieval import BenchRun, select_questions
from memtier_plugin.core.events import GateEvent
from memtier_plugin.memory import MemTier
from memtier_plugin.regression.intervals import Z, paired_difference
from memtier_plugin.text import gate
from memtier_plugin.text.surprise import fingerprints, line_surprise

Labelled = dict[str, list[tuple[float, bool]]]  # by signal: the value of a line, and its label


def area(labelled: Sequence[tuple[float, bool]]) -> tuple[float, float, float]:
    """Return the area under the ROC curve and its interval; ties count half."""
    ordered = sorted(labelled)
    positives = sum(label for _, label in ordered)
    negatives = len(ordered) - positives
    below, wins, start = 0, 0.0, 0
    while start < len(ordered):
        end = start
        while end < len(ordered) and ordered[end][0] == ordered[start][0]:
            end += 1
        here = sum(label for _, label in ordered[start:end])
        others = end - start - here
        wins += here * (below + others / 2)
        below, start = below + others, end
    value = wins / (positives * negatives)
    first, second = value / (2 - value), 2 * value**2 / (1 + value)
    variance = value * (1 - value) + (positives - 1) * (first - value**2)
    variance += (negatives - 1) * (second - value**2)
    spread = Z * math.sqrt(variance / (positives * negatives))
    return value, value - spread, value + spread


def label_lines(memory: MemTier, gold: set[str], turns: dict[str, str], labelled: Labelled) -> int:
    """Add the signals of the judged lines with their labels; return how many were rejected."""
    rejected, known = 0, {"": ""}
    texts = {entry.id: entry.content for entry in memory.entries(limit=100_000)}
    events = [GateEvent.of(e) for e in memory.events(kinds=[GateEvent.KIND], limit=100_000)]
    by_item = {
        item: (event.verdict, signals)
        for event in events
        for item, signals in zip(event.items, event.signals, strict=True)
    }
    for item in sorted(by_item):
        verdict, (novelty, salience, error) = by_item[item]
        assert novelty is not None and salience is not None
        text, label = texts[item], turns.get(item) in gold
        marks = fingerprints(text)
        values = {
            "gate": gate.decide(novelty, salience, error).score,
            "novelty": novelty,
            "salience": salience,
            "prediction error": error or 0.0,
            "surprise": line_surprise(text, lambda mark: mark not in known),
            "length": float(len(text)),
        }
        known.update(dict.fromkeys(marks, item))
        rejected += verdict != "admitted"
        for name, value in values.items():
            labelled.setdefault(name, []).append((value, label))
    return rejected


def count_bytes(memory: MemTier) -> int:
    """Return the bytes of vectors, signs and n-grams."""
    memory.reindex()  # leaves no gaps of what was deleted
    memory.catch_up()
    connection = memory.store.index.connection()
    return sum(
        int(size or 0)
        for sql in (
            "SELECT sum(length(vector)) FROM vectors",
            "SELECT sum(length(items) + length(signs)) FROM vector_signs",
            "SELECT sum(length(block)) FROM grams_data",
            "SELECT sum(length(term)) FROM gram_terms",
        )
        for (size,) in connection.execute(sql)
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", choices=["locomo", "beam"], default="locomo")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sample", type=int, help="ask only so many questions")
    options = parser.parse_args()
    every = load_dataset(options.dataset, options.data)
    gold = {c.id: {t for q in c.questions for t in q.gold} for c in every.conversations}
    loaded = select_questions(every, options.data, sample=options.sample)
    bench = BenchRun(loaded=loaded, facts="none", progress=no_progress)
    labelled: Labelled = {}
    rejected = judged = 0
    sizes = [0, 0]
    figures: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
    for memory, conversation, recorded in bench.recorded_conversations({"gate.mode": "index"}):
        for turn in (0, 1):
            if turn:
                while memory.gatekeeper.run().left:
                    pass
            sizes[turn] += count_bytes(memory)
            for outcome in bench.ask(memory, conversation, recorded):
                shown = question_figures(outcome)
                figures[turn].append(
                    {"recall@10": shown["recall"]["10"], "injected": shown["injected_recall"]}
                )
        rejected += label_lines(memory, gold[conversation.id], recorded.names, labelled)
    judged = len(labelled["gate"])
    print(f"{options.dataset}: {judged} lines, {rejected} rejected ({rejected / judged:.0%})")
    for name, values in labelled.items():
        value, low, high = area(values)
        print(f"  {name}: AUC {value:.3f} [{low:.3f}, {high:.3f}]")
    print(f"vectors and n-grams: {sizes[0]:,} bytes, {sizes[1]:,} without the rejected lines")
    for name in ("recall@10", "injected"):
        before, after = ([row[name] for row in rows] for rows in figures)
        print(f"{name}: {mean(before)}, {mean(after)}; {paired_difference(after, before)}")


if __name__ == "__main__":
    main()
