"""`memtier bench gate-check` and `bench learners`: small runs, and their reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memtier_bench import report
from memtier_bench.gate_check import run_gate_check
from memtier_bench.learners import run_learners
from tests.processes import run_json, run_memtier
from tests.regression.conftest import words_of


def a_set(path: Path, name: str, questions_each: int = 24) -> Path:
    """Write a set of two small conversations in our own shape."""
    conversations: list[dict[str, Any]] = []
    for conversation in range(2):
        turns, questions = [], []
        for number in range(questions_each):
            does, first, second, third = words_of(100 * conversation + number)
            text = f"We {does} the {first} near the {second} and then saw a {third}."
            unit = f"u{number}"
            turns.append({"id": unit, "unit": unit, "role": "user", "text": text})
            question = f"Which {first} was {does} near the {second}?"
            questions.append(
                {"id": f"q{number}", "text": question, "gold": [unit], "category": "a"}
                | {"at": "2026-05-02T10:00:00Z"}
            )
        session = {"id": "s1", "date": "2026-05-01T10:00:00Z", "turns": turns}
        conversations.append({"id": f"c{conversation}", "sessions": [session]})
        conversations[-1]["questions"] = questions
    path.write_text(json.dumps({"name": name, "unit": "turn", "conversations": conversations}))
    return path


def test_the_gate_is_measured(tmp_path: Path) -> None:
    """Bad weights are drawn and refused, harmless ones are not, and the report says how many."""
    result = run_gate_check(a_set(tmp_path / "set.json", "small", 14), draws=2, entries=20)
    assert result["bad"]["drawn"] == result["harmless"]["drawn"] == 2
    assert result["bad"]["refused"] > 0 == result["harmless"]["refused"]  # of few questions
    assert all(row["recall_change"] < -0.05 for row in result["bad"]["changes"])
    assert "refused" in report.markdown(result)


def test_both_learners_are_measured(tmp_path: Path) -> None:
    """Each learner is tested on what was left out, under each scale that is asked for."""
    data = [a_set(tmp_path / "set.json", "small")]
    result = run_learners(data, ["raw", "recall_first"])
    assert {*result["profiles"]} == {"raw", "recall_first"}
    for profile in result["profiles"].values():
        assert [learner["learner"] for learner in profile["learners"]] == ["ppo", "fit"]
        assert (profile["questions"], profile["groups"]) == (48, 2)
    text = report.markdown(result)
    assert "gain held out" in text and "raw" in text


def test_weights_are_learned_outside_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learning from data sets needs no project, and leaves none behind."""
    monkeypatch.chdir(tmp_path)
    data = a_set(tmp_path / "set.json", "small")
    home = tmp_path / "nowhere"
    learned = run_json("--home", home, "learn", "weights", "--data", data)
    assert (learned["questions"], learned["groups"]) == (48, 2)
    assert not (home / "projects").exists()
    refused = run_memtier("--home", home, "learn", "weights", "--history", code=1)
    assert "there is no project" in refused.output
