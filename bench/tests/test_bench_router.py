"""`memtier bench router`: the arms, the routes and the table add up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.tests.test_bench import locomo
from memtier_bench.report import markdown, report_sections
from memtier_bench.router import (
    ARMS,
    ArmResult,
    RouterCase,
    open_without_links,
    run_router,
    summarise_cases,
)
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.memory import MemTier
from tests.builders import make_draft, say_each
from tests.processes import run_memtier


def case(action: str, facts: float, raw: float, *, omitted: bool = False) -> RouterCase:
    served = {arm: ArmResult(recall=raw, tokens=100, seconds=0.01) for arm in ARMS}
    served["facts"] = ArmResult(recall=facts, tokens=20, seconds=0.01)
    served["routed"] = served["facts" if action == "S" else "raw"]
    return RouterCase(
        id="q", category="c", gold=1, action=action, doubt=0.5, why=(), arms=served, omitted=omitted
    )


def test_the_table_counts_what_either_arm_would_have_shown() -> None:
    """S right x R right x route, with the rates of repair and regress (TierMem, appendix D.2)."""
    cases = [
        case("S", 1, 1),
        case("S", 0, 1, omitted=True),
        case("R", 0, 1),
        case("R", 0, 1),
        case("R", 0, 0),
        case("R", 1, 0),
        case("R", 1, 1),
        case("R", 1, 1),
    ]
    summary = summarise_cases(cases)
    assert summary["routes"]["table"] == {
        "S": {"SR": 1, "Sr": 0, "sR": 1, "sr": 0},
        "R": {"SR": 2, "Sr": 1, "sR": 2, "sr": 1},
    }
    assert summary["routes"]["escalated"] == 0.75
    assert summary["routes"]["unverifiable_omission"] == 1 / 8
    assert summary["routes"]["omission_from_facts"] == 0.5
    assert summary["routes"]["repair_rate"] == pytest.approx(2 / 3, abs=1e-4)
    assert summary["routes"]["regress_rate"] == pytest.approx(1 / 3, abs=1e-4)
    assert summary["arms"]["routed"]["tokens"] == 80
    assert summary["against_raw"]["routed"] == {
        "injected_recall": round(0.625 / 0.75, 4),
        "tokens": 0.8,
    }


def test_a_run_measures_every_arm_on_every_question(tmp_path: Path) -> None:
    """Each question has all arms; the log's own tokens are those of its block, pages are whole."""
    path = locomo(tmp_path, (1, "Who grows beans?", "D1:1"), (2, "Who has a cello?", "D1:3"))
    report = run_router("locomo", path)
    assert report["questions"] == 2
    assert report["k"] == 16
    for row in report["per_question"]:
        assert row["route"] in ("S", "R")
        assert set(row["tokens"]) == set(row["injected_recall"]) == set(ARMS)
    assert report["arms"]["raw"]["injected_recall"] == 1.0
    assert sum(sum(row.values()) for row in report["routes"]["table"].values()) == 2
    assert (
        run_router("locomo", path, k=1)["arms"]["raw"]["tokens"] < report["arms"]["raw"]["tokens"]
    )
    assert "always raw" in markdown(report)
    assert len(report_sections(report)) == 5


def test_epochs_write_back_what_escalations_showed(tmp_path: Path) -> None:
    """Table 5 of TierMem: an epoch is frozen; then gold lines become facts, each once."""
    path = locomo(tmp_path, (1, "Who says see you soon?", "D2:3"), (2, "Who has a cello?", "D1:3"))
    report = run_router("locomo", path, facts="extracted", epochs=3)
    first, second, third = report["epochs"]
    asked = report["per_question"]
    escalated = [row for row in asked if row["route"] == "R" and row["injected_recall"]["routed"]]
    assert first["s_traffic"] == sum(row["route"] == "S" for row in asked)
    assert first["accuracy"] == second["accuracy"] == third["accuracy"] == 1.0
    assert 0 < first["added"] <= len(escalated)  # what a fact says already is skipped
    assert (second["added"], third["added"]) == (0, 0)
    assert "written back" in markdown(report)
    assert "written back" not in markdown(run_router("locomo", path))


def test_without_links_a_fact_lends_nothing_to_its_source_line(home: Path) -> None:
    """The arm without links ranks a line by itself, whatever fact rests on it."""
    with MemTier.open(home, "p", settings={"embedding.model": "none"}) as memory:
        named, _ = say_each(memory, "Ortrud is what I named the grey one.", "The cat food is out.")
        memory.add_facts([make_draft(named, "Ortrud", text="The cat of Ada is called Ortrud.")])
        with open_without_links(memory) as unlinked:
            scores = [
                {hit.id: hit.score for hit in asked.recall("What is the cat called?").hits}
                for asked in (memory, unlinked)
            ]
    assert scores[0][named.id] > scores[1].get(named.id, 0.0)


def test_a_router_needs_facts(tmp_path: Path) -> None:
    """Without facts there is nothing to decide."""
    with pytest.raises(Unsupported, match="needs facts"):
        run_router("locomo", locomo(tmp_path, (1, "Who?", "D1:1")), facts="none")


def test_the_command(tmp_path: Path) -> None:
    """The report goes to stdout as tables, and into the file as JSON."""
    path = locomo(tmp_path, (1, "Who grows beans?", "D1:1"))
    file = tmp_path / "out.json"
    run = run_memtier("bench", "router", "--data", str(path), "--json", str(file), "--k", "4")
    assert "escalated to the log" in run.output
    assert json.loads(file.read_text())["k"] == 4
