"""Which recalls a run is credited for, and what it says of those that earn nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memtier_plugin import MemTier
from tests.builders import say

QUESTION = "Where does the fox sleep?"


def run_of(answer: str, content: str, **outcome: Any) -> list[dict[str, Any]]:
    """Return the messages of a run in OpenAI's form, with one tool call."""
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": answer}}
    return [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": content, **outcome},
        {"role": "assistant", "content": answer},
    ]


def recall(memory: MemTier, **options: Any) -> str:
    """Recall what the question needs, and return the recall's id."""
    return memory.recall(QUESTION, purpose="inject", session_id="now", **options).id


@pytest.mark.parametrize("recalled_in", [None, "r1", "r2"])
@pytest.mark.parametrize("ended_as", [None, "r2"])
def test_named_recalls_count_whatever_their_run(
    home: Path, recalled_in: str | None, ended_as: str | None
) -> None:
    """Recalls that a run names are credited, whatever run they were made for, or none."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps in the red barn")
        made = recall(memory, run_id=recalled_in)
        result = memory.end_run(
            run_of("red barn", "done", exit_code=0),
            session_id="other",
            run_id=ended_as,
            recall_ids=[made],
        )
        assert set(result.credits) == {entry.id}
        assert (result.reason, result.uncredited) == ("", {})
        explained = memory.explain(made)["credits"]
        assert [credit["item"] for credit in explained] == [entry.id]


def test_named_recall_that_is_in_memory_alone_counts(home: Path) -> None:
    """A recall that could not be journalled is credited in its process, by its id too."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps in the red barn")
        blocked = memory.folder / "journal" / "main" / f"{entry.timestamp:%Y-%m-%d}.jsonl"
        blocked.mkdir(parents=True)
        made = recall(memory, run_id="r1")
        blocked.rmdir()
        assert not memory.events(kinds=["recall"])
        result = memory.end_run(
            run_of("red barn", "done", exit_code=0),
            session_id="now",
            run_id="r2",
            recall_ids=[made],
        )
        assert set(result.credits) == {entry.id}


def test_what_earns_nothing_says_why(home: Path) -> None:
    """A run without credit gives the reason, for the run and for each recall that it named."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps in the red barn")

        def end(messages: list[dict[str, Any]], **options: Any) -> Any:
            result = memory.end_run(messages, session_id="now", **options)
            assert not result.credits
            assert result.reason
            return result

        good = run_of("red barn", "done", exit_code=0)
        assert "no recall" in end(good).reason
        unknown = end(good, recall_ids=["nonsense"])
        assert "no such recall" in unknown.uncredited["nonsense"]
        searched = memory.recall(QUESTION, session_id="now").id
        assert "inject" in end(good, recall_ids=[searched]).uncredited[searched]
        made = recall(memory)
        plain = end(run_of("red barn", "something"), recall_ids=[made])
        assert "exit_code" in plain.uncredited[entry.id]
        unused = end(run_of("hello", "done", exit_code=0), recall_ids=[made])
        assert "no word" in unused.uncredited[entry.id]
        failed = end(good, recall_ids=[made], error="timed out")
        assert "error" in failed.uncredited[entry.id]
        silent = memory.recall("Thanks!", purpose="inject", session_id="now").id
        assert "injected nothing" in end(good, recall_ids=[silent]).reason
        memory.end_run(good, session_id="now", run_id="r9", recall_ids=[made])
        assert "already" in end(good, run_id="r9", recall_ids=[made]).reason


@pytest.mark.parametrize(
    ("content", "reward"),
    [
        ('{"error": "Traceback (most recent call last): ..."}', -0.5),
        ("Traceback (most recent call last):\n  File x\nKeyError: 1", -0.5),
        ("exit code: 0", 1.0),
    ],
)
def test_plain_tool_messages_are_judged_by_their_content(
    home: Path, content: str, reward: float
) -> None:
    """What a tool returned moves weights, scaled by the confidence that is stated."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps in the red barn")
        made = recall(memory)
        result = memory.end_run(run_of("red barn", content), session_id="now", recall_ids=[made])
        assert (result.reward, result.confidence) == (reward, 0.9)
        assert result.credits == {entry.id: pytest.approx(0.1 * reward * 0.9)}
        event = next(e for e in memory.events(kinds=["credit"]) if e.data["item"] == entry.id)
        assert event.data["confidence"] == 0.9


def test_a_day_limits_what_an_item_gains(home: Path) -> None:
    """An item gains at most so much in a day, and the run says so."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps in the red barn")
        made = recall(memory)
        for number in range(6):
            result = memory.end_run(
                run_of("red barn", "done", exit_code=0),
                session_id="now",
                run_id=f"run {number}",
                recall_ids=[made],
            )
        assert next(memory.entries()).cognitive_weight == pytest.approx(0.3)
        assert "limit" in result.uncredited[entry.id]
