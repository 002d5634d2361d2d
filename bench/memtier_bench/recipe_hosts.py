"""The runs of `memtier bench recipes`, told as OpenClaw, Claude Code and Hermes tell theirs.

Each host's payloads have the shapes of those captured from it and go through its own translator, so
a run loses here what it loses there: Claude Code, for one, reports nothing that the agent says
before a call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.results import HookCall, PromptEvent, Recall, RunContext, RunEvent, Shown
from memtier_plugin.hooks.translators import open_translator
from memtier_plugin.memory import MemTier

HOSTS: Final = ("openclaw", "claude-code", "hermes")
AGENTS: Final = ("openclaw.main", "claude-code.main", "hermes.default")
COMMAND: Final = "exec"  # the tool that runs a command line; each host has its own name for it

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call: what the agent says before it, and what the tool prints; 0 is success."""

    tool: str
    arguments: Mapping[str, Any]
    output: str
    exit: int = 0
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A finished run: the user's prompt, the calls in order and the answer."""

    name: str
    prompt: str
    calls: Sequence[Call] = ()
    answer: str = ""


@dataclass(slots=True)
class Clock:
    """The time in a world."""

    now: datetime = field(default_factory=lambda: datetime(2026, 1, 5, 8, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now


class HostAgent:
    """The memory of a host's agent, called with what the host's hooks get."""

    def __init__(
        self, host: str, home: Path, project: str, settings: Mapping[str, Any], clock: Clock
    ) -> None:
        self._host, self._clock = host, clock
        self._translator = open_translator(host, home)
        self._base = RunContext(agent_id="", home=str(home), project=project)
        agent = self._translator.context({}, self._base).agent_id
        self.memory = MemTier.open(home, project, agent, settings, clock=clock)

    def recall(self, turn: Turn) -> Recall:
        """Return what the prompt's hook injects."""
        call = self._translate(_PROMPTS[self._host](turn), turn)
        event, context = call.event, call.context
        assert isinstance(event, PromptEvent)
        since = event.visible_since
        return self.memory.recall(
            event.prompt,
            session_id=context.session_id,
            run_id=context.run_id,
            purpose="inject",
            sender=context.sender,
            shown=Shown(since=since, injected=event.keeps_injected) if since else None,
        )

    def finish(self, turn: Turn, *, credits: bool) -> None:
        """Deliver the run; without ``credits`` it is recorded, and its outcome ignored."""
        call = self._translate(_ENDS[self._host](turn, self._clock.now), turn)
        event, context = call.event, call.context
        assert isinstance(event, RunEvent)
        session = context.session_id or turn.name
        if credits:
            self.memory.end_run(
                event.messages, session_id=session, run_id=context.run_id, seen=event.seen
            )
        else:
            self.memory.record(
                event.messages, session_id=session, run_id=context.run_id, seen=event.seen
            )

    def _translate(self, payload: tuple[str, Payload], turn: Turn) -> HookCall:
        name, event = payload
        context = _CONTEXTS[self._host](turn)
        call = self._translator.translate(name, event, context, self._base, self._clock.now)
        assert call is not None
        return call


# -- OpenClaw --------------------------------------------------------------------------------------


def _openclaw_context(turn: Turn) -> Payload:
    key = f"agent:main:{turn.name}"
    return {"runId": turn.name, "agentId": "main", "sessionKey": key, "trigger": "user"}


def _openclaw_prompt(turn: Turn) -> tuple[str, Payload]:
    return "before_prompt_build", {"prompt": turn.prompt, "messages": []}


def _openclaw_end(turn: Turn, now: datetime) -> tuple[str, Payload]:
    when = int(now.timestamp() * 1000)
    messages: list[Payload] = [{"role": "user", "content": _texts(turn.prompt)}]
    for number, call in enumerate(turn.calls):
        key = f"call_{number}_{when}"
        request = {"type": "toolCall", "id": key, "name": call.tool, "arguments": call.arguments}
        spoken = _texts(call.said) if call.said else []
        messages += [
            {"role": "assistant", "content": [*spoken, request], "stopReason": "toolUse"},
            {"role": "toolResult", "toolCallId": key, "toolName": call.tool, **_of_openclaw(call)},
        ]
    messages.append({"role": "assistant", "content": _texts(turn.answer), "stopReason": "stop"})
    stamped = [{**message, "timestamp": when} for message in messages]
    return "agent_end", {"success": True, "runId": turn.name, "messages": stamped}


def _of_openclaw(call: Call) -> Payload:
    """Return a result: of a command it is no error, whatever its exit code."""
    if call.tool != COMMAND:
        details = {"status": "error" if call.exit else "completed", "tool": call.tool}
        return {"content": _texts(call.output), "details": details, "isError": bool(call.exit)}
    note = f"\n\n(Command exited with code {call.exit})" if call.exit else ""
    details = {"status": "completed", "exitCode": call.exit, "aggregated": call.output}
    return {"content": _texts(call.output + note), "details": details, "isError": False}


def _texts(text: str) -> list[Payload]:
    return [{"type": "text", "text": text}]


# -- Claude Code -----------------------------------------------------------------------------------


def _claude_context(turn: Turn) -> Payload:
    return {"session_id": turn.name, "run_id": turn.name}


def _claude_prompt(turn: Turn) -> tuple[str, Payload]:
    return "prompt", {"events": [_claude_event(turn, "UserPromptSubmit", prompt=turn.prompt)]}


def _claude_end(turn: Turn, _now: datetime) -> tuple[str, Payload]:
    events = [_claude_event(turn, "UserPromptSubmit", prompt=turn.prompt)]
    events += [_claude_call(turn, number, call) for number, call in enumerate(turn.calls)]
    stop = {"stop_hook_active": False, "last_assistant_message": turn.answer}
    return "turn_end", {"events": [*events, _claude_event(turn, "Stop", **stop)]}


def _claude_call(turn: Turn, number: int, call: Call) -> Payload:
    is_command = call.tool == COMMAND
    fields = {
        "tool_name": "Bash" if is_command else call.tool,
        "tool_input": call.arguments,
        "tool_use_id": f"toolu_{number:02}",
    }
    if call.exit:
        error = f"Exit code {call.exit}\n{call.output}" if is_command else call.output
        return _claude_event(turn, "PostToolUseFailure", **fields, error=error, is_interrupt=False)
    response: Any = _texts(call.output)
    if is_command:
        response = {"stdout": call.output, "stderr": "", "interrupted": False, "isImage": False}
    return _claude_event(turn, "PostToolUse", **fields, tool_response=response)


def _claude_event(turn: Turn, name: str, **fields: Any) -> Payload:
    return {"session_id": turn.name, "hook_event_name": name, "permission_mode": "default"} | fields


# -- Hermes ----------------------------------------------------------------------------------------


def _hermes_context(turn: Turn) -> Payload:
    return {
        "session_id": turn.name,
        "run_id": turn.name,
        "platform": "cli",
        "agent_identity": "default",
    }


def _hermes_prompt(turn: Turn) -> tuple[str, Payload]:
    return "prefetch", {"query": turn.prompt}


def _hermes_end(turn: Turn, _now: datetime) -> tuple[str, Payload]:
    calls = list(_hermes_calls(turn))
    messages: list[Payload] = [{"role": "user", "content": turn.prompt}]
    for call, live in zip(turn.calls, calls, strict=True):
        name, key = live["tool_name"], live["tool_call_id"]
        function = {"name": name, "arguments": json.dumps(live["args"])}
        request = {"id": key, "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": call.said, "tool_calls": [request]},
            {"role": "tool", "name": name, "tool_call_id": key, "content": live["result"]},
        ]
    messages.append({"role": "assistant", "content": turn.answer})
    event = {"user": turn.prompt, "assistant": turn.answer, "messages": messages, "tools": calls}
    return "sync_turn", event


def _hermes_calls(turn: Turn) -> Iterator[Payload]:
    """Yield the calls as they are reported live: a command that failed has the status ok."""
    for number, call in enumerate(turn.calls):
        is_command = call.tool == COMMAND
        result: Payload = {"output": call.output, "exit_code": call.exit, "error": None}
        if not is_command:
            result = {"error": call.output} if call.exit else {"result": call.output}
        yield {
            "tool_name": "terminal" if is_command else call.tool,
            "args": call.arguments,
            "result": json.dumps(result),
            "tool_call_id": f"call_{number}",
            "status": "error" if result.get("error") else "ok",
        }


_CONTEXTS: Final = {
    "openclaw": _openclaw_context,
    "claude-code": _claude_context,
    "hermes": _hermes_context,
}
_PROMPTS: Final = {
    "openclaw": _openclaw_prompt,
    "claude-code": _claude_prompt,
    "hermes": _hermes_prompt,
}
_ENDS: Final = {"openclaw": _openclaw_end, "claude-code": _claude_end, "hermes": _hermes_end}
