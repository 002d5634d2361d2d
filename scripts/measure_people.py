"""Measure profiles and styles of people on LoCoMo.

    python scripts/measure_people.py --locomo locomo.json

prints how often the style of a speaker's earlier sessions tells who wrote a line of a later one
(two speakers, so that chance is .5), and for 40 questions about what somebody is like, by hand,
the share of the evidence in the block with and without profiles, with extracted facts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from memtier_bench.datasets import Conversation, Dataset, load_dataset
from memtier_bench.intervals import wilson_interval
from memtier_bench.metrics import recall_at
from memtier_bench.progress import no_progress
from memtier_bench.retrieval import BenchRun
from memtier_papers.true_memory.style import StyleVector
from memtier_plugin.credit.verdict import paired_difference
from memtier_plugin.memory import MemTier

# Numbers of the questions in each conversation: traits, tastes, interests, beliefs.
ASKED: Final[Mapping[str, Sequence[int]]] = {
    "conv-26": (2, 4, 7, 15, 22, 50, 59, 64, 69, 103, 130),
    "conv-30": (18, 39, 40, 45),
    "conv-41": (14, 28, 50, 106, 150),
    "conv-42": (1, 5, 75, 88, 90, 95, 96, 113, 114, 115, 142),
    "conv-43": (3, 5, 35, 36, 67, 114, 127, 166, 167),
}
HELD_OUT: Final = 0.3  # of the sessions, the last


def tell_authors(conversation: Conversation) -> list[float]:
    """Return for each line of the last sessions whether its style tells its speaker."""
    count = round(len(conversation.sessions) * (1 - HELD_OUT))
    lines: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    for number, session in enumerate(conversation.sessions):
        for turn in session.turns:
            message = turn.message
            lines[number >= count].append((message.speaker or "", str(message.content)))
    known, held_out = lines
    styles = {
        name: StyleVector.of(text for speaker, text in known if speaker == name)
        for name in sorted({speaker for speaker, _ in known})
    }
    return [
        float(max(styles, key=lambda name: styles[name].likeness(text)) == speaker)
        for speaker, text in held_out
    ]


def ask_about_people(loaded: Dataset, facts: str) -> Iterator[tuple[str, float, float, int, int]]:
    """Yield, of each chosen question, its id, what the block holds without and with, and tokens."""
    chosen = [
        replace(
            conversation,
            questions=tuple(
                question
                for question in conversation.questions
                if int(question.id.rpartition("/")[2]) in ASKED.get(conversation.id, ())
            ),
        )
        for conversation in loaded.conversations
    ]
    bench = BenchRun(
        loaded=replace(loaded, conversations=tuple(chosen)), facts=facts, progress=no_progress
    )
    on, off = {"people.profiles": True}, {"people.profiles": False}
    for memory, conversation, recorded in bench.recorded_conversations(on):
        memory.summariser.run(limit=10_000)
        with MemTier.open(memory.home, conversation.id, settings=off) as without:
            for question in conversation.questions:
                shares, tokens = [], []
                for asked in (without, memory):
                    recall = asked.recall(question.text, purpose="inject", at=question.at)
                    turns = recorded.turns(recall.injected)
                    shares.append(recall_at(turns, question.gold, len(turns)))
                    tokens.append(recall.tokens)
                yield question.id, shares[0], shares[1], tokens[0], tokens[1]


def main() -> None:
    """Print the accuracy of authorship, and the figures of the questions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--locomo", type=Path, required=True)
    parser.add_argument("--facts", choices=["none", "extracted"], default="extracted")
    options = parser.parse_args()
    loaded = load_dataset("locomo", options.locomo)
    right = [
        is_right for conversation in loaded.conversations for is_right in tell_authors(conversation)
    ]
    low, high = wilson_interval(round(sum(right)), len(right))
    print(
        f"authorship: {sum(right) / len(right):.3f} [{low:.3f}, {high:.3f}] of {len(right)} lines"
    )
    asked = [*ask_about_people(loaded, options.facts)]
    for name, before, after, *_ in asked:
        if before != after:
            print(f"  {name}: {before:.2f} -> {after:.2f}")
    before, after = ([row[n] for row in asked] for n in (1, 2))
    difference = paired_difference(after, before)
    print(f"{len(asked)} questions: {sum(before) / len(asked):.3f} without profiles,")
    print(f"{sum(after) / len(asked):.3f} with: {difference}")
    print("tokens:", *(round(sum(row[n] for row in asked) / len(asked)) for n in (3, 4)))


if __name__ == "__main__":
    main()
