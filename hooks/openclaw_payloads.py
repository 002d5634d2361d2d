"""Translate OpenClaw's hook payloads, as its JavaScript shim forwards them, into our records.

Their format was observed with OpenClaw 2026.9.  `messages` is the whole session; a run begins with
its last user message.  A failed run may be reported many times under one id.  A MemTier session
ends with a reset or after six idle hours, which OpenClaw's own id does not show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import from_iso, parse_json_text, to_iso
from memtier_plugin.core.paths import make_private_folder
from memtier_plugin.core.records import Origin
from memtier_plugin.core.results import HookCall, PromptEvent, RunContext, RunEvent, ToolCallEvent
from memtier_plugin.ingest.host_words import is_continuation, is_marked, is_report, user_words
from memtier_plugin.ingest.messages import flatten_content, parse_messages

from .payloads import (
    calls_by_id,
    drop_oldest,
    external_texts,
    local_tools,
    result_origin,
    text_or_none,
    usage_of,
)
from .resident_connection import Payload

HOST: Final = "openclaw"
SESSION_IDLE: Final = timedelta(hours=6)  # after which a new session begins
UNPROMPTED_TRIGGERS: Final = frozenset(
    {"cron", "heartbeat", "memory"}
)  # triggers of turns that no user asked for
MAX_KEPT: Final = 2000  # conversations and runs remembered; the oldest are dropped first

_HOOKS: Final = (
    "before_prompt_build",
    "before_tool_call",
    "agent_end",
    "before_compaction",
    "session_start",
    "session_end",
)
_ENDING_REASONS: Final = frozenset(
    {"new", "reset", "idle", "daily", "deleted"}
)  # reasons of session_end
_GROUP: Final = re.compile(r":(?:group|channel|room|thread|topic|guild)s?:", re.IGNORECASE)
# The chat in a session's key, if OpenClaw keeps a session per person: the peer of a direct message,
# or the `user` of a request to its HTTP interface.
_PEER: Final = re.compile(
    r"\Aagent:[^:]*:(?:open(?:ai|responses)-user:(?P<user>.+)"
    r"|(?P<peer>(?:[^:]+:){0,2}(?:direct|dm):[^:]+))",
    re.IGNORECASE,
)
_TASK: Final = re.compile(
    r"\A\[Subagent Context\].*?^\[Subagent Task\]$\s*(?P<task>.*?)\s*"
    r"(?:\n+Begin\. Execute the assigned task to completion\.)?\s*\Z",
    re.DOTALL | re.MULTILINE,
)
_FAILED_STOP_REASONS: Final = ("error", "aborted")  # the model's stop reasons that mean failure
# Reports from another session, whose own reading is unknown here.
_ANOTHER_SESSION: Final = {"role": "tool", "name": "session_message", "origin": "external"}
_RUN_ROLES: Final = ("user", "assistant", "toolResult")  # the roles that a run consists of


@dataclass(slots=True)
class _Conversation:
    """A session key's state: the number of our session, and the time of its last call."""

    number: int
    last: datetime


