"""The fit of the default weights, on made-up questions (`scripts/fit_weights.py`)."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memtier_papers.memtier.fit import PENALTY

NAMES = ("informative", "noise", "misleading", "kept")
FREE = np.array([True, True, True, False])
START = np.array([1.0, 1.0, 1.0, 0.7])


@pytest.fixture(scope="module")
def script() -> Any:
    """Return the script as a module; it is no part of a package."""
    path = Path(__file__).parents[2] / "scripts" / "fit_weights.py"
    spec = spec_from_file_location("fit_weights", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "fit_weights", module)  # dataclasses look it up there
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def questions(script: Any) -> list[Any]:
    """Make questions with one gold hit each, which one signal raises and another lowers."""
    chance = np.random.default_rng(7)
    samples = []
    for number in range(80):
        hits = int(chance.integers(5, 12))
        signals = chance.random((hits, len(NAMES)))
        gold = int(chance.integers(hits))
        signals[gold, 0] = min(1.0, signals[gold, 0] + 0.35)
        signals[gold, 2] *= 0.6
        turns = [[f"{number}.{hit}"] for hit in range(hits)]
        samples.append(script.Asked("c", signals, turns, frozenset({f"{number}.{gold}"})))
    return samples


def loss(questions: list[Any], weights: Any) -> float:
    """Compute what the script says that it minimises, hit by hit."""
    losses = []
    for question in questions:
        scores = question.signals @ weights
        losses.append(-float(question.target @ (scores - np.log(np.exp(scores).sum()))))
    return float(np.mean(losses))


def test_fit_prefers_what_tells_gold(script: Any, questions: list[Any]) -> None:
    """The signal that raises gold counts most, one that lowers it nothing; kept ones are kept."""
    weights = script.fit([questions], START, FREE)
    assert (weights >= 0).all()
    assert weights[0] > 2 * weights[1]
    assert weights[2] == 0.0
    assert weights[3] == START[3] * 1.5  # of the temperature; `_scaled` gives it back
    assert script._scaled(weights / weights[0], START, ["words", *NAMES[1:2], "user", "decay"])[
        [0, 3]
    ].tolist() == [1.0, START[3]]
    assert script.recall(questions, weights, 1) > script.recall(questions, START, 1)


def test_fit_does_not_depend_on_the_start(script: Any, questions: list[Any]) -> None:
    """The loss is convex: wherever the search begins, it ends at the same weights."""
    first, other = (
        script.fit([questions], np.array([*free, START[3]]), FREE)
        for free in ([0.0, 0.0, 0.0], [5.0, 3.0, 4.0])
    )
    assert first == pytest.approx(other, abs=1e-2)


def test_fit_is_at_a_minimum(script: Any, questions: list[Any]) -> None:
    """No small change of a free weight lowers the loss and its penalty together."""
    weights = script.fit([questions], START, FREE)

    def total(moved: Any) -> float:
        return loss(questions, moved) + PENALTY * float(moved @ moved)

    for index in np.flatnonzero(FREE):
        for step in (-0.2, 0.2):
            moved = weights.copy()
            moved[index] = max(0.0, moved[index] + step)
            assert total(weights) <= total(moved) + 1e-9


def test_each_set_counts_the_same(script: Any, questions: list[Any]) -> None:
    """A set that is asked twice as often does not outvote another."""
    flipped = [
        script.Asked("d", question.signals[:, [2, 1, 0, 3]], question.turns, question.gold)
        for question in questions
    ]
    once = script.fit([questions, flipped[:40]], START, FREE)
    twice = script.fit([questions * 2, flipped[:40]], START, FREE)
    assert once == pytest.approx(twice, abs=1e-6)


def test_several_gold_hits_share_one(script: Any) -> None:
    """The target of a question is one, shared by the hits that bring gold; none without any."""
    signals = np.zeros((4, 1))
    turns = [["a"], ["b"], ["c", "a"], []]
    assert script.Asked("c", signals, turns, frozenset("a")).target.tolist() == [0.5, 0, 0.5, 0]
    assert script.Asked("c", signals, turns, frozenset("z")).target.tolist() == [0, 0, 0, 0]
