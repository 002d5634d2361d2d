"""`memtier bench steps`: coverage by an oracle's searches, beside one recall."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from bench.tests.test_bench import locomo
from memtier_bench.report import markdown
from memtier_bench.steps import Planner, run_steps
from memtier_plugin.answering.store_search import MAX_STEPS
from memtier_plugin.core.errors import Unsupported


@pytest.mark.parametrize("planner", ["oracle", "rules"])
def test_coverage_grows_with_each_step(tmp_path: Path, planner: Planner) -> None:
    """Multi-hop questions alone are asked; what was shown stays shown, and costs its tokens."""
    data = locomo(
        tmp_path,
        (1, "What do Ada and Ben do in May?", "D1:1", "D2:1"),
        (4, "What did Ada plant?", "D1:1"),
    )
    report = run_steps(data, planner=planner)
    assert report["questions"] == 1
    steps = report["steps"]
    assert [row["step"] for row in steps] == [*range(1, MAX_STEPS + 1)]
    for before, after in pairwise(steps):
        assert after["coverage"] >= before["coverage"]
        assert after["tokens"] >= before["tokens"]
    assert all(0 <= row["one_recall"] <= 1 for row in steps)
    assert "multi-hop questions" in markdown(report)


def test_other_questions_are_refused(tmp_path: Path) -> None:
    """Without a multi-hop question there is nothing to measure."""
    data = locomo(tmp_path, (4, "What did Ada plant?", "D1:1"))
    with pytest.raises(Unsupported, match="multi-hop"):
        run_steps(data)
