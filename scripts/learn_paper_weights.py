"""Repeat the paper's weight learning (MemTier 4.4, eq. 4) on retrieval: `--data locomo.json`.

No reader model: a question earns +1 when a turn of its evidence is injected, else -1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memtier_plugin.bench.datasets import LOADERS, Conversation, Question, load_dataset
from memtier_plugin.bench.weight_learning import SIGMA, Episode, learned
from memtier_plugin.errors import MemTierError
from memtier_plugin.memory import MemTier
from memtier_plugin.packing import fill
from memtier_plugin.paper import project
from memtier_plugin.records import FactDraft, Recall, Source
from memtier_plugin.settings_keys import Paper

START = {"bm25": 0.35, "decay": 0.25, "cw": 0.25, "tier": 0.15}  # the semantic weight stays 0
Asked = tuple[Recall, frozenset[str]]  # a question's candidates, and the entries of its evidence


def ask(home: Path, conversation: Conversation, questions: Sequence[Question]) -> Iterator[Asked]:
    """Record a conversation and its data set's facts; ask, in the `paper` profile."""
    overrides = {"retrieval.profile": "paper", "retrieval.candidates": 10_000}
    with MemTier.open(home, conversation.id, settings=overrides) as memory:
        sources: dict[str, Source] = {}
        for session in conversation.sessions:
            name, when = session.session_id, session.observed_at
            messages = [turn.message for turn in session.turns]
            made = memory.record(messages, session_id=name, observed_at=when)
            for turn, entry in zip(session.turns, made, strict=True):
                sources[turn.id] = Source(agent=entry.agent_id, session=name, entry=entry.id)
        for fact in conversation.facts:
            where = tuple(sources[turn] for turn in fact.gold_ids)
            who, text = fact.speaker, fact.text
            draft = FactDraft(subject=who, relation="says", value=text, text=text, sources=where)
            memory.add_facts([draft])
        for question in questions:
            gold = frozenset(sources[turn].entry for turn in question.gold)
            yield memory.recall(question.text, at=question.at), gold


def injected(recall: Recall, weights: Mapping[str, float]) -> list[str]:
    """Return the entries behind what these weights inject: eq. 2 over all candidates, packed."""
    scores = {h.id: sum(weights[n] * h.signals[n] for n in START) for h in recall.hits}
    ranked = sorted(recall.hits, key=lambda hit: (-scores[hit.id], hit.id))
    shown, _ = fill(ranked, recall.id, Paper().k, Paper().token_budget)
    return [source.entry for hit in shown for source in hit.sources]


def main() -> None:
    """Learn from the first questions; print the weights, their signals' spread, the accuracy."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--dataset", choices=LOADERS, default="locomo")
    options.add_argument("--limit", type=int, default=40, help="questions to learn from (40)")
    given, chance, asked = options.parse_args(), random.Random(42), list[Asked]()
    with tempfile.TemporaryDirectory(prefix="memtier-weights-") as folder:
        for conversation in load_dataset(given.dataset, given.data).conversations:
            questions = conversation.questions[: given.limit - len(asked)]
            asked += ask(Path(folder), conversation, questions) if questions else ()
    episodes = []
    for recall, gold in asked:
        action = tuple(chance.gauss(weight, SIGMA) for weight in START.values())
        shown = injected(recall, project(dict(zip(START, action, strict=True))))
        episodes.append(Episode(action, -1.0 if gold.isdisjoint(shown) else 1.0))
    after = project(dict(zip(START, learned([*START.values()], episodes, chance), strict=True)))
    print("weight   before  after  moved   spread of weight x signal over the candidates (mean)")
    for name, old in START.items():
        signals = [[old * hit.signals[name] for hit in recall.hits] for recall, _ in asked]
        spread = sum(max(one) - min(one) for one in signals if one) / len(signals)
        new, note = after[name], "" if spread else "  no spread: moved by chance"
        print(f"{name:8} {old:6.3f} {new:6.3f} {new - old:+6.3f}   {spread:.3f}{note}")
    both = [(injected(recall, START), injected(recall, after), gold) for recall, gold in asked]
    hits = [sum(not gold.isdisjoint(one[i]) for *one, gold in both) for i in (0, 1)]
    print(f"evidence injected: {hits[0]} -> {hits[1]} of {len(both)} questions")
    print(f"what is injected changed: {sum(old != new for old, new, _ in both)} questions")


if __name__ == "__main__":
    try:
        main()
    except (MemTierError, ValueError) as error:
        sys.exit(f"learn_paper_weights: {error}")
