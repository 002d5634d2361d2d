"""Power cuts: what is acknowledged is on the disk, at whatever moment the power goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults import power_loss
from tests.proofs.checks import show

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(power_loss.COMPILER is None, reason="needs a C compiler: gcc, cc or clang"),
]
SEED = int(os.environ.get("TEST_MEMTIER_SEED", "1"))


def replayed(folder: Path, durability: str, rounds: int, most: int) -> power_loss.Report:
    """Run the workload and replay a sample of its prefixes, drawn by the seed."""
    journal, inode = power_loss.journal_workload(folder, rounds, durability=durability)
    return power_loss.replay(journal, inode, folder, opened=0.1, seed=SEED, most=most)


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """Up to any moment of writers that share syncs, die and go on, acknowledged lines are there.

    A sample of the moments, drawn by TEST_MEMTIER_SEED [1]; `make power-loss` takes all.
    """
    report = replayed(tmp_path, "sync", rounds=12, most=150)
    show("power loss", {**report.to_json(), "lost": len(report.lost)})
    assert not report.lost, report.lost[:10]
    assert report.acknowledged > 40 and report.syncs > 40 and report.opened > 5


def test_the_replay_finds_losses(tmp_path: Path) -> None:
    """Without syncs the same replay finds acknowledged lines lost: it can fail."""
    report = replayed(tmp_path, "os", rounds=3, most=20)
    assert report.lost
