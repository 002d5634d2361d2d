"""A project with a past that can be asked about."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtier_plugin import MemTier
from tests.builders import user_message

THINGS = """harbour ferry lantern orchard violin kettle saddle compass blanket tunnel garden rocket
pepper mirror anchor button candle dragon engine feather glacier hammer island jacket kitten ladder
magnet needle oyster pillow quarry ribbon shovel tractor umbrella valley walnut yogurt zipper basket
"""
DOES = "borrowed painted repaired lost sold cleaned hid measured carried polished"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
NO_VECTORS = {"embedding.model": "none", "regression.questions": 24}
Opened = Callable[..., MemTier]


def words_of(number: int) -> tuple[str, str, str, str]:
    """Return the verb and the three things of a sentence."""
    chance = random.Random(number)
    first, second, third = chance.sample(THINGS.split(), 3)
    return chance.choice(DOES.split()), first, second, third


def use(memory: MemTier, number: int, ok: bool = True) -> None:
    """Ask in a run that uses what it was given, and ends well or badly."""
    does, first, second, third = words_of(number)
    run, session = f"run-{number}", f"asked-{number % 8}"
    query = f"Which {first} was {does} near the {second}?"
    memory.recall(query, session_id=session, run_id=run, purpose="inject")
    answer = f"The {first} was {does} near the {second} and then we saw the {third}."
    tool = {"role": "tool", "tool_call_id": "c", "name": "shell", "content": "", "exit_code": 1}
    call = {"id": "c", "function": {"name": "shell", "arguments": answer}}
    messages = [
        {"role": "assistant", "content": answer, "tool_calls": [call]},
        {**tool, "exit_code": 0 if ok else 1},
    ]
    memory.end_run(messages, session_id=session, run_id=run)


def tell(memory: MemTier, numbers: Iterable[int]) -> None:
    """Record a sentence of each number, in twelve sessions of three months."""
    for number in numbers:
        does, first, second, third = words_of(number)
        text = f"We {does} the {first} near the {second} and then saw a {third}."
        memory.record(
            [user_message(text)],
            session_id=f"s{number % 12}",
            observed_at=NOW - timedelta(days=number * 31 % 90),
        )


@pytest.fixture(scope="session")
def past_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a project with 30 sentences, and 24 runs that used them."""
    home = tmp_path_factory.mktemp("past") / "home"
    with MemTier.open(home, "p", settings=NO_VECTORS, clock=lambda: NOW) as memory:
        tell(memory, range(30))
        for number in range(24):
            use(memory, number, ok=number % 4 > 0)
    return home


@pytest.fixture
def opened(past_home: Path, tmp_path: Path) -> Opened:
    """Return a function that opens a copy of that project, with settings."""
    home = shutil.copytree(past_home, tmp_path / "home")

    def open_copy(**settings: object) -> MemTier:
        return MemTier.open(home, "p", settings={**NO_VECTORS, **settings}, clock=lambda: NOW)

    return open_copy
