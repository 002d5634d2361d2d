"""What a host says in its user's place is neither the user's word nor answered with a recall."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.host import HookCall, RunContext, RunEvent
from memtier_plugin.hooks.hermes_payloads import HermesTranslator
from memtier_plugin.hooks.openclaw_payloads import OpenClawTranslator
from memtier_plugin.hooks.synthetic import user_words

BASE = RunContext(agent_id="", project="p")
# As the hosts themselves write them: OpenClaw 2026.9.6 and Hermes 0.19.
OPENCLAW = (
    "An async command completion event was triggered, but no command output was found.",
    "A scheduled reminder has been triggered. The reminder content is:\n\nWater the plants.",
    "Your previous turn was interrupted by a gateway restart while OpenClaw was waiting on tool"
    "/model work.",
    "A background task completed. Use this result to reply to the user in your normal assistant"
    " voice.\n\nsource: subagent",
)
HERMES = (
    "[Continuing toward your standing goal]\nGoal: tidy the shed\n\nContinue working toward it.",
    "[IMPORTANT: Background process p1 exited with code 0.\nCommand: make\nOutput:\nI am Eve.]",
    "[Background process p1 finished with exit code 0~ Here's the final output:\nI live in Cork.]",
    "[ASYNC DELEGATION COMPLETE — d1]\nThe child reports.",
    "[System: Your previous response was truncated by the output length limit. Continue.]",
    "[System note: The previous turn was interrupted by a restart; the gateway is back online.]",
)


def openclaw(name: str, event: dict[str, Any], **context: Any) -> HookCall | None:
    """Translate one of OpenClaw's hooks."""
    fields = {"agentId": "main", "sessionKey": "agent:main:main", "trigger": "user", **context}
    return translator().translate(name, event, fields, BASE)


def translator() -> OpenClawTranslator:
    """Return OpenClaw's adapter, as one resident has it."""
    return OpenClawTranslator(Path(os.environ["MEMTIER_HOME"]))


def hermes(name: str, event: dict[str, Any]) -> HookCall | None:
    """Translate one of Hermes' calls."""
    fields = {"session_id": "s1", "run_id": "r1", "platform": "cli"}
    return HermesTranslator(Path(os.environ["MEMTIER_HOME"])).translate(name, event, fields, BASE)


def spoken(call: HookCall | None) -> list[tuple[str, str]]:
    """Return role and text of what a run records."""
    assert call is not None and isinstance(call.event, RunEvent)
    return [(message.role, message.content) for message in call.event.messages]


def turn(user: str) -> list[dict[str, Any]]:
    """Return the messages of a turn."""
    return [
        {"role": "user", "content": user},
        {"role": "assistant", "content": "Done."},
    ]


@pytest.mark.parametrize("text", OPENCLAW)
def test_openclaw_speaks(text: str) -> None:
    """OpenClaw's own turns get no recall, and what began them is the system's word."""
    assert openclaw("before_prompt_build", {"prompt": text}, runId="r") is None
    ended = openclaw("agent_end", {"messages": turn(text), "success": True}, runId="r")
    assert spoken(ended) == [("system", text), ("assistant", "Done.")]


@pytest.mark.parametrize("tool", ["heartbeat", "session_goal_resume", "restart-sentinel", "exec"])
def test_openclaw_says_that_nobody_asked(tool: str) -> None:
    """A run that OpenClaw began is not the user's at its end either, where that is not said."""
    adapter = translator()
    asked = {"agentId": "main", "sessionKey": "k", "trigger": "user", "runId": "r"}
    origin = {"inputProvenance": {"kind": "internal_system", "sourceTool": tool}}
    prompt = {"prompt": "My name is Eve."}
    assert adapter.translate("before_prompt_build", prompt, asked | origin, BASE) is None
    ended = {"messages": turn("My name is Eve."), "success": True}
    roles = [role for role, _ in spoken(adapter.translate("agent_end", ended, asked, BASE))]
    assert roles == ["tool", "assistant"]
    other = adapter.translate("agent_end", ended, asked | {"runId": "another"}, BASE)
    assert spoken(other)[0][0] == "user"


@pytest.mark.parametrize("trigger", ["cron", "heartbeat", "memory"])
def test_turns_that_openclaw_triggers(trigger: str) -> None:
    """Cron, heartbeats and the flush before a compaction are neither recorded nor answered."""
    assert openclaw("before_prompt_build", {"prompt": "Store it."}, trigger=trigger) is None
    assert openclaw("agent_end", {"messages": turn("Store it.")}, trigger=trigger) is None


@pytest.mark.parametrize(
    "text",
    [
        "Continue the current task with the updated tools and permissions. Inspect first.",
        "[System note: Tool-loop warning after 5 repeated calls. Change your approach.]",
    ],
)
def test_what_goes_on_begins_no_turn(text: str) -> None:
    """What OpenClaw says amid a turn is left out, and the turn still begins with its user."""
    messages = [*turn("Paint the fence."), *turn(text)]
    ended = openclaw("agent_end", {"messages": messages, "success": True}, runId="r")
    expected = [("user", "Paint the fence."), ("assistant", "Done."), ("assistant", "Done.")]
    assert spoken(ended) == expected


@pytest.mark.parametrize("text", HERMES)
def test_hermes_speaks(text: str) -> None:
    """Hermes' own turns get no recall, and what began them is the system's word."""
    assert hermes("prefetch", {"query": text}) is None
    for messages in (turn(text), []):
        event = {"user": text, "assistant": "Done.", "messages": messages}
        assert spoken(hermes("sync_turn", event)) == [("system", text), ("assistant", "Done.")]


def test_hermes_retries_amid_a_turn() -> None:
    """A retry stands in its turn as the system's, and the turn begins with what the user said."""
    messages = [*turn("Paint the fence."), *turn(HERMES[4])]
    event = {"user": "gone by a compaction", "messages": messages}
    expected = [("user", "Paint the fence."), ("assistant", "Done."), ("system", HERMES[4])]
    assert spoken(hermes("sync_turn", event)) == [*expected, ("assistant", "Done.")]


def test_a_note_before_what_the_user_typed() -> None:
    """A note that Hermes puts before a message is not recorded, and not asked for."""
    text = f"{HERMES[5]}\n\nWhere is my bag?"
    call = hermes("prefetch", {"query": text})
    assert call is not None and getattr(call.event, "prompt", None) == "Where is my bag?"
    event = {"user": text, "messages": turn(text)}
    assert spoken(hermes("sync_turn", event))[0] == ("user", "Where is my bag?")


@pytest.mark.parametrize("host", ["openclaw", "hermes"])
@pytest.mark.parametrize(
    "text",
    [
        "Where is my bag?",
        "  indented\n",
        "Continue the current task, please.",
        "[IMPORTANT: The user has invoked the skill]\nDraw a boat.",
        "System of equations: x = 1",
        "Background process or not?",
        "",
    ],
)
def test_what_people_type_stays(host: str, text: str) -> None:
    """Messages of people stay as they are, also where they look a little like a host's."""
    assert user_words(text, host) == text


def test_endless_notes() -> None:
    """A message of nothing but notes ends somewhere, in a time that its length bounds."""
    assert user_words("[System: x]\n" * 100_000 + "hello", "hermes") == ""
