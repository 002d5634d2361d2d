"""Hostile texts on the real path: none becomes a fact, an order, a speaker or a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.__main__ import false_positives, table
from tests.attacks.suite import cases, play
from tests.proofs import show

LEAST = 200  # hostile texts


def test_there_are_enough_texts_and_no_two_alike() -> None:
    """The suite has hundreds of texts in twelve classes, none of them twice."""
    hostile = [case for case in cases() if not case.known.get("as")]
    assert len({case.text for case in hostile}) == len(hostile)
    assert len([*cases()]) >= LEAST
    assert len({case.kind for case in cases()}) == 12
    assert len([*cases(benign=True)]) >= 40


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_every_attack_is_held(tmp_path: Path, every: int) -> None:
    """With the defence as it ships, what must hold of each hostile text does."""
    played = play(tmp_path, every=every)
    assert len(played) > LEAST // every
    assert {case.name: case.failed for case in played if case.failed} == {}


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_what_only_looks_suspicious_is_remembered(tmp_path: Path, every: int) -> None:
    """Benign texts are recalled, legible and promoted just as without the defence."""
    on = play(tmp_path, benign=True, every=every)
    off = play(tmp_path, defence=False, benign=True, every=every)
    assert len(on) >= 40 // every
    assert false_positives(on, off) == []
    assert sum(len(case.facts) for case in on) > 10 // every


@pytest.mark.slow
def test_without_the_defence_most_attacks_succeed(tmp_path: Path) -> None:
    """The suite tells the difference: without the defence most get through, of each class many."""
    off = play(tmp_path, defence=False)
    rows = table(off, off)
    show("held without the defence", {row["class"]: row["held off"] for row in rows})
    assert all(4 * row["failed off"] > row["texts"] for row in rows)
    assert sum(row["failed off"] for row in rows) > 0.75 * sum(row["texts"] for row in rows)
