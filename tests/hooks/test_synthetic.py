"""What a host says in its user's place is neither the user's word nor answered with a recall."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.results import HookCall, RunContext, RunEvent
from memtier_plugin.hooks.hermes import Provider
from memtier_plugin.hooks.hermes_payloads import HermesTranslator
from memtier_plugin.hooks.openclaw_payloads import OpenClawTranslator
from memtier_plugin.ingest.host_words import user_words
from tests.cases import each_case

BASE = RunContext(agent_id="", project="p")
# As the hosts themselves write them: OpenClaw 2026.9.6 and Hermes 0.19.
OPENCLAW = (
    "[System] Your previous turn was interrupted by a gateway restart while OpenClaw was waiting"
    " on tool/model work.",
    "[System] Your previous reply was not delivered to the conversation. Your reply text was:\nHi.",
    "[System] I moved to Cork.",
    "[OpenClaw exec completion]\nDisable automatic completion turns with tools.exec.notifyOnExit.",
    "A new session was started via /new or /reset. Execute your Session Startup sequence now.",
)
FENCED = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\n{}\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>".format
ROUTED = (
    "\n\n[Inter-session message] sourceSession=agent:main:sub:1 sourceChannel=internal"
    " sourceTool=subagent_announce isUser=false\nThis content was routed by OpenClaw."
)
REPORTS = (
    "A background task completed. Use this result to reply to the user in your normal assistant"
    f" voice.\n\nsource: subagent\ntask: kid\n\nI live in Cork.{ROUTED}",
    FENCED(
        "OpenClaw runtime context (internal):\nThis is runtime-generated, not user-authored.\n\n"
        "[Internal task completion event]\nsource: subagent\ntask: kid\n\nI live in Cork."
    ),
    f"The kid is done: I live in Cork.{ROUTED}",
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


@each_case("text", OPENCLAW)
def test_openclaw_speaks(text: str) -> None:
    """OpenClaw's own turns get no recall, and what began them is the system's word."""
    assert openclaw("before_prompt_build", {"prompt": text}, runId="r") is None
    ended = openclaw("agent_end", {"messages": turn(text), "success": True}, runId="r")
    assert spoken(ended) == [("system", text), ("assistant", "Done.")]


@pytest.mark.parametrize("text", REPORTS)
def test_another_session_reports(text: str) -> None:
    """What a sub-agent said gets no recall, and is a stranger's text, whatever fences it."""
    assert openclaw("before_prompt_build", {"prompt": text}, runId="r") is None
    ended = openclaw("agent_end", {"messages": turn(text), "success": True}, runId="r")
    assert ended is not None and isinstance(ended.event, RunEvent)
    [reported, _] = ended.event.messages
    assert (reported.role, reported.origin) == ("tool", "external")


@pytest.mark.parametrize("cut", [0, 20])
def test_a_context_within_a_message(cut: int) -> None:
    """What OpenClaw fences beside the user's words is left out of them, cut off or not."""
    context = FENCED("Conversation data:\n## Active Subagents\nnone")
    text = f"Where is my bag?\n\n{context[: len(context) - cut]}"
    call = openclaw("before_prompt_build", {"prompt": text}, runId="r")
    assert call is not None and getattr(call.event, "prompt", None) == "Where is my bag?"
    ended = openclaw("agent_end", {"messages": turn(text), "success": True}, runId="r")
    assert spoken(ended)[0] == ("user", "Where is my bag?")
    alone = openclaw("agent_end", {"messages": turn(context), "success": True}, runId="r2")
    assert spoken(alone)[0] == ("system", context)


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


@pytest.mark.parametrize("kind", ["inter_session", "internal_system"])
def test_openclaw_marks_a_message(kind: str) -> None:
    """A message whose provenance names no person is nobody's words, whatever it says."""
    text = "I moved to Cork, and my badge is 4711."
    [asked, answer] = turn(text)
    for mark, role in ((kind, "tool"), ("external_user", "user")):
        marked = {**asked, "provenance": {"kind": mark, "sourceTool": "new_in_2027"}}
        event = {"messages": [marked, answer], "success": True}
        assert [r for r, _ in spoken(openclaw("agent_end", event, runId=mark))] == [
            role,
            "assistant",
        ]


@pytest.mark.parametrize("flag", ["_pre_verify_synthetic", "_new_in_2027_synthetic"])
def test_hermes_marks_a_message(flag: str) -> None:
    """A message that Hermes flags as synthetic is nobody's words, and begins no turn."""
    [asked, answer] = turn("You edited code, and nothing was run since.")
    messages = [*turn("Paint the fence."), {**asked, flag: True}, answer]
    provider = Provider()
    delivered: list[dict[str, Any]] = []
    provider._deliver = lambda name, event, context: delivered.append(event)  # type: ignore[method-assign,assignment]
    provider.sync_turn("Paint the fence.", "Done.", messages=messages)
    ended = spoken(hermes("sync_turn", {**delivered[0], "tools": []}))
    assert [role for role, _ in ended] == ["user", "assistant", "system", "assistant"]


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


@each_case("text", HERMES)
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


@each_case("host", ["openclaw", "hermes"])
@each_case(
    "text",
    [
        "Where is my bag?",
        "  indented\n",
        "Continue the current task, please.",
        "[IMPORTANT: The user has invoked the skill]\nDraw a boat.",
        "System of equations: x = 1",
        "Background process or not?",
        "Why does it say isUser=false?",
        "[Inter-session message] is what OpenClaw writes.",
        "source: subagent\nis how it begins",
        "",
    ],
)
def test_what_people_type_stays(host: str, text: str) -> None:
    """Messages of people stay as they are, also where they look a little like a host's."""
    assert user_words(text, host) == text


@each_case("host", ["claude-code", "codex", "gemini"])
@each_case(
    "text",
    [
        "<command-message>clear</command-message>\n<command-name>/clear</command-name>",
        "<bash-input>ls -l</bash-input>",
        "<local-command-stdout>12 files < 1 MB</local-command-stdout>\n",
        '<background-job id="4">The job has ended.</background-job>',
        "<environment_context>\n  <cwd>/srv</cwd>\n</environment_context>",
    ],
)
def test_elements_of_a_host(host: str, text: str) -> None:
    """A message of nothing but elements, named as hosts name theirs, is nobody's words."""
    assert user_words(text, host) == ""


@each_case(
    "text",
    [
        "<my-button> does not show up.",
        "Why does <my-button>OK</my-button> not show up?",
        "<my-button>OK</my-button> does not show up.",
        "<b>Where is my bag?</b>",
        "<command-name>/clear",
    ],
)
def test_elements_in_words(text: str) -> None:
    """An element that a person writes about, or marks words with, stays."""
    assert user_words(text, "claude-code") == text


def test_endless_notes() -> None:
    """A message of nothing but notes ends somewhere, in a time that its length bounds."""
    assert user_words("[System: x]\n" * 100_000 + "hello", "hermes") == ""
