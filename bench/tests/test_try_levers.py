"""The levers that are tried on rankings and blocks, on made-up hits (`scripts/try_levers.py`)."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.results import Hit
from tests.builders import make_entry, make_hit


@pytest.fixture(scope="module")
def script() -> Any:
    """Return the script as a module; it is no part of a package."""
    path = Path(__file__).parents[2] / "scripts" / "try_levers.py"
    spec = spec_from_file_location("try_levers", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "try_levers", module)  # dataclasses look it up there
        spec.loader.exec_module(module)
    return module


def ask(script: Any, question: str, hits: list[Hit]) -> Any:
    """Return a question whose last hit is gold."""
    return script.Asked(
        column="c",
        gold=frozenset({hits[-1].id}),
        question=question,
        hits=hits,
        turns=[(hit.id,) for hit in hits],
        offered=[*range(len(hits))],
        weak=frozenset({len(hits) - 1}),
        silent=False,
        terms={"tea": 1.0},
        words=str.split,
        parts=(),
    )


@pytest.fixture
def asked(script: Any) -> Any:
    """Return a question about two people, with lines of both."""
    speakers = ("Ada", "Ada", "Ben")
    hits = [
        make_hit(make_entry(f"{name} likes tea {n}", id=f"e{n}", speaker=name))
        for n, name in enumerate(speakers)
    ]
    return ask(script, "What do Ada and Ben drink?", hits)


def test_a_lever_that_does_nothing_keeps_the_order(script: Any, asked: Any) -> None:
    """Without weight a lever gives the shipped order, and each order has every hit once."""
    assert script.spread(asked, 0.0, 0.0) == script.as_shipped(asked)
    for order in script.RANKINGS.values():
        assert sorted(order(asked)) == script.as_shipped(asked)


def test_people_take_turns(script: Any, asked: Any) -> None:
    """Where a question names two people, their lines alternate."""
    assert script.by_person(asked) == [0, 2, 1]


def test_a_block_is_measured(script: Any, asked: Any) -> None:
    """A weak line is in the block only if weak lines are offered, and its words count then."""
    without, with_weak = (script.fill(asked, weak=weak) for weak in (False, True))
    assert (without.turns, without.words) == (0.0, 0.0)
    assert (with_weak.turns, with_weak.words) == (1.0, 1.0)
    assert with_weak.tokens > without.tokens
