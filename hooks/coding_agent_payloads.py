"""Translate events of coding agents, delivered by `coding_agents`, into MemTier's records.

Fields follow the agents' public documentation: an object per event, with ``hook_event_name``,
``session_id`` and ``cwd``.  A hook's addition to a prompt stays in the conversation until it is
compacted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.results import HookCall, PromptEvent, RunContext, RunEvent, ToolCallEvent
from memtier_plugin.hosts.project import EVENTS, agent_of
from memtier_plugin.ingest.host_words import LOCAL_TOOLS, RUNNERS, given_answers, user_words
from memtier_plugin.ingest.messages import flatten_content, parse_messages
from memtier_plugin.ingest.user_acts import act_message, refusals

from .payloads import Compactions, local_tools, result_origin, text_or_none
from .resident_connection import Payload

_OWN_SERVER: Final = re.compile(r"mcp_+(?:plugin_memtier_)?memtier_+(?=memory_)")
# Agents with an event for failed calls; for others the result shows it.
_REPORTS_FAILURES: Final = ("claude-code",)
_EXIT_CODE: Final = re.compile(r"(?i)\b(?:exit|status)\s+code:?\s+(\d{1,3})\b")
# Gemini CLI's footer below a finished command's output: an exit code unless 0.
_GEMINI_END: Final = re.compile(
    r"\n(?:Exit Code: (\d{1,3})\n)?(Signal: \w+\n)?(?:Background PIDs: [\d, ]+\n)?"
    r"Process Group PGID: \d+\s*(?:</untrusted_context>)?\s*\Z"
)
_FORGETTING: Final = ("clear", "compact")  # sources of a session with a new conversation


class CodingAgentTranslator:
    """Translates the events of a coding agent into calls of MemTier's hooks."""

    def __init__(self, host: str, home: Path) -> None:
        self._host = host
        self._compactions = Compactions.load(home, host)

    def translate(
        self,
        name: str,
        event: Payload,
        context: Payload,
        base: RunContext,
        now: datetime | None = None,
    ) -> HookCall | None:
        """Return the hook to call for an agent's event, or None for nothing.

        Raises:
            MessageError: the payload contains something that is not a message.
        """
        run = self.context(context, base)
        session = run.session_id or ""
        events = [each for each in event.get("events") or () if isinstance(each, Mapping)]
        if name == "prompt":
            query = user_words(str(events[0].get("prompt") or ""), self._host) if events else ""
            since = self._compactions.last_compaction(session)
            prompt = PromptEvent(prompt=query, visible_since=since, keeps_injected=True)
            return HookCall("before_prompt_build", run, prompt) if query.strip() else None
        if name == "call":
            return HookCall("before_tool_call", run, _call(events[0])) if events else None
        compacted = name == "compaction" or (
            name == "session_start" and events and events[0].get("source") in _FORGETTING
        )
        if compacted:
            self._compactions.note(session, now or datetime.now(UTC))
        if name in ("session_start", "session_end"):
            return HookCall(name, run)
        if name not in ("turn_end", "subagent_end", "unfinished_turn", "compaction"):
            return None
        finished = name in ("turn_end", "subagent_end")
        # An interrupted turn says nothing about its tools, but for those that the user refused.
        kept = [
            each
            for each in events
            if finished or name == "compaction" or "tool_name" not in each or "refused" in each
        ]
        spoken = parse_messages(_messages(kept, self._host, (*local_tools(run), *LOCAL_TOOLS)))
        hook = "before_compaction" if name == "compaction" else "agent_end"
        if not spoken and hook == "agent_end":
            return None
        return HookCall(hook, run, RunEvent(messages=spoken))

    def context(self, context: Payload, base: RunContext) -> RunContext:
        """Return the run context: agent, session and run; a sub-agent has its own ledger."""
        session = text_or_none(context.get("session_id"))
        sub = text_or_none(context.get("subagent"))
        return replace(
            base,
            agent_id=agent_of(self._host) + (".subagent" if sub else ""),
            session_id=f"{session}.{sub}" if sub else session,
            run_id=text_or_none(context.get("run_id")),
            workspace=text_or_none(context.get("workspace")) or base.workspace,
            parent=session if sub else None,
        )


