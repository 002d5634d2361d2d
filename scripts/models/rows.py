"""Rows that a model is trained on and judged by: public ones, and what recalls found."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Of RELEVANCE: neither share-alike sources (xquad, squad2, disfl-qa, cmrc2018; clinc-oos, whose
# lines are of sgd) nor those in other languages.
SOURCES: Final = ("irc-ubuntu", "dstc9-faq", "molweni", "medquad", "qmsum")
HARD: Final = 10  # best lines of a recall, of which the wrong ones are drawn
_NAMES: Final = ("Anna", "Ben", "Carla", "David", "Elena", "Farid", "Grace", "Hugo", "Iris")
_MONTHS: Final = ("January", "March", "May", "June", "July", "August", "October", "December")


@dataclass(frozen=True, slots=True)
class Group:
    """A prompt and lines, best first where they were found by a recall.

    Attributes:
        kind: "own" if something may answer it, "foreign" if nothing does.
        count: how many units answer the prompt.
        units: of each line, the numbers of what it holds.
        gold: of each line, the numbers of what in it answers the prompt.
        scores: of each line, by the recall; none for public rows.
        probability: that the lines hold what the prompt needs, by the floor of today.
        injected: how many lines the floor of today lets through.
    """

    kind: str
    query: str
    lines: list[str]
    gold: list[list[int]]
    count: int
    units: list[list[int]]
    scores: list[float]
    probability: float | None = None
    injected: int = 0


def read_public(path: Path, seed: int, negatives: int) -> list[Group]:
    """Return the public rows in a random order, half of them dressed as a memory's lines."""
    chance = random.Random(seed)
    groups = []
    with path.open(encoding="utf-8") as file:
        for text in file:
            row = json.loads(text)
            if row["lang"] != "en" or row["source"] not in SOURCES:
                continue
            right = chance.sample(row["pos"], min(1, len(row["pos"])))
            wrong = chance.sample(row["neg"], min(negatives, len(row["neg"])))
            lines, dressed = [*right, *wrong], chance.random() < 0.5
            if dressed:
                lines = [f"{_who(chance)}: {line}" for line in lines]
            gold: list[list[int]] = [[0]] * len(right) + [[]] * len(wrong)
            kind = "own" if right else "foreign"
            if wrong:
                groups.append(Group(kind, row["q"], lines, gold, len(right), gold, []))
    chance.shuffle(groups)
    return groups


def _who(chance: random.Random) -> str:
    day, month, year = chance.randint(1, 28), chance.choice(_MONTHS), chance.randint(2019, 2026)
    return f"{chance.choice(_NAMES)}, {day} {month} {year}"


def read_candidates(path: Path, own: int, foreign: int, seed: int = 7) -> Iterator[Group]:
    """Yield what recalls found (`candidates.py`) for so many prompts of each kind."""
    rows: dict[str, list[dict[str, Any]]] = {"own": [], "foreign": []}
    for text in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        if row["hits"] and row["kind"] in rows and (row["gold"] or row["kind"] == "foreign"):
            rows[row["kind"]].append(row)
    chance = random.Random(seed)
    for kind, most in (("own", own), ("foreign", foreign)):
        for row in chance.sample(rows[kind], min(most, len(rows[kind]))):
            hits = row["hits"]
            yield Group(
                kind,
                row["query"],
                [hit["line"] for hit in hits],
                [hit["gold"] for hit in hits],
                row["gold"],
                [hit["units"] for hit in hits],
                [hit["score"] for hit in hits],
                row["probability"],
                row["injected"],
            )


def read_found(paths: Sequence[Path], prompts: int, seed: int, negatives: int) -> list[Group]:
    """Return groups to train on from what recalls found, two thirds own prompts, in random order.

    Args:
        prompts: of each file, at most.
        negatives: lines of each group that answer nothing, from the ten best.
    """
    chance = random.Random(seed)
    groups = []
    for path in paths:
        for group in read_candidates(path, prompts * 2 // 3, prompts // 3, seed):
            right = [line for line, gold in zip(group.lines, group.gold, strict=True) if gold]
            best = [*zip(group.lines, group.gold, strict=True)][:HARD]
            wrong = [line for line, gold in best if not gold]
            right = right[:1] if group.kind == "own" else []
            wrong = chance.sample(wrong, min(negatives + 1 - len(right), len(wrong)))
            if wrong and (right or group.kind == "foreign"):
                gold = [[0]] * len(right) + [[]] * len(wrong)
                lines = [*right, *wrong]
                groups.append(Group(group.kind, group.query, lines, gold, len(right), gold, []))
    chance.shuffle(groups)
    return groups
