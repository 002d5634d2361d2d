"""`memtier bench table tm-6` and `tm-7`: a cell for each embedder and reranker there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.tests.test_bench import locomo
from memtier_bench.grid import GridCell, list_cells
from memtier_bench.paper_tables import run_table
from memtier_bench.reading import ReaderModel
from memtier_bench.report import markdown
from tests.loopback import Loopback


def test_cells_are_what_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each embedder stands with and without the configured reranker; a model adds one cell."""
    assert [*list_cells(False)] == [GridCell("default"), GridCell("none")]
    monkeypatch.setenv("MEMTIER_RERANK__MODEL", "/models/r")
    monkeypatch.setenv("MEMTIER_EMBEDDING__MODEL", "/models/e")
    cells = [*list_cells(True)]
    assert len(cells) == len({*cells}) == 7
    assert GridCell("/models/e", "/models/r") in cells
    assert cells[-1] == GridCell("default", "/models/r", hypothetical=True)


def test_the_grid_without_a_reader_measures_recall(tmp_path: Path) -> None:
    """Table 7 has every cell, the best first; Table 6 sums them up."""
    data = locomo(tmp_path, (4, "Who plays the cello?", "D1:3"), (1, "Which bakery?", "D1:2"))
    report = run_table("tm-7", data, facts="none")
    scores = [row["score"] for row in report["rows"]]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)
    assert all(row["low"] <= row["score"] <= row["high"] for row in report["rows"])
    assert "recall@10" in markdown(report)
    summary = run_table("tm-6", data, facts="none")["summary"]
    assert summary["best"] == scores[0]
    assert summary["spread"] == pytest.approx(scores[0] - scores[-1])


def test_a_reader_adds_accuracy_and_made_up_answers(tmp_path: Path) -> None:
    """With a model the score is the share of right answers, and one cell makes answers up."""
    data = locomo(tmp_path, (4, "Who plays the cello?", "D1:3"))
    with Loopback() as server:
        server.answers(lambda _: {"line": "Ada plays the cello.", "answer": "Ada"})
        report = run_table("tm-7", data, facts="none", reader=ReaderModel(server.base_url, "m"))
    assert report["score"] == "accuracy"
    assert [row["hypothetical"] for row in report["rows"]].count(True) == 1
    assert all(0 <= row["score"] <= 1 for row in report["rows"])