def _messages(events: Sequence[Payload], host: str, local: Sequence[str]) -> Iterator[Payload]:
    """Yield the messages of a turn in event order, which identifies them."""
    yield from (act_message(f"undid {each['undone']}") for each in events if each.get("undone"))
    folder = str(events[0].get("cwd") or "") if events else ""
    for number, event in enumerate(events):
        kind = EVENTS[host].get(str(event.get("hook_event_name")))
        if event.get("tool_name"):
            yield from _tool_messages(event, host, local, number)
            if event.get("refused") == "":
                yield from refusals(str(event["tool_name"]), event.get("tool_input"), folder)
        elif kind == "prompt" and (prompt := str(event.get("prompt") or "")):
            words = user_words(prompt, host)
            role = "user" if words else "system"
            yield {"role": role, "content": words or prompt}
        elif kind in ("turn_end", "subagent_end"):
            answer = event.get("last_assistant_message") or event.get("prompt_response")
            yield from [{"role": "assistant", "content": str(answer)}] if answer else ()


def _call(event: Payload) -> ToolCallEvent:
    """Return a tool call as it is recorded."""
    name = _OWN_SERVER.sub("", str(event.get("tool_name") or ""))
    given = event.get("tool_input") or {}
    written = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return ToolCallEvent(tool=name, arguments=written)


def _tool_messages(
    event: Payload, host: str, local: Sequence[str], number: int
) -> Iterator[Payload]:
    key = str(event.get("tool_use_id") or f"call-{number}")  # Gemini's calls have no id
    name, arguments = (made := _call(event)).tool, made.arguments
    call = {"id": key, "name": name, "arguments": arguments}
    yield {"role": "assistant", "content": "", "tool_calls": [call]}
    result = _result_text(event)
    yield {
        "role": "tool",
        "name": name,
        "tool_call_id": key,
        "content": result or "(no output)",  # an empty result is neither a line nor an outcome
        "origin": result_origin(RUNNERS.get(name, name.lower()), arguments, result, local),
        **_outcome(event, host),
    }
    reason = event.get("refused")
    for words in [reason] if reason else given_answers(name, event.get("tool_response")):
        yield {"role": "user", "content": str(words)}


def _result_text(event: Payload) -> str:
    """Return a tool's result as text: a command's output, or other objects as JSON."""
    if error := event.get("error"):
        return str(error)
    response = event.get("tool_response")
    if isinstance(response, Mapping):
        if "stdout" in response or "stderr" in response:
            parts = (str(response.get(name) or "") for name in ("stdout", "stderr"))
            return "\n".join(filter(None, parts))
        for field in ("llmContent", "content", "output"):
            if isinstance(response.get(field), str | list):
                return flatten_content(response[field])
        return json.dumps(response, ensure_ascii=False)
    if isinstance(response, list):
        return flatten_content(response)
    return "" if response is None else str(response)


def _outcome(event: Payload, host: str) -> dict[str, Any]:
    """Return a call's outcome: its exit code, else whether the agent reports failure.

    Empty if the agent does not say; the result is judged then.
    """
    response = event.get("tool_response")
    fields = response if isinstance(response, Mapping) else {}
    if event.get("is_interrupt") or fields.get("interrupted") is True or "refused" in event:
        return {}  # by the user, which says nothing about the tool
    for code in (event.get("exit_code"), fields.get("exit_code"), fields.get("exitCode")):
        if isinstance(code, int) and not isinstance(code, bool):
            return {"exit_code": code}
    if error := event.get("error") or fields.get("error"):
        stated = _EXIT_CODE.search(str(error))
        return {"exit_code": int(stated[1])} if stated else {"ok": False}
    if fields.get("success") is False or fields.get("isError") is True:
        return {"ok": False}
    if host == "gemini" and event["tool_name"] == "run_shell_command":
        ended = _GEMINI_END.search(_result_text(event))
        if ended and ended[2] and not ended[1]:
            return {"ok": False}
        return {"exit_code": int(ended[1] or 0)} if ended else {}
    if host not in _REPORTS_FAILURES:
        return {}
    return {"ok": event.get("hook_event_name") != "PostToolUseFailure"}
