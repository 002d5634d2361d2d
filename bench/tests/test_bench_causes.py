"""The benchmarks of causes and of attribution, on a few histories and runs."""

from __future__ import annotations

import random
from dataclasses import replace

from memtier_bench import report
from memtier_bench.attribution import run_attribution
from memtier_bench.uplift import CELLS, plant, run_uplift, simulate
from memtier_papers.memtier.uplift import estimate_uplift
from tests.loopback import Loopback


def test_uplift_in_kind() -> None:
    """Each world has its figures, and a planted line has credit without an uplift."""
    result = run_uplift(histories=3)
    assert [row["cell"] for row in result["cells"]] == [cell.name for cell in CELLS]
    assert all(0 <= row["coverage"] <= 1 for row in result["cells"])
    text = report.markdown(result)
    assert "planted line" in text and CELLS[0].name in text


def test_the_planted_line() -> None:
    """Credit by words in common loves the line that the agent repeats; uplift finds nothing."""
    planted = plant()
    assert planted["weight"] == 1.0
    assert planted["mean"] == 0.0 and planted["verdict"] == "unclear"


def test_histories_have_the_effect_they_are_given() -> None:
    """Over a long history the estimate is the effect that was put in."""
    cell = replace(CELLS[5], runs=30_000)
    uplift = estimate_uplift(simulate(cell, random.Random(3)))
    assert uplift.mean is not None and abs(uplift.mean - cell.effect) < 0.08


def test_proxies_are_compared() -> None:
    """Decoys take words in common in, not log-probabilities; without decoys all are right."""
    with Loopback() as server:
        result = run_attribution(runs=4, endpoint=server.base_url, model="m")
        assert server.count("/completions") == 4 * 9
    proxies = result["proxies"]
    assert result["model"] == "m" and proxies["logprob"]["top1"] == 1.0
    assert proxies["jaccard"]["plain"] == 1.0 and proxies["jaccard"]["decoy"] == 0.0
    assert result["proxies"] == run_attribution(runs=4)["proxies"]
    assert "top-1" in report.markdown(result)
