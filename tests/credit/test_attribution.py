"""Who is credited for a run, and how much (MemTier, section 3.1, eq. 1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.credit.outcomes import affinity, answer_words, compute_reward, normalise_shares
from tests.cases import each_case

WORDS = st.lists(st.sampled_from("abcdefg"), max_size=6)


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


def test_answer_side() -> None:
    """The agent's last text and its tools' arguments count; what it read does not."""
    messages = [
        Message(role="user", content="question"),
        Message(role="assistant", content="draft"),
        Message(
            role="assistant",
            content=" ",
            tool_calls=(ToolCall(name="sh", arguments='{"x": "Run"}'),),
        ),
        Message(role="tool", content="result", tool=ToolCall(name="sh", ok=True)),
        Message(role="assistant", content="The final ANSWER"),
        Message(role="assistant", content="\n"),
        Message(role="system", content="rules"),
    ]
    assert answer_words(messages) == {"the", "final", "answer", "x", "run"}
    assert answer_words([]) == set()


@given(WORDS, WORDS)
def test_affinity(memory: list[str], answer: list[str]) -> None:
    """Shares of words lie in [0, 1]; Jaccard is symmetric and never above the overlap."""
    jaccard, overlap = affinity(memory, answer), affinity(memory, answer, "overlap")
    assert 0 <= jaccard <= overlap <= 1
    assert jaccard == affinity(answer, memory)
    assert (jaccard > 0) == (overlap > 0) == bool(set(memory) & set(answer))
    assert not memory or affinity(memory, memory) == 1


@given(st.lists(st.floats(0, 1), max_size=20))
def test_shares(affinities: list[float]) -> None:
    """Shares keep the proportions and sum to 1, or are all 0 where nothing was used."""
    shares = normalise_shares(affinities)
    assert len(shares) == len(affinities)
    assert all(0 <= share <= 1 for share in shares)
    assert sum(shares) == (pytest.approx(1) if sum(affinities) else 0)
