"""`bench ablation` on sets and judgement cases, and the tables of systems that are made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from bench.tests.test_bench_compare import locomo
from bench.tests.test_bench_speech import CASES, GARDEN, ISLAND, conversation, write_set
from memtier_bench.ablation_parts import run_ablations
from memtier_bench.paper_tables import run_table
from memtier_bench.reading import ReaderModel
from memtier_bench.report import markdown
from memtier_bench.system_tables import TABLES
from memtier_plugin.cli.main import main
from tests.loopback import Loopback


def run(*arguments: str | Path) -> Result:
    """Run `memtier bench`."""
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    """A folder with a set whose first question is asked before its conversation ends."""
    garden = conversation("garden", GARDEN, after=2)
    island = conversation("island", ISLAND)
    return write_set(tmp_path / "sets", "both", garden, island).parent


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """A folder of judgement sets with a case or two each."""
    folder = tmp_path / "judgement"
    folder.mkdir()
    for name, document in CASES.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document, allow_unicode=True))
    return folder


@pytest.mark.slow
def test_sets_and_cases_stand_in_one_report(sets: Path, cases: Path, tmp_path: Path) -> None:
    """Each part has its rows; the files are written before everything was asked."""
    files = [tmp_path / f"ablation.{kind}" for kind in ("json", "md", "svg")]
    pairs = zip(("--json", "--markdown", "--plot"), files, strict=True)
    outputs = [part for pair in pairs for part in pair]
    options = ["--profile", "recall_first", "--only", "stores", "--silence", "4"]
    result = run("ablation", "--sets", sets, "--judgement", cases, *options, *outputs)
    assert result.exit_code == 0, result.output
    report = json.loads(files[0].read_text("utf-8"))
    assert [part["dataset"] for part in report["parts"]] == ["both", "judgement"]
    both, judged = (part["profiles"][0] for part in report["parts"])
    assert both["base"]["silent"] is not None and both["base"]["index_bytes"] > 0
    assert [row["name"] for row in both["rows"]] == [row["name"] for row in judged["rows"]]
    assert {*judged["base"]["scores"]} == {*CASES}
    text = files[1].read_text("utf-8")
    assert "without lines" in text and "judgement · ablation" in text
    assert files[2].read_text("utf-8").startswith("<?xml")


def test_what_was_measured_so_far_is_told(sets: Path) -> None:
    """After each conversation there are figures of every variant on those that are done."""
    kept: list[dict[str, Any]] = []
    options: dict[str, Any] = {"profile": "recall_first", "only": ["stores"], "keep": kept.append}
    report = run_ablations(None, sets=sets, **options)
    assert [part["conversations"] for part in kept] == [[1, 2], [2, 2]]
    assert [part["questions"] for part in kept] == [1, 2]
    assert len({len(part["profiles"][0]["rows"]) for part in kept}) == 1
    assert "1 of 2 conversations" in markdown(kept[0])
    assert kept[1]["profiles"] == report["profiles"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((), "name a data set"), (("locomo",), "belong together")],
)
def test_what_is_measured_must_be_named(arguments: tuple[str, ...], message: str) -> None:
    """A data set needs its file, and without any there is nothing to measure."""
    result = run("ablation", *arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_systems_without_a_reader_is_in_recall(tmp_path: Path, table: str) -> None:
    """MemTier comes first, and every other row has the difference to it."""
    report = run_table(table, locomo(tmp_path), "locomo", facts="dataset")
    first, *others = report["rows"]
    assert first["name"] == "MemTier" and first["difference"] is None
    assert [row["name"] for row in others] == [*TABLES[table].systems]
    for row in others:
        change = row["difference"]
        assert change["difference"] == pytest.approx(row["value"] - first["value"], abs=2e-4)
        assert row["interval"][0] <= row["value"] <= row["interval"][1]
        assert {*row["by_category"]} == {*first["by_category"]}
    text = markdown(report)
    assert TABLES[table].paper in text and "recall@10 by category" in text


@pytest.mark.parametrize(("table", "score"), [("tm-4", "accuracy"), ("mem-t-4", "F1")])
def test_a_reader_gives_accuracy_or_f1(tmp_path: Path, table: str, score: str) -> None:
    """True Memory's tables count right answers, Mem-T's has F1; the oracle is a row of Table 4."""
    with Loopback() as server:
        reader = ReaderModel(server.base_url, "m")
        report = run_table(table, locomo(tmp_path), "locomo", facts="none", reader=reader)
    assert report["score"] == score
    names = [row["name"] for row in report["rows"]]
    assert ("the reader with oracle" in names) == (table == "tm-4")
    assert all(0 <= row["value"] <= 1 for row in report["rows"])
    assert score in markdown(report)