@dataclass(slots=True)
class OpenClawSessions:
    """Tracks where sessions end, and which session started a sub-agent.

    Kept in a small file, so that a restarted resident continues the same sessions.
    """

    file: Path
    _conversations: dict[str, _Conversation] = field(default_factory=dict)
    _parents: dict[str, str] = field(default_factory=dict)
    _prompts: dict[str, str] = field(default_factory=dict)
    _unprompted: dict[str, None] = field(default_factory=dict)
    _lock: Mutex = field(default_factory=Mutex)

    @classmethod
    def load(cls, home: Path) -> OpenClawSessions:
        """Read the state from a home; an unreadable file is replaced.

        Raises:
            UnsafePath, LedgerError: the home cannot be used.
        """
        loaded = cls(make_private_folder(home, "hosts") / f"{HOST}.json")
        with suppress(OSError, ValueError, KeyError, TypeError):
            saved = parse_json_text(loaded.file.read_text("utf-8"))
            for key, (number, last) in saved["sessions"].items():
                loaded._conversations[str(key)] = _Conversation(int(number), from_iso(last))
            loaded._parents.update({str(k): str(v) for k, v in saved["parents"].items()})
        return loaded

    def session_id(self, key: str, now: datetime) -> str:
        """Return the current MemTier session of a session key; six idle hours end a session."""
        with self._lock:
            conversation = self._conversations.get(key)
            if conversation is None or now - conversation.last > SESSION_IDLE:
                self._begin_session(key, now)
            else:
                conversation.last = max(conversation.last, now)
                if now - conversation.last > SESSION_IDLE / 12:
                    self._save()
            return self._session_id_of(key)

    def last_heard(self, key: str) -> datetime | None:
        """Return the time of a session key's last call."""
        conversation = self._conversations.get(key)
        return conversation.last if conversation else None

    def end_session(self, key: str, now: datetime) -> None:
        """Start a new session with the next run of a session key."""
        with self._lock:
            if key in self._conversations:
                self._begin_session(key, now)

    def note_spawned(self, child: str, parent: str) -> None:
        """Record which session started a sub-agent."""
        with self._lock:
            self._parents[child] = parent
            drop_oldest(self._parents, MAX_KEPT)
            self._save()

    def parent_of(self, child: str) -> str | None:
        """Return the session key that started a sub-agent, if known."""
        return self._parents.get(child)

    def first_prompt(self, run: str, prompt: str) -> str:
        """Return a run's original prompt; later attempts get a canned one."""
        with self._lock:
            first = self._prompts.setdefault(run, prompt)
            drop_oldest(self._prompts, MAX_KEPT)
        return first

    def note_unprompted(self, run: str | None) -> None:
        """Record that no person asked for a run: `agent_end` does not say so."""
        if run:
            with self._lock:
                self._unprompted[run] = None
                drop_oldest(self._unprompted, MAX_KEPT)

    def is_unprompted(self, run: str | None) -> bool:
        """Return whether no person asked for a run."""
        return run in self._unprompted

    def _begin_session(self, key: str, now: datetime) -> None:
        before = self._conversations.pop(key, None)
        self._conversations[key] = _Conversation(before.number + 1 if before else 1, now)
        drop_oldest(self._conversations, MAX_KEPT)
        self._save()

    def _session_id_of(self, key: str) -> str:
        number = self._conversations[key].number
        return key if number == 1 else f"{key}#{number}"

    def _save(self) -> None:
        sessions = {
            key: [conversation.number, to_iso(conversation.last)]
            for key, conversation in self._conversations.items()
        }
        with suppress(MemTierError, OSError):  # it stays known in memory
            write_private_file(
                self.file, json.dumps({"sessions": sessions, "parents": self._parents})
            )


class OpenClawTranslator:
    """Translates OpenClaw's payloads into calls of MemTier's hooks."""

    def __init__(self, home: Path) -> None:
        self.known = OpenClawSessions.load(home)

    def translate(
        self,
        name: str,
        event: Payload,
        context: Payload,
        base: RunContext,
        now: datetime | None = None,
    ) -> HookCall | None:
        """Return the hook to call for one of OpenClaw's, or None for nothing.

        Args:
            base: home and project from the shim's configuration.
            now: when it happened [the time of a run's last message, else the present].

        Raises:
            MessageError: the payload contains something that is not a message.
        """
        now = (
            now or (_last_message_time(event) if name == "agent_end" else None) or datetime.now(UTC)
        )
        if name == "subagent_spawned":
            child, parent = event.get("childSessionKey"), context.get("requesterSessionKey")
            if child and parent:
                self.known.note_spawned(str(child), str(parent))
            return None
        if name not in _HOOKS or context.get("trigger") in UNPROMPTED_TRIGGERS:
            return None
        # A late session_end belongs to the session it ends, not to a new one.
        last = self.known.last_heard(_session_key(context)) if name == "session_end" else None
        run = self.context({**event, **context}, base, last or now)
        if name == "before_prompt_build":
            prompt = _prompt_event(event, context, run, self.known)
            return HookCall(name, run, prompt) if prompt else None
        if name == "before_tool_call":
            arguments = json.dumps(event.get("params") or {}, ensure_ascii=False)
            return HookCall(
                name, run, ToolCallEvent(tool=str(event.get("toolName") or ""), arguments=arguments)
            )
        # Between two runs, when everything is stored
        if name == "before_compaction" and not run.run_id:
            return HookCall(name, run, RunEvent(messages=()))
        if name in ("agent_end", "before_compaction"):
            between = _between_sessions(context, run.run_id) or self.known.is_unprompted(run.run_id)
            ended = _run_event(event, local_tools(run), between=between)
            return HookCall(name, run, ended) if ended.messages else None
        if name == "session_end" and event.get("reason") in _ENDING_REASONS:
            self.known.end_session(_session_key(context), now)
        return HookCall(name, run) if name.startswith("session_") else None

    def context(
        self, context: Payload, base: RunContext, now: datetime | None = None
    ) -> RunContext:
        """Return the run context: agent, our session, run, sender and parent."""
        key = _session_key(context)
        parent = self.known.parent_of(key) or _parent_from_key(key)
        return replace(
            base,
            agent_id=_agent_name(context, key),
            session_id=self.known.session_id(key, now or datetime.now(UTC)) if key else None,
            run_id=text_or_none(context.get("runId")),
            workspace=text_or_none(context.get("workspaceDir")) or base.workspace,
            sender=_sender_of(context, key) or _sender_of({}, parent or ""),
            parent=parent,
            private=context.get("private") is True,
        )


