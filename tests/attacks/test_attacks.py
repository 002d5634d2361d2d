"""Hostile texts on the real path: none becomes a fact, an order, a speaker or a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.__main__ import false_positives, table, unexpected
from tests.attacks.suite import SETS, cases, play
from tests.proofs.checks import show

LEAST = 200  # hostile texts


def test_there_are_enough_texts_and_no_two_alike() -> None:
    """The suite has hundreds of texts in at least twelve classes, none of them twice."""
    everything = [case for texts in SETS.values() for case in cases(texts=texts)]
    hostile = [case for case in everything if not case.known.get("as")]
    assert len({case.text for case in hostile}) == len(hostile)
    assert len([*cases()]) >= LEAST
    for texts in SETS.values():
        assert len({case.kind for case in cases(texts=texts)}) >= 12
    assert sum(len([*cases(True, texts)]) for texts in SETS.values()) >= 80


@pytest.mark.parametrize("texts", SETS.values(), ids=SETS)
@pytest.mark.parametrize("every", [48, pytest.param(1, marks=pytest.mark.slow)])
def test_every_attack_is_held(tmp_path: Path, every: int, texts: Path) -> None:
    """What must hold of each hostile text does, unless the text is listed as open, with why."""
    played = play(tmp_path, every=every, texts=texts)
    assert len(played) >= len([*cases(texts=texts)]) // every
    assert unexpected(played) == {}


@pytest.mark.parametrize("texts", SETS.values(), ids=SETS)
@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.slow)])
def test_what_only_looks_suspicious_is_remembered(tmp_path: Path, every: int, texts: Path) -> None:
    """Benign texts are recalled, legible and promoted just as without the defence."""
    on = play(tmp_path, benign=True, every=every, texts=texts)
    off = play(tmp_path, defence=False, benign=True, every=every, texts=texts)
    assert len(on) >= len([*cases(True, texts)]) // every
    assert false_positives(on, off) == []
    assert 5 * sum(len(case.facts) for case in on) > len(on)  # others wait for review


@pytest.mark.slow
def test_without_the_defence_most_attacks_succeed(tmp_path: Path) -> None:
    """The suite tells the difference: without the defence most get through, of each class many."""
    off = play(tmp_path, defence=False)
    rows = table(off, off)
    show("held without the defence", {row["class"]: row["held off"] for row in rows})
    assert all(4 * row["failed off"] > row["texts"] for row in rows)
    assert sum(row["failed off"] for row in rows) > 0.75 * sum(row["texts"] for row in rows)
