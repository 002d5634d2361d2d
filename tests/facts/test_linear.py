"""What a consolidation reads costs in proportion to its length, however it was written."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from functools import cache

import pytest

from memtier_plugin.facts.extraction.rules import extract_facts
from tests.builders import make_entry

SAID = datetime(2026, 3, 4, 10, tzinfo=UTC)
SIZES = [8_000, pytest.param(40_000, marks=pytest.mark.slow)]  # characters
MOST = 25.0  # times what prose of the same length takes
PROSE = "The heron moved to the green barn near the river because it rained. "
UNITS = (
    *("“", "„", "«", "「", '"', '"a" ', " (", "[", "[x](", "**a** ", "`a` ", "<a>", '{"a": '),
    *("because ", "so because and ", "and ", "if ", "A and B and ", "never ", "not ", "that is "),
    *("I ", "I am ", "I'm ", "we will ", "my sister ", "my sister Ana ", "My friend, ", "called "),
    *("2026-01-01 ", "last Friday, ", "3 days ago ", "on 1 May 2026, ", "in my ", "when I was "),
    *("a", "A", "A. ", "Aa ", "Ann Bob Cid ", "1 ", "1. ", "- x\n", "> a\n", "|a|\n", "Ann: hi\n"),
    *(
        "from: x\n",
        "a: ",
        "a=",
        "/a",
        ", ",
        "; ",
        " - ",
        "... ",
        "? ",
        "  \t",
        "\n",
        "\r\n",
        "a\u200b",
    ),
    *("我", "我叫小明。", "私は", "나는 ", "я ", "Ich bin ", "j'ai ", "yo soy ", "é", "😀"),
)


def seconds(text: str) -> float:
    """Return the CPU time that it takes to extract facts from a text."""
    entry = make_entry(text, SAID, id="e")
    started = time.process_time()
    extract_facts([entry])
    return time.process_time() - started


@cache
def of_prose(size: int) -> float:
    """Return the time for prose, not the first time, which makes the tables."""
    return min(seconds((PROSE * size)[:size]) for _ in range(3))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("unit", UNITS)
def test_a_repeated_unit_is_read_in_linear_time(unit: str, size: int) -> None:
    """No mark and no word makes a pattern look at the rest of the text from each of its places."""
    assert seconds((unit * size)[:size]) < MOST * of_prose(size)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(6))
def test_units_at_random_are_read_in_linear_time(seed: int, size: int) -> None:
    """Nor do several of them, in any order."""
    chance = random.Random(seed)
    few = chance.sample(UNITS, 3)
    assert seconds("".join(chance.choices(few, k=size))[:size]) < MOST * of_prose(size)