def _session_key(context: Payload) -> str:
    return str(context.get("sessionKey") or context.get("sessionId") or "")


def _parent_from_key(key: str) -> str | None:
    """Derive a sub-agent's parent from its session key, if its spawning was not reported."""
    spawner, child, _ = key.partition(":subagent:")
    return spawner if child else None


def _agent_name(context: Payload, key: str) -> str:
    """Return the agent that owns the ledger; an agent's sub-agents share one of their own."""
    agent = f"{HOST}.{context.get('agentId') or 'main'}"
    return f"{agent}.subagent" if ":subagent:" in key else agent


def _sender_of(context: Payload, key: str) -> str | None:
    """Return the person behind a session if OpenClaw distinguishes several, else None.

    If a group's message names nobody, it is the group itself: statements about one of its people,
    or the owner, are not meant for all of them.
    """
    if match := _PEER.match(key):
        return (match["peer"] or f"http:{match['user']}").casefold()
    if not _GROUP.search(key):
        return None
    sender = text_or_none(context.get("senderId") or context.get("requesterSenderId"))
    where = context.get("channel") or context.get("messageProvider")
    return (f"{where}:{sender}" if where else sender) if sender else key


def _between_sessions(context: Payload, run: str | None) -> bool:
    """Return whether a turn was requested by another session rather than by a person."""
    return is_marked(context) or (run or "").startswith("announce:")


# -- a prompt -----------------------------------------------------------------------------------


def _prompt_event(
    event: Payload,
    context: Payload,
    run: RunContext,
    conversations: OpenClawSessions,
) -> PromptEvent | None:
    if _between_sessions(context, run.run_id):
        conversations.note_unprompted(run.run_id)
        return None
    prompt = _strip_subagent_preamble(
        str(event.get("currentUserMessage") or event.get("prompt") or "")
    )
    if run.run_id:
        prompt = conversations.first_prompt(run.run_id, prompt)
    prompt = user_words(prompt, HOST)
    if not prompt.strip():
        return None
    return PromptEvent(prompt=prompt, visible_since=_visible_since(event.get("messages") or ()))


def _visible_since(messages: Sequence[Any]) -> datetime | None:
    """Return the time of the oldest message that is still visible verbatim."""
    spoken = [m for m in messages if isinstance(m, Mapping) and m.get("role") in _RUN_ROLES]
    return _message_time(spoken, min)


def _strip_subagent_preamble(text: str) -> str:
    """Return a sub-agent's task without OpenClaw's preamble."""
    task = _TASK.match(text)
    return task["task"] if task else text


# -- a run --------------------------------------------------------------------------------------


def _run_event(event: Payload, local: Sequence[str], *, between: bool) -> RunEvent:
    earlier, run_messages = _messages_of_run(event.get("messages") or ())
    spoken = parse_messages(_to_openai(run_messages, local, between=between))
    failure = _model_failure(run_messages)
    return RunEvent(
        messages=spoken,
        success=bool(event.get("success", True)) and failure is None,
        error=text_or_none(event.get("error")) or failure,
        seen=external_texts(_to_openai(earlier, local, between=False)),
        usage=usage_of(run_messages),
    )


