"""Credit in trees of searches: the paper's numbers, and what equal or invalid calls get."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.mem_t.tree_credit import (
    TreeNode,
    dual_advantages,
    expected_answers,
    hindsight_score,
    leaves,
    reward,
    select_operations,
    tree_rewards,
)
from tests.cases import each_case

FILE = Path(__file__).parent / "golden" / "mem_t_trees.json"
GOLDEN: dict[str, dict[str, Any]] = {g["id"]: g for g in json.loads(FILE.read_text("utf-8"))}


def golden(name: str) -> tuple[Any, Any]:
    """Return the inputs and what is expected."""
    case = GOLDEN[f"memt_{name}"]
    return case["inputs"], case["expected"]


def read_tree(document: dict[str, dict[str, Any]]) -> tuple[list[str], list[TreeNode]]:
    """Return the names and nodes of a tree, each after its parent."""
    names = [*document]
    parents = {child: names.index(name) for name in names for child in document[name].get("ch", ())}
    nodes = [
        TreeNode(parents.get(name), document[name]["ev"], document[name].get("f1", 0.0))
        for name in names
    ]
    return names, nodes


def test_dual_advantages_as_published() -> None:
    """Rewards go up the tree by children, and are compared in the tree and with all trees."""
    inputs, expected = golden("dual_advantage")
    trees = [read_tree(tree) for tree in inputs["trees"]]
    names = [name for tree, _ in trees for name in tree]
    rewards = [tree_rewards(nodes, inputs["alpha"]) for _, nodes in trees]

    def by_name(values: list[list[float]]) -> dict[str, float]:
        return dict(zip(names, (value for tree in values for value in tree), strict=True))

    got = {
        "perform": by_name([expected_answers(nodes) for _, nodes in trees]),
        "R": by_name(rewards),
        "intra_ddof0": by_name(dual_advantages(rewards, inter=False)),
        "inter_ddof0": by_name(dual_advantages(rewards, intra=False)),
        "total_ddof0": by_name(dual_advantages(rewards)),
    }
    assert got.keys() == expected.keys()
    for part, values in expected.items():
        assert got[part] == pytest.approx(values, abs=1e-6)
    assert [leaves(nodes) for _, nodes in trees] == [[2, 3, 4], [1]]


@each_case("name", [name for name in GOLDEN if name.startswith("memt_hindsight")])
def test_hindsight_as_published(name: str) -> None:
    """An operation gets the leaves' advantages by its sources, a tenth by where it was shown."""
    inputs, expected = golden(name.removeprefix("memt_"))
    score = hindsight_score(
        inputs["leaf_A_total"], aligned=inputs["evidence_gate"], traced=inputs["traced_leaves"]
    )
    assert score == pytest.approx(expected, abs=1e-6)


def test_equal_rewards_teach_nothing() -> None:
    """Without variance every advantage is 0, and no number is lost."""
    inputs, expected = golden("advantage_zero_variance")
    (only,) = dual_advantages([[*inputs["R"].values()]])
    assert only == [*expected.values()]


def test_a_wrong_call_earns_nothing() -> None:
    """The mask of the format multiplies the whole reward; the parent counts the child as 0."""
    inputs, expected = golden("reward_format_mask")
    valid = bool(inputs["fmt"])
    got = reward(inputs["evid"], inputs["perform"], valid=valid, alpha=inputs["alpha"])
    assert got == expected
    tree = [TreeNode(None, 1.0), TreeNode(0, 1.0, 1.0), TreeNode(0, 1.0, 1.0, valid=False)]
    assert expected_answers(tree)[0] == 0.5


def test_the_better_half_of_each_kind_is_kept() -> None:
    """By rank in each kind, as published; ours also asks that the operation helped."""
    inputs, expected = golden("top50_per_category")
    scored = [(kind, score, f"{kind} {score}") for kind, score in inputs["ops"]]
    published = select_operations(scored, positive=False)
    assert {kind: [s for s, _ in rows] for kind, rows in published.items()} == expected
    assert select_operations(scored)["delete"] == []


@given(st.lists(st.lists(st.floats(-10, 10), min_size=1, max_size=6), min_size=1, max_size=4))
def test_advantages_are_finite_and_balanced(rewards: list[list[float]]) -> None:
    """In a tree they add up to 0, and so they do over all trees; nothing is infinite."""
    for parts in ({"inter": False}, {"intra": False}):
        trees = dual_advantages(rewards, **parts)
        groups = trees if "inter" in parts else [[value for tree in trees for value in tree]]
        for group in groups:
            assert all(map(math.isfinite, group))
            assert math.fsum(group) == pytest.approx(0, abs=1e-6)
