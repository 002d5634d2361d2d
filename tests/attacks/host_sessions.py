"""Play a session of a host in which a tool brings a text, through that host's own adapter.

A case names the tool, what it brought (``page``) and what is said of it (``text``): by the
assistant or the user (``by``), before the page (``early``), right after it, so many runs ``later``,
or in another session to which the memory's own tool showed the page (``elsewhere``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from memtier_plugin.core import plugins
from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import HookCall, RunContext, RunEvent
from memtier_plugin.hooks import tools
from memtier_plugin.hooks.translators import open_translator
from memtier_plugin.pool import memory_pool

_ticks = count(1)


class Case(Protocol):
    """What is read of a case."""

    @property
    def number(self) -> int:
        """Its number in its class."""

    @property
    def known(self) -> Mapping[str, Any]:
        """Its fields."""

    @property
    def text(self) -> str:
        """What is said."""


class Conversation:
    """One session of a host, which grows run by run as the host reports it."""

    def __init__(self, host: str, home: Path, project: str, name: str) -> None:
        self._host, self._name = host, name
        self._base = RunContext(agent_id="", home=str(home), project=project)
        self._translator = open_translator(host, home)
        self._messages: list[dict[str, Any]] = []

    def end_run(self, run: str, messages: Sequence[dict[str, Any]]) -> None:
        """Let a run end, with the whole session, as the host reports it."""
        call = self._translate(run, messages)
        assert isinstance(call.event, RunEvent)
        plugins.manager().hook.agent_end(event=call.event, context=call.context)

    def context(self, run: str) -> RunContext:
        """Return the context in which the host calls a tool of ours."""
        return self._translator.context(self._context(run), self._base)

    def user(self, text: str) -> dict[str, Any]:
        """Return what a user says."""
        return {"role": "user", "content": text}

    def assistant(self, text: str) -> dict[str, Any]:
        """Return what the assistant says."""
        parts = [{"type": "text", "text": text}] if self._host == "openclaw" else text
        return {"role": "assistant", "content": parts}

    def call(self, tool: str, arguments: Mapping[str, Any], result: str) -> list[dict[str, Any]]:
        """Return the call of a tool and what it brought."""
        key = f"call_{next(_ticks)}"
        if self._host == "openclaw":
            asked: dict[str, Any] = {"type": "toolCall", "id": key, "name": tool}
            asked["arguments"] = dict(arguments)
            answer = {"role": "toolResult", "toolCallId": key, "toolName": tool, "isError": False}
            answer |= {"content": [{"type": "text", "text": result}], "details": {}}
            return [
                {"role": "assistant", "content": [asked], "stopReason": "toolUse"},
                answer,
            ]
        function = {"name": tool, "arguments": json.dumps(arguments)}
        asked = {"id": key, "type": "function", "function": function}
        answer = {"role": "tool", "name": tool, "tool_call_id": key, "content": result}
        return [{"role": "assistant", "content": "", "tool_calls": [asked]}, answer]

    def _translate(self, run: str, messages: Sequence[dict[str, Any]]) -> HookCall:
        # Each is said after the one before it, however early a case has made it.
        self._messages += [message | self._now() for message in messages]
        fields = self._context(run)
        if self._host == "openclaw":
            event: dict[str, Any] = {"messages": self._messages, "success": True, "runId": run}
            call = self._translator.translate("agent_end", event, fields, self._base)
        else:
            spoken = [m["content"] for m in messages if m["role"] in ("user", "assistant")]
            event = {"user": spoken[0], "assistant": spoken[-1], "messages": self._messages}
            call = self._translator.translate("sync_turn", event, fields, self._base)
        assert call is not None
        return call

    def _context(self, run: str) -> dict[str, str]:
        if self._host == "openclaw":
            key = f"agent:main:{self._name}"
            fields = {"agentId": "main", "sessionKey": key, "runId": run, "trigger": "user"}
        else:
            fields = {"session_id": self._name, "run_id": run, "platform": "cli"}
            fields["agent_identity"] = "default"
        return fields

    def _now(self) -> dict[str, Any]:
        if self._host != "openclaw":
            return {}
        return {"timestamp": int(time.time() * 1000)}


def play_session(case: Case, kind: str, home: Path, project: str) -> list[Entry]:
    """Play the session of a case and return the entry of what was said."""
    host = str(case.known.get("host", "openclaw"))
    name = f"{kind.replace(' ', '-')}-{case.number}"
    conversation = Conversation(host, home, project, name)
    fields = case.known
    by_user = fields.get("by") == "user"
    last = first = f"{name}-0"
    prompt = case.text if by_user and "early" in fields else fields.get("user", "Look it up.")
    line = conversation.assistant(case.text)
    reply = conversation.assistant("I have read it.")
    later = int(fields.get("later", 0))
    before = [line] if "early" in fields and not by_user else []
    after = reply if before or by_user or later or "elsewhere" in fields else line
    page = conversation.call(*_tool_call(fields, host))
    conversation.end_run(first, [conversation.user(prompt), *before, *page, after])
    for number in range(1, later + 1):
        last = f"{name}-{number}"
        mine = number == later
        asked = (case.text if by_user else fields["next"]) if mine else "Let us go on, please."
        answer = line if mine and not by_user else conversation.assistant("All right.")
        conversation.end_run(last, [conversation.user(asked), answer])
    if "elsewhere" in fields:
        conversation = Conversation(host, home, project, f"{name}-elsewhere")
        last = f"{name}-shown"
        query = {"query": str(fields["page"])}
        shown = tools.call_tool("memtier_search", query, conversation.context(last))
        assert str(fields["page"])[:20] in shown["text"]  # or nothing is proven
        page = conversation.call("memtier_search", query, shown["text"])
        asked = fields.get("next", "What do we know of it?")
        line = conversation.assistant(case.text)
        conversation.end_run(last, [conversation.user(asked), *page, line])
    return [*_said(case, conversation.context(last), last)]


def _tool_call(fields: Mapping[str, Any], host: str) -> tuple[str, Mapping[str, Any], str]:
    """Return the tool that the host reports, its arguments and its result."""
    tool, arguments = str(fields["tool"]), fields.get("args", {"url": "https://page.example/"})
    page = str(fields["page"])
    match fields.get("wrapped"):
        case "tool_call":
            return "tool_call", {"id": f"plugin:{tool}", "args": arguments}, page
        case "execute_code":
            code = f"from hermes_tools import {tool}\nprint({tool}(['https://page.example/']))"
            result = {"status": "success", "output": page, "tool_calls_made": 1}
            return "execute_code", {"code": code}, json.dumps(result, ensure_ascii=False)
        case "delegate_task":
            result = {"results": [{"task_index": 0, "status": "completed", "summary": page}]}
            return "delegate_task", {"goal": "Read up on it."}, json.dumps(result)
    if host == "hermes" and not page.startswith("{"):
        page = json.dumps({"content": page, "output": page}, ensure_ascii=False)
    return tool, arguments, page


def _said(case: Case, context: RunContext, run: str) -> Iterator[Entry]:
    role = "user" if case.known.get("by") == "user" else "assistant"
    with memory_pool.use(context) as memory:
        entries = [e for e in memory.entries() if e.run_id == run and e.role == role]
    spoken = [e for e in entries if not e.content.startswith("[tool call:")]
    if spoken:
        yield spoken[0 if "early" in case.known else -1]
