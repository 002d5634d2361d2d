"""Hooks and MCP servers that start at random have one resident: a sample of `make race`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.hooks.race import run_race

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc"),
]


@pytest.mark.parametrize(("seed", "busy", "long"), [(1, 0, False), (2, 8, False), (3, 0, True)])
def test_one_resident(tmp_path: Path, seed: int, busy: int, long: bool) -> None:
    """Whoever comes first, and however busy the machine is, one resident is loaded, and stays."""
    race = run_race(16, seed, tmp_path, busy=busy, long=long)
    assert len(race.residents) == 1
    assert race.loaded == {*race.residents}


@pytest.mark.parametrize(("starts", "seed"), [(16, 4), (4, 8)])  # 8: killed as soon as it is there
def test_a_resident_that_is_killed(tmp_path: Path, starts: int, seed: int) -> None:
    """A resident killed among its sessions is followed by one other, and no more."""
    race = run_race(starts, seed, tmp_path, kills=1)
    assert race.killed == race.residents[:1]
    assert len(race.residents) == 2
    assert len(race.loaded) == 2
