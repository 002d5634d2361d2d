"""HMO's tables: what each arm is, and what the reports show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memtier_bench.report import markdown
from memtier_bench.tiers import TABLES, run_hmo_table
from memtier_plugin.core.errors import Unsupported


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write two small conversations in LoCoMo's format; return the file."""
    samples = []
    for name in ("one", "two"):
        conversation: dict[str, Any] = {"speaker_a": "Ann", "speaker_b": "Ben"}
        questions = []
        for number in range(1, 4):
            turn = f"D{number}:1"
            conversation[f"session_{number}_date_time"] = f"1:00 pm on {number} May, 2023"
            conversation[f"session_{number}"] = [
                {"speaker": "Ann", "dia_id": turn, "text": f"I like the {name} barge {number}."},
                {"speaker": "Ben", "dia_id": f"D{number}:2", "text": "Good to know!"},
            ]
            question = f"Which barge {number} does Ann like?"
            answer = f"the {name} barge {number}"
            questions.append(
                {"question": question, "answer": answer, "evidence": [turn], "category": 4}
            )
        samples.append({"sample_id": name, "conversation": conversation, "qa": questions})
    file = tmp_path / "locomo.json"
    file.write_text(json.dumps(samples), "utf-8")
    return file


@pytest.mark.sampled(3)
@pytest.mark.parametrize("table", TABLES)
def test_tables(data: Path, table: str) -> None:
    """Each table measures a conversation a store and all in one, and renders every figure."""
    report = run_hmo_table(table, data)
    assert [part["entries"] for part in report["parts"]] == [6, 12]
    text = markdown(report)
    if table == "hmo-drift":
        for part in report["parts"]:
            assert part["rescored"]["gate"] <= part["rescored"]["always"]
            assert all(0 <= value <= 1 for value in part["jaccard"].values())
        assert "Jaccard of the cache" in text
        return
    for part in report["parts"]:
        flat = part["arms"][-1]
        assert flat["difference"][0] == 0 and not flat["tiers"]
        for arm in part["arms"][:-1]:
            assert sum(tier["answered"] for tier in arm["tiers"].values()) == pytest.approx(1)
            assert arm["name"] in text


def test_stores_of_a_size(data: Path) -> None:
    """Table 3 is measured in larger stores, of made-up lines before the conversations."""
    report = run_hmo_table("hmo-3", data, facts="none", entries=[20, 60])
    assert [part["entries"] for part in report["parts"]] == [20, 60]
    for part in report["parts"]:
        tiered, flat = part["arms"]
        assert tiered["tiers"] and not flat["tiers"]
    with pytest.raises(Unsupported, match="hmo-4' is not measured at sizes"):
        run_hmo_table("hmo-4", data, entries=[20])
    with pytest.raises(Unsupported, match="among so few"):
        run_hmo_table("hmo-3", data, facts="none", entries=[1], sample=1)
