"""What all frameworks share, with plain messages: the block, the run, and no harm."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core import plugins
from memtier_plugin.frameworks.conversations import Conversations, OpenRun, Turn, prepend, user_text
from memtier_plugin.hooks import host_hooks
from memtier_plugin.trust.escaping import FENCE
from tests.builders import assistant_message, user_message, write_config
from tests.processes import PATIENCE

pytestmark = pytest.mark.usefixtures("drained")
BAG = "My bag is in the blue locker."
ASKED = "Where is my bag?"


@pytest.fixture
def talks(home: Path) -> Conversations:
    """Give the conversations of an agent that was once told where a bag is."""
    conversations = Conversations("test", project="p", home=str(home))
    conversations.end(
        [user_message(BAG), assistant_message("Noted.")], Turn(session="old", run="r0")
    )
    return conversations


def put(message: dict[str, Any], block: str) -> dict[str, Any]:
    """Return a message with a block, as an adapter does."""
    return {**message, "content": prepend(message["content"], block, lambda text: {"text": text})}


def stored(home: Path, agent: str = "test.main") -> list[tuple[str, str]]:
    """Return session and words of what was recorded."""
    host_hooks.workers.drain(PATIENCE)
    with MemTier.open(home, "p", agent) as memory:
        return [(e.session_id, e.content) for e in memory.entries(agent=agent)]


def test_the_block_stands_before_the_newest_words(talks: Conversations) -> None:
    """It is in the copy alone, beside the newest message, and the same at each call of a run."""
    turn = Turn(session="s", run="r1")
    messages = [user_message("Hello!"), assistant_message("Hi."), user_message(ASKED)]
    prompt = talks.with_block(messages, turn, put)
    assert prompt[:2] == messages[:2]
    assert "blue locker" in prompt[2]["content"] and prompt[2]["content"].endswith(ASKED)
    assert messages[2] == user_message(ASKED)
    longer = [
        *messages,
        assistant_message("I look."),
        {"role": "tool", "content": "x", "tool_call_id": "1"},
    ]
    assert talks.with_block(longer, turn, put)[2] == prompt[2]
    assert talks.with_block(prompt, Turn(session="s", run="r2"), put) == prompt  # it has one


def test_parts_stay_parts(talks: Conversations) -> None:
    """Pictures keep their place behind the block."""
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    [prompt] = talks.with_block(
        [user_message([{"type": "text", "text": ASKED}, picture])], Turn(session="s", run="r"), put
    )
    assert FENCE in prompt["content"][0]["text"]
    assert prompt["content"][2] == picture


def test_what_the_prompt_shows_is_not_recalled(talks: Conversations) -> None:
    """A session's own lines are recalled only where the framework shows them no more."""
    first = Turn(session="s", run="r1")
    earlier = [user_message("The spare key is under the red pot."), assistant_message("Noted.")]
    talks.with_block(earlier[:1], first, put)
    talks.end(earlier, first)
    question = user_message("Where is the spare key?")
    [*_, asked] = talks.with_block([*earlier, question], Turn(session="s", run="r2"), put)
    assert "red pot" not in asked["content"]
    [cut] = talks.with_block([question], Turn(session="s", run="r3"), put)
    assert "red pot" in cut["content"]


def test_an_open_run(home: Path) -> None:
    """Messages that come one by one are runs: each begins with the user's words, none is lost."""
    run = OpenRun(Conversations("test", project="p", home=str(home)), "s")
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "ls"}]}
    result = {"role": "tool", "tool_call_id": "1", "content": "a.txt"}
    runs = []
    for message in (
        user_message("List it."),
        call,
        result,
        assistant_message("a.txt"),
        user_message("Thanks."),
        assistant_message("Sure"),
    ):
        asyncio.run(run.add([message]))
        runs.append(run.turn.run)
    assert len(set(runs)) == 2 and runs[3] != runs[4]
    texts = [text for _, text in stored(home)]
    assert texts == ["List it.", "[tool call: ls ]", "a.txt", "a.txt", "Thanks.", "Sure"]


def test_people_are_kept_apart(home: Path) -> None:
    """What one sender said is not in the prompt of another."""
    talks = Conversations("test", project="p", home=str(home))
    talks.end(
        [user_message(BAG), assistant_message("Noted.")], Turn(session="a", run="1", sender="ann")
    )
    [bens] = talks.with_block([user_message(ASKED)], Turn(session="b", run="2", sender="ben"), put)
    [anns] = talks.with_block([user_message(ASKED)], Turn(session="c", run="3", sender="ann"), put)
    assert bens == user_message(ASKED)
    assert "blue locker" in anns["content"]


def test_no_error_reaches_the_framework(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broken configuration and messages that are none are logged, and the run goes on."""
    write_config(home, {"nonsense": 1})
    talks, turn = Conversations("test", project="p", home=str(home)), Turn(session="s", run="r")
    assert talks.with_block([user_message(ASKED)], turn, put) == [user_message(ASKED)]
    talks.end([user_message(BAG)], turn)
    talks.end([object()], turn)
    assert {error.hook for error in plugins.load_errors()} >= {"before_prompt_build", "agent_end"}


def test_what_is_no_message_costs_that_alone(talks: Conversations, home: Path) -> None:
    """A message of a kind that a newer framework brings is left out, and the rest is recorded."""
    strange = {"type": "hologram", "data": "x"}
    talks.end(
        [user_message("Project it."), strange, assistant_message("Done.")],
        Turn(session="s", run="r"),
    )
    assert stored(home)[-2:] == [("s", "Project it."), ("s", "Done.")]


def test_what_is_the_users() -> None:
    """Results of tools and files are not the user's words, whoever hands them over."""
    assert user_text(user_message("x")) == "x"
    assert user_text(object()) == ""
    assert user_text({"role": "user", "content": [{"type": "tool_result", "content": "x"}]}) == ""
    assert user_text(user_message([{"type": "document", "text": "x"}])) == ""
