"""Who earns what of a run's reward, by the published rule (MemTier, section 3.3, eq. 1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.memtier.run_credit import affinity, answer_words, normalise_shares
from memtier_plugin import MemTier
from memtier_plugin.core.records import Message, ToolCall
from tests.builders import say
from tests.credit.test_credit import recall, run_of

WORDS = st.lists(st.sampled_from("abcdefg"), max_size=6)


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


def test_no_day_limits_the_credit_of_the_paper(home: Path) -> None:
    """Equation 1 as published moves a weight with every run, however many a day has."""
    with MemTier.open(home, settings={"retrieval.profile": "paper"}) as memory:
        say(memory, "the fox sleeps in the red barn")
        made = recall(memory)
        for number in range(6):
            memory.end_run(
                run_of("red barn", "done", exit_code=0),
                session_id="now",
                run_id=f"run {number}",
                recall_ids=[made],
            )
        assert next(memory.entries()).cognitive_weight == pytest.approx(0.6)
