"""What a recall costs in a project of 10,000 entries."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from memtier_bench.scale import run_scale
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.sessions import REFRESH_BYTES
from tests.proofs.checks import show

SIZES, RECALLS = (1_000, 10_000), 1_000


@pytest.mark.slow
def test_the_cost_of_a_recall_is_bounded() -> None:
    """Ten times the entries: a recall reads no more postings than its cap and its bounds allow."""
    sizes = run_scale(SIZES, RECALLS, agents=1)["sizes"]
    cap = Settings().retrieval.postings_cap
    for size in sizes:
        show(
            f"{size['entries']} entries",
            {
                "import ms": size["import_ms"],
                "cold ms": size["cold_ms"],
                "ms": size["latency_ms"],
                "postings": size["postings_read"],
                "most postings": size["postings_read_max"],
                "entries per second": size["entries_per_s"],
            },
        )
        # Words, a quarter of them for facts, and a quarter each for both tiers' n-grams.
        assert size["postings_read_max"] <= cap * 1.75
    assert [size["entries"] for size in sizes] == [*SIZES]


@pytest.mark.slow
def test_a_restored_ledger_does_not_hold_up_a_recall(home: Path) -> None:
    """Large files that came back otherwise than they went are read anew by the sweep."""
    line = "the zebra crossed the river again " * 30
    with MemTier.open(home, "old") as memory:
        messages = [{"role": "user", "content": f"{n} {line}"} for n in range(800)]
        memory.record(messages, session_id="s")
        ids = [hit.id for hit in memory.recall("zebra 7").hits]
        [ledger] = memory.folder.glob("episodic/main/*.jsonl")
        assert ledger.stat().st_size > REFRESH_BYTES
    restored = shutil.copytree(home, home.with_name("restored"))
    [copy] = restored.glob("projects/*/episodic/main/*.jsonl")
    first, rest = copy.read_text("utf-8").split("\n", 1)
    copy.write_text(f"{first} \n{rest}", "utf-8")  # the same lines, and another file
    with MemTier.open(restored, "old") as memory:
        meanwhile = memory.recall("zebra 7")
        assert meanwhile.label == "degraded: index behind"
        assert [hit.id for hit in meanwhile.hits] == ids
        memory.catch_up()
        recall = memory.recall("zebra 7")
        assert recall.label == "hybrid"
        assert [hit.id for hit in recall.hits] == ids
