"""`memtier bench trees`: rollouts, the training of the planner, its report and its exports."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from bench.tests.test_bench import locomo
from memtier_bench.report import markdown
from memtier_bench.retrieval import BenchRun, prepare_dataset
from memtier_bench.tree_search import SearchableQuestion, grow_tree, roll_out
from memtier_bench.tree_training import (
    Recipe,
    _stack,
    credit_calls,
    first_weights,
    objective,
    objective_gradient,
    train_policy,
)
from memtier_bench.trees import ARMS, run_trees, searchable_questions
from memtier_papers.mem_t.planner import read_policy
from memtier_papers.mem_t.planning import ACTIONS
from memtier_papers.mem_t.tool_calls import FinishCall, parse_call
from memtier_plugin import MemTier
from memtier_plugin.answering.store_search import SearchCall
from memtier_plugin.core.errors import Unsupported
from tests.processes import run_memtier

ASKED = (
    (1, "What do Ada and Ben do in May?", "D1:1", "D2:1"),
    (4, "Where did the sister of Ben open a bakery?", "D1:2"),
)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> list[SearchableQuestion]:
    """Return the questions of two conversations, searched once for all tests."""
    data = locomo(tmp_path_factory.mktemp("data"), *ASKED, samples=2)
    loaded = prepare_dataset("locomo", data, "dataset")
    run = BenchRun(loaded=loaded, facts="dataset", progress=lambda *_: None)
    with run.recorded_together(None) as recorded:
        asked = [question for parts in recorded for question in searchable_questions(*parts)]
        for question in asked:  # every search that a rollout can make
            for seed in range(200):
                roll_out(question, first_weights(), random.Random(seed))
        return asked


def test_a_tree_holds_its_seed_and_its_branches(questions: list[SearchableQuestion]) -> None:
    """Each call comes after its parent and goes on from it; what was shown stays shown."""
    for seed in range(20):
        tree = grow_tree(questions[0], first_weights(), random.Random(seed))
        for call, parent in zip(tree.calls, tree.parents, strict=True):
            assert call.log_probability <= 0
            assert call.after.evidence >= call.before.evidence
            if parent is not None:
                assert tree.calls[parent].after is call.before
        assert sum(call.is_last for call in tree.calls) <= 4
        assert [n.parent for n in tree.nodes()] == tree.parents


def test_the_gradient_is_that_of_the_objective(questions: list[SearchableQuestion]) -> None:
    """The slope written down equals the one measured, also where ratios are clipped."""
    chance = random.Random(3)
    rows = credit_calls(questions[0], first_weights(), Recipe(), chance)[0]
    batch = _stack(rows, 1)
    weights = np.random.default_rng(1).normal(0, 0.5, first_weights().shape)
    slope = objective_gradient(weights, batch)
    for index in [(0, 0), (2, 3), (8, 1), (4, 6)]:
        step = np.zeros_like(weights)
        step[index] = 1e-6
        measured = (objective(weights + step, batch) - objective(weights - step, batch)) / 2e-6
        assert slope[index] == pytest.approx(measured, abs=1e-5)


@pytest.mark.parametrize("recipe", [Recipe(), Recipe("chain")])
def test_training_is_seeded_and_raises_the_reward(
    questions: list[SearchableQuestion], recipe: Recipe
) -> None:
    """The same seed gives the same weights; the rewards of rollouts rise."""
    weights, rewards = train_policy(questions, recipe, seed=1, updates=25)
    again, _ = train_policy(questions, recipe, seed=1, updates=25)
    assert np.array_equal(weights, again)
    assert sum(rewards[-5:]) > sum(rewards[:5])


def test_rewards_without_variance_are_refused(questions: list[SearchableQuestion]) -> None:
    """Where every rollout earns the same there is nothing to learn, and it says so."""
    for question in questions:
        question.gold, kept = frozenset({"nowhere"}), question.gold
        question._situations.clear()
        try:
            with pytest.raises(Unsupported, match="every advantage is 0"):
                train_policy([question], Recipe(), seed=1, updates=2)
        finally:
            question.gold = kept
            question._situations.clear()


def test_the_report_and_the_exports(tmp_path: Path) -> None:
    """Every arm is reported; the exports hold whole prompts and calls that can be read."""
    data = locomo(tmp_path, *ASKED, samples=2)
    report = run_trees(data, seeds=1, updates=3, export=tmp_path / "out")
    assert report["arms"].keys() == ARMS.keys()
    assert report["against_tree"].keys() == ARMS.keys() - {"tree"}
    assert "by trees, without A_inter" in markdown(report)
    for name, count in report["exported"].items():
        rows = [json.loads(line) for line in (tmp_path / "out" / name).read_text().splitlines()]
        assert len(rows) == count > 0
    retrieval = [
        json.loads(line) for line in (tmp_path / "out" / "retrieval.jsonl").read_text().splitlines()
    ]
    for row in retrieval:
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        call = parse_call(row["completion"][0]["content"])
        assert isinstance(call, (SearchCall, FinishCall))
        assert row["old_logprob"] <= 0


def test_one_conversation_is_refused(tmp_path: Path) -> None:
    """A policy is measured on conversations that it was not trained on: two are needed."""
    with pytest.raises(Unsupported, match="one conversation"):
        run_trees(locomo(tmp_path, *ASKED))


def test_a_planner_is_written_only_where_it_helps(tmp_path: Path) -> None:
    """`learn policy` says what was gained on held-out talks, and writes a file that can be read."""
    data = locomo(tmp_path, *ASKED, samples=2)
    home, output = tmp_path / "home", tmp_path / "planner.json"
    MemTier.open(home, "p").close()
    done = run_memtier(
        "--home", home, "--project", "p", "learn", "policy", "--data", data, "--updates", "20",
        "--output", output, "--json",
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert output.exists() == (document["low"] > 0) == bool(document["file"])
    if output.exists():
        assert len(read_policy(output)) == len(ACTIONS)
        assert str(output) in document["next"]