def _last_message_time(event: Payload) -> datetime | None:
    """Return the time of the last message: delivery may come much later."""
    messages = event.get("messages") or ()
    return _message_time([m for m in messages if isinstance(m, Mapping)], max)


def _message_time(messages: Sequence[Payload], which: Callable[[Any], float]) -> datetime | None:
    """Return the first or last timestamp of messages, or None if none has one."""
    times = [message.get("timestamp") for message in messages]
    numbers = [time for time in times if isinstance(time, int | float)]
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(which(numbers) / 1000, UTC)
    return None


def _messages_of_run(messages: Sequence[Any]) -> tuple[list[Payload], list[Payload]]:
    """Return the earlier messages, and those from the last user message on.

    The earlier ones were delivered before.  The host's retry prompts and empty failed answers are
    dropped, so that a message has the same position in every attempt of a run.
    """
    spoken = [m for m in messages if isinstance(m, Mapping) and m.get("role") in _RUN_ROLES]
    spoken = [m for m in spoken if not _is_retry(m)]
    starts = [index for index, message in enumerate(spoken) if message["role"] == "user"]
    start = starts[-1] if starts else 0
    return spoken[:start], spoken[start:]


def _is_retry(message: Payload) -> bool:
    text = flatten_content(message.get("content"))
    return message["role"] == "user" and is_continuation(text)


def _model_failure(messages: Sequence[Payload]) -> str | None:
    """Return the model's own error, which the host reports as a success."""
    last = next((m for m in reversed(messages) if m["role"] == "assistant"), None)
    if last is None or last.get("stopReason") not in _FAILED_STOP_REASONS:
        return None
    return str(last.get("errorMessage") or last["stopReason"])


def _to_openai(
    messages: Sequence[Payload], local: Sequence[str], *, between: bool
) -> Iterator[dict[str, Any]]:
    """Yield messages in OpenAI's format, which `parse_messages` reads."""
    known: dict[str, tuple[str, str]] = {}  # the tool and its arguments by call id
    for message in messages:
        content, when = message.get("content"), message.get("timestamp")
        if message["role"] == "user":
            text = _strip_subagent_preamble(flatten_content(content))
            words = user_words(text, HOST)
            sender = {"role": "user" if words else "system"}
            if between or is_marked(message) or (not words and is_report(text)):
                sender = _ANOTHER_SESSION
            yield {**sender, "content": words or text, "timestamp": when}
        elif message["role"] == "assistant":
            if message.get("stopReason") in _FAILED_STOP_REASONS and not content:
                continue
            blocks = content if isinstance(content, list) else []
            calls = [
                {
                    "id": block.get("id"),
                    "name": block.get("name"),
                    "arguments": block.get("arguments"),
                }
                for block in blocks
                if isinstance(block, Mapping) and block.get("type") == "toolCall"
            ]
            known |= calls_by_id(calls)
            spoken = [block for block in blocks if _is_spoken(block)] if blocks else content
            yield {"role": "assistant", "content": spoken, "tool_calls": calls, "timestamp": when}
        else:
            yield {
                "role": "tool",
                "name": message.get("toolName"),
                "tool_call_id": message.get("toolCallId"),
                "content": content,
                "timestamp": when,
                **_tool_outcome(message),
                "origin": _origin(message, known, local),
            }


def _origin(result: Payload, calls: Mapping[str, tuple[str, str]], local: Sequence[str]) -> Origin:
    """Return the origin of a tool's result: the machine, or strangers."""
    name, arguments = calls.get(str(result.get("toolCallId")), ("", ""))
    details = result.get("details")
    return result_origin(
        name or str(result.get("toolName") or ""),
        arguments,
        flatten_content(result.get("content")),
        local,
        details if isinstance(details, Mapping) else None,
    )


def _is_spoken(block: Any) -> bool:
    return not isinstance(block, Mapping) or block.get("type") not in ("toolCall", "thinking")


def _tool_outcome(result: Payload) -> dict[str, Any]:
    """Return a tool's outcome: a command has an exit code and no ``isError``."""
    details = result.get("details")
    code = details.get("exitCode") if isinstance(details, Mapping) else None
    outcome: dict[str, Any] = {"exit_code": code} if isinstance(code, int) else {}
    if isinstance(result.get("isError"), bool):
        outcome["is_error"] = result["isError"]
    return outcome
