"""Weights in a benchmark: right answers credit what they rest on, in each variant apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.tests.test_bench_answers import talk
from memtier_bench import retrieval
from memtier_bench.ablation import run_ablation
from memtier_bench.answer_credit import act_on_block, credit_right_answer
from memtier_bench.retrieval import run_retrieval
from memtier_plugin.core.results import Recall
from memtier_plugin.memory import MemTier
from tests.builders import say_each

PAPER = {"retrieval.profile": "paper", "retrieval.floor": "off"}


def test_a_right_answer_credits_what_shares_its_words(home: Path) -> None:
    """Eq. 1 with a reward of 1: the line that the answer rests on rises, the other does not."""
    with MemTier.open(home, "p", settings=PAPER) as memory:
        teal, cello = say_each(memory, "We painted the hallway teal.", "My cello is old.")
        recall = memory.recall("hallway cello paint", session_id="q", purpose="inject")
        assert {hit.id for hit in recall.injected} == {teal.id, cello.id}
        assert credit_right_answer(memory, recall, "r", "teal")
        weights = {hit.id: hit.weight for hit in memory.recall("hallway cello paint").hits}
        assert weights[teal.id] > 0 == weights[cello.id]
        assert len([*memory.entries()]) == 2, "the question and its answer are not recorded"
        assert not credit_right_answer(memory, recall, "other", "unrelated words")


def test_a_run_that_learns_says_how_many_answers_counted(tmp_path: Path) -> None:
    """Without a reader a question counts as right if a gold turn is injected."""
    path = talk(tmp_path)
    assert "credited" not in run_retrieval("locomo", path, "paper")
    assert run_retrieval("locomo", path, "paper", learn=True)["credited"] == 3


def repeated(tmp_path: Path) -> Path:
    """Write a conversation that is asked about one subject again and again."""
    turns = [
        {"speaker": "Ada", "dia_id": "D1:1", "text": "The boat for the lake is blue and new."},
        {"speaker": "Ben", "dia_id": "D1:2", "text": "The boat for the lake is big and fine."},
    ]
    questions = [
        {"question": f"Which colour has the boat for the lake, take {n}?", "answer": "blue",
         "evidence": ["D1:1"], "category": 4}
        for n in range(6)
    ]  # fmt: skip
    session = {"session_1_date_time": "1:56 pm on 8 May, 2024", "session_1": turns}
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([{"sample_id": "s", "conversation": session, "qa": questions}]))
    return path


def test_each_variant_of_an_ablation_learns_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights move within a variant, from one question to the next, and start at 0 in each."""
    weights: dict[Path, list[float]] = {}

    def watched(memory: MemTier, recall: Recall, run: str, answer: str) -> bool:
        seen = weights.setdefault(memory.home, [])
        seen.append(max(hit.weight for hit in recall.hits))
        return credit_right_answer(memory, recall, run, answer)

    monkeypatch.setattr(retrieval, "credit_right_answer", watched)
    report = run_ablation("locomo", repeated(tmp_path), "paper", only=("signals",), learn=True)
    [profile] = report["profiles"]
    assert "without cw" in [row["name"] for row in profile["rows"]]
    assert len(weights) == 1 + len(profile["rows"])
    for seen in weights.values():
        assert seen[0] == 0 and len(seen) == 6
        assert seen == sorted(seen) and seen[-1] > 0
    assert report["credited"] == 6 * len(weights)
    assert "credited" not in run_ablation("locomo", repeated(tmp_path), "paper", only=("k",))


@pytest.mark.parametrize(("ok", "credits"), [(True, True), (False, True), (True, False)])
def test_a_call_credits_or_blames_the_line_it_takes(home: Path, ok: bool, credits: bool) -> None:
    """The line whose words a call takes rises or falls with it; where that is ignored, neither."""
    with MemTier.open(home, "p", settings={"retrieval.floor": "off"}) as memory:
        teal, cello = say_each(memory, "We painted the hallway teal.", "My cello is old.")
        recall = memory.recall("hallway cello", session_id="q", purpose="inject")
        act_on_block(memory, recall, "q", teal.text, None, ok=ok, credits=credits)
        with memory.store.session() as reader:
            weights = {item: s.weight for item, s in reader.states([teal.id, cello.id]).items()}
    assert weights[cello.id] == 0
    assert (weights[teal.id] > 0, weights[teal.id] < 0) == (ok and credits, credits and not ok)


def test_an_ablation_of_outcomes_differs_in_their_credit_alone(tmp_path: Path) -> None:
    """Every question is a run in both arms, so only what outcomes teach tells them apart."""
    report = run_ablation("locomo", repeated(tmp_path), "recall_first", only=("outcomes",))
    [profile] = report["profiles"]
    assert [row["name"] for row in profile["rows"]] == ["outcomes credited"]
    assert profile["rows"][0]["difference"]["injected_recall"]["questions"] == 6
