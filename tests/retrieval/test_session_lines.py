"""A follow-up gets the last lines of its own session where the conversation lost them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.records import Message
from memtier_plugin.core.results import PromptEvent, RunContext, Shown
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.session import MAX_LINES
from tests.builders import say_each

Day = Callable[..., datetime]
AGENT = "openclaw.main"


@pytest.fixture
def memory(home: Path, day: Day) -> MemTier:
    """Return a memory with an old session, and one in which a slogan was made."""
    opened = MemTier.open(home, "p", AGENT, clock=lambda: day(9))
    say_each(opened, "My bag is in the blue locker.", session_id="old", observed_at=day(0))
    turns = [Message(role="user", content="A slogan for the bakery."),
             Message(role="assistant", content="Risen with love.")]  # fmt: skip
    opened.end_run(turns, session_id="now", run_id="r1", observed_at=day(8))
    return opened


def lines(memory: MemTier, prompt: str, **options: object) -> list[str]:
    """Return the lines of the block for a prompt of the session."""
    request = {"session_id": "now", "purpose": "inject", **options}
    return [hit.text for hit in memory.recall(prompt, **request).injected]  # type: ignore[arg-type]


def test_out_of_sight(memory: MemTier) -> None:
    """Out of sight, the last exchange leads the block, in the order in which it was said."""
    assert lines(memory, "make it shorter") == ["A slogan for the bakery.", "Risen with love."]
    assert lines(memory, "make it shorter", session_id="other") == []


def test_in_sight(memory: MemTier, day: Day) -> None:
    """What the conversation shows is not repeated; after a compaction it is out of sight."""
    assert lines(memory, "make it shorter", shown=Shown(since=day(7))) == []
    assert lines(memory, "make it shorter", shown=Shown(since=day(8, hours=1)))


def test_short_prompts_that_find_nothing(memory: MemTier) -> None:
    """A short prompt that nothing answers may mean this session; a task or thanks does not."""
    assert lines(memory, "the rye variant") == ["A slogan for the bakery.", "Risen with love."]
    assert lines(memory, "thanks!") == lines(memory, "Write a haiku about rain") == []


def test_other_sessions_stand_by_themselves(memory: MemTier) -> None:
    """A question that the store answers gets its answer, not the session's last lines."""
    assert lines(memory, "Where is my bag?")[0] == "My bag is in the blue locker."


def test_few_and_the_last(memory: MemTier, day: Day) -> None:
    """At most two exchanges are shown, the last ones, and never more than k lines."""
    texts = [f"Line {number} of the poem." for number in range(9)]
    say_each(memory, *texts, session_id="long", observed_at=day(8))
    assert lines(memory, "again", session_id="long") == texts[-MAX_LINES:]
    assert lines(memory, "again", session_id="long", k=1) == texts[-1:]


def test_senders_and_agents_are_apart(home: Path, memory: MemTier) -> None:
    """Lines of the session that somebody else said are not shown to this sender or agent."""
    assert lines(memory, "make it shorter", sender="bob") == []
    with MemTier.open(home, "p", "other") as other:
        assert lines(other, "make it shorter") == []


def test_the_host_states_the_kind(memory: MemTier) -> None:
    """A stated kind decides, through the API and the hook; one that does not exist is refused."""
    question = "Where is my bag?"
    assert lines(memory, question, kind="chat") == []
    with pytest.raises(MessageError, match="kind"):
        lines(memory, question, kind="riddle")
    memory.close()
    hook = plugins.manager().hook.before_prompt_build
    context = RunContext(agent_id=AGENT, session_id="s", run_id="q", project="p")
    assert hook(event=PromptEvent(prompt=question), context=context) is not None
    assert hook(event=PromptEvent(prompt=question, kind="command"), context=context) is None


def test_why_nothing_is_shown(memory: MemTier) -> None:
    """A silent recall says why, and so does `explain` of what it left out."""
    recall = memory.recall("thanks for the bag!", session_id="x", run_id="r", purpose="inject")
    assert recall.label == "silent" and recall.silent == "the prompt is small talk"
    [bag, *_] = memory.recall("thanks for the bag!").hits
    assert "small talk" in memory.explain(recall.id, bag.id)["why"]["said"]


def test_nothing_is_searched_before_small_talk(memory: MemTier) -> None:
    """Small talk and commands read nothing, and are journalled as silent turns."""
    for prompt in ("thanks for the bag!", "/reset"):
        recall = memory.recall(prompt, session_id="x", run_id="r", purpose="inject")
        assert (recall.label, recall.postings, recall.vectors) == ("silent", 0, 0)
        assert not recall.hits and recall.silent
    assert memory.status()["agents"][AGENT]["injected"]["blocks"] == {"silent": 2}
    assert memory.recall("thanks for the bag!", purpose="search").hits
    assert memory.recall("", session_id="x", purpose="inject").label == "empty"
