"""Planted lines: two hundred facts about forty people, each with two questions.

One question repeats the line's own words.  The other is a paraphrase that shares the name and few
other content words.  No person has two facts of one kind, so every question has one answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

import yaml

MAX_PLANTED: Final = 200
_KINDS: Final = Path(__file__).with_name("planted.yaml")
_NAMES: Final = """
    Alma Amir Bruno Carla Chen Dalia Edgar Elif Farid Fiona Grace Hector Hugo Ines Ivan Jonas
    Kira Laila Lars Lucia Malik Marta Mei Milan Nadia Noor Olga Omar Pablo Petra Quentin Rosa
    Samir Selma Sven Tariq Uma Vera Wanda Yusuf
"""
PEOPLE: Final = tuple(_NAMES.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedLine:
    """A line, its person, and the two questions that only this line answers."""

    line: str
    own_words: str
    paraphrase: str
    person: str


def plant_lines(count: int, seed: int) -> list[PlantedLine]:
    """Return ``count`` lines (at most `MAX_PLANTED`), deterministic per seed."""
    chance = random.Random(seed)
    people = list(PEOPLE)
    chance.shuffle(people)
    turns = cycle(people)
    kinds = yaml.safe_load(_KINDS.read_text(encoding="utf-8"))
    lines = [line for kind in kinds for line in _fill_rows(kind, turns)]
    chance.shuffle(lines)
    return lines[:count]


def _fill_rows(kind: Mapping[str, str], people: Iterator[str]) -> Iterator[PlantedLine]:
    """Yield one line per row of a kind, each about the next person."""
    for row in kind["rows"].split("; "):
        *context, value = row.split(" = ")
        a, b = (*context, *context)[:2] if context else ("", "")
        person = next(people)
        words = {"who": person, "a": a, "b": b, "value": value}
        yield PlantedLine(
            line=kind["line"].format(**words),
            own_words=kind["own_words"].format(**words),
            paraphrase=kind["paraphrase"].format(**words),
            person=person,
        )
