"""`memtier bench gate`: the area under the curve, and what the report holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bench.tests.test_bench import locomo
from memtier_bench.intervals import roc_area
from memtier_plugin.cli.main import main

LABELLED = st.lists(st.tuples(st.integers(0, 5).map(float), st.booleans()), min_size=2).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


@given(LABELLED)
def test_the_area_is_the_share_of_pairs_in_order(rows: list[tuple[float, bool]]) -> None:
    """It is how often a positive has more than a negative, ties half, whatever the order."""
    positives = [value for value, label in rows if label]
    negatives = [value for value, label in rows if not label]
    wins = sum((a > b) + (a == b) / 2 for a in positives for b in negatives)
    area, low, high = roc_area(rows)
    assert area == pytest.approx(wins / (len(positives) * len(negatives)))
    assert low <= area <= high
    assert roc_area(rows[::-1]) == (area, low, high)


def test_without_both_labels_there_is_no_curve() -> None:
    """All lines evidence, or none, is an error."""
    with pytest.raises(ValueError, match="2 positives of 2"):
        roc_area([(1.0, True), (0.5, True)])


def test_the_report_has_signals_index_and_recall(tmp_path: Path) -> None:
    """Each line is judged once; what is asked is asked with all lines and without the rejected."""
    data = locomo(tmp_path, (4, "Who plays the cello?", "D1:3"), (1, "Which bakery?", "D1:2"))
    out = tmp_path / "gate.json"
    result = CliRunner().invoke(main, ["bench", "gate", "--data", str(data), "--json", str(out)])
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text("utf-8"))
    assert report["lines"] == 7
    assert 0 <= report["rejected"] <= 7
    assert {"gate", "novelty", "salience", "prediction error"} < {*report["signals"]}
    assert all(size > 0 for size in report["index_bytes"].values())
    assert report["difference"]["recall@10"]["questions"] == 2
    assert "index, MB" in result.output
