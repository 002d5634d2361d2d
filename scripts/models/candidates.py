"""Write what a recall finds: rows for training and judging a model that orders it.

    python scripts/models/candidates.py OUT DATA ...

DATA are files or folders that `memtier bench` knows.  Each conversation is recorded; its own
questions, and a sample of those about other conversations, are asked with the default settings.
OUT gets a file for each set, of rows ``{set, kind, id, query, gold, probability, injected, hits:
[{line, score, units, gold}]}``: ``gold`` of a row counts the units to be found, that of a hit lists
those it holds by number; ``units`` are all it holds, numbered as they come.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from memtier_bench.datasets import Conversation, Dataset
from memtier_bench.retrieval import BenchRun, RecordedConversation
from memtier_bench.silence_prompts import AskedPrompt, foreign_questions, list_prompts
from memtier_bench.weights import load_any
from memtier_plugin.core.results import Hit
from memtier_plugin.memory import MemTier

TOP: Final = 50
PATIENCE: Final = 600_000  # milliseconds: a busy machine must not change a row
SEED: Final = 7
LINE_CHARS: Final = 1_000


def describe_line(speaker: str, observed_at: datetime | None, text: str) -> str:
    """Return a line as a model reads it: who, when, what."""
    when = f", {observed_at.day} {observed_at:%B %Y}" if observed_at else ""
    return f"{speaker}{when}: {text[:LINE_CHARS]}"


def ask_all(loaded: Dataset, foreign: dict[int, Any], share: float) -> Iterator[dict[str, Any]]:
    """Record each conversation and yield a row for each prompt."""
    chance = random.Random(SEED)
    for conversation in loaded.conversations:
        others = [q for q in foreign[id(conversation)] if chance.random() < share]
        prompts = list_prompts(conversation, others, (), f"{loaded.name}/")
        by_question = {id(prompt.question): prompt for prompt in prompts}
        asked = replace(conversation, questions=tuple(p.question for p in prompts))
        yield from _ask(loaded.name, asked, by_question)


def _ask(
    name: str, conversation: Conversation, prompts: dict[int, AskedPrompt]
) -> Iterator[dict[str, Any]]:
    part = Dataset(name=name, conversations=(conversation,), skipped=0, unresolved=0)
    run = BenchRun(loaded=part, facts="none", progress=lambda what, done, total: None)
    for memory, stage, recorded in run.recorded_conversations(None):
        for question in stage.questions:
            yield {"set": name, **_row(memory, recorded, prompts[id(question)])}


def _row(memory: MemTier, recorded: RecordedConversation, prompt: AskedPrompt) -> dict[str, Any]:
    question = prompt.question
    recall = memory.recall(
        question.text,
        session_id=prompt.id,
        purpose="inject",
        at=question.at,
        deadline_ms=PATIENCE,
    )
    units = {unit: number for number, unit in enumerate(sorted(question.gold))}
    names: dict[str, int] = {}
    hits = []
    for hit in recall.hits[:TOP]:
        turns = recorded.turns([hit])
        hits.append(
            {
                "line": _line(hit),
                "score": round(hit.score, 5),
                "units": [names.setdefault(turn, len(names)) for turn in turns],
                "gold": [units[turn] for turn in turns if turn in units],
            }
        )
    return {
        "kind": prompt.kind,
        "id": prompt.id,
        "query": question.text,
        "gold": len(units),
        "probability": recall.probability,
        "injected": len(recall.injected),
        "hits": hits,
    }


def _line(hit: Hit) -> str:
    item: Any = hit.item
    return describe_line(item.speaker or item.sender or item.role, item.observed_at, item.content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--only", nargs="+", help="these sets; the others lend foreign questions")
    parser.add_argument("--foreign", type=int, default=300, help="of each set, about so many")
    parser.add_argument("--conversations", type=int, help="of each set, the first [all]")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for data in arguments.data:
        sets = load_any(data)
        foreign = foreign_questions(sets)
        for loaded in sets:
            if arguments.only and loaded.name not in arguments.only:
                continue
            some = loaded.conversations[: arguments.conversations]
            count = sum(len(foreign[id(conversation)]) for conversation in some)
            part = replace(loaded, conversations=some)
            with (arguments.out / f"{loaded.name}.jsonl").open("w", encoding="utf-8") as file:
                for row in ask_all(part, foreign, arguments.foreign / max(1, count)):
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
