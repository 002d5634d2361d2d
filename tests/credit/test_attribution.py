"""How much a run earns by the outcomes of its calls (MemTier, section 3.1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.records import ToolCall
from memtier_plugin.credit.outcomes import compute_reward
from tests.cases import each_case


def calls(*outcomes: tuple[str, bool | None]) -> list[ToolCall]:
    """Return tool calls by name and outcome."""
    return [ToolCall(name=name, ok=ok) for name, ok in outcomes]


@each_case(
    ("outcomes", "expected"),
    [
        ([], 0.0),
        ([("sh", True)], 1.0),
        ([("sh", False)], -0.5),
        ([("sh", None)], 0.0),
        ([("sh", True), ("sh", False)], -0.5),
        ([("sh", False), ("edit", True)], 0.0),
        ([("sh", False), ("edit", True), ("sh", True)], 1.0),
        ([("sh", True), ("edit", False), ("sh", True)], 0.0),
        ([("sh", True), ("edit", None)], 1.0),
        ([("sh", False), ("edit", None)], -0.5),
    ],
)
def test_reward(outcomes: list[tuple[str, bool | None]], expected: float) -> None:
    """The last call of every tool counts; a run that ends in a failure is blamed; else nothing."""
    assert compute_reward(calls(*outcomes)) == expected


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([True, False, None]))))
def test_reward_is_one_of_three(outcomes: list[tuple[str, bool | None]]) -> None:
    """Every run earns -0.5, 0 or +1, and calls of unknown outcome change nothing."""
    completed = [(name, ok) for name, ok in outcomes if ok is not None]
    assert compute_reward(calls(*outcomes)) == compute_reward(calls(*completed)) in (-0.5, 0.0, 1.0)
