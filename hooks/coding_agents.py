"""Pass a coding agent's events to the resident, with a short process per hook call.

A turn is many events: a prompt, tool calls, the end.  They are appended to a session file until the
turn is over and delivered as one run, which `coding_agent_payloads` translates in the resident.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.paths import encode_file_name, make_private_folder
from memtier_plugin.hosts.project import EVENTS, agent_of, project_in
from memtier_plugin.operations.hook_calls import HookWait

from .resident import ResidentClient
from .resident_connection import Payload

PROMPT_SECONDS: Final = 5.0
CALL_SECONDS: Final = 2.0  # that a tool call waits for its reminder
END_SECONDS: Final = 20.0
MAX_RESULT_CHARS: Final = 64_000  # characters kept of a tool's result
ABANDONED_SECONDS: Final = 24 * 3600.0  # after which a dead session's turn is delivered
_MAX_BYTES: Final = 16_000_000  # bytes read from the end of a host's session file
_SCOPE: Final = ("session_id", "agent_id", "prompt_id", "turn_id", "cwd")  # identify the turn
_UNPROVEN: Final = {"PreCompress": "auto"}  # Gemini CLI reports it whether or not it compresses
# Only a block's fence has angle brackets, which Gemini CLI HTML-escapes.
_SQUARE: Final = {ord("<"): "[", ord(">"): "]"}


class TurnFile:
    """The events of a session's current turn, in a file of the home's queue."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, home: Path, host: str, session: str) -> TurnFile:
        """Return a session's turn, possibly without events."""
        return cls(home / "queue" / "turns" / host / f"{encode_file_name(session)}.jsonl")

    def begin(self, payload: Payload) -> str:
        """Begin a turn with its prompt; return its run's id."""
        names = ("agent_id", "prompt_id", "turn_id")  # a sub-agent works within another's prompt
        run = next((str(payload[n]) for n in names if payload.get(n)), uuid.uuid4().hex)
        folder = self.path.parent
        make_private_folder(folder.parents[2], "queue", "turns", folder.name)
        write_private_file(self.path, json.dumps({**payload, "run_id": run}) + "\n")
        return run

    def add(self, payload: Payload) -> None:
        """Append an event; safe for concurrent processes."""
        if not self.path.exists():  # the session began before MemTier was installed
            self.begin({name: payload[name] for name in _SCOPE if name in payload})
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.path, flags)
        try:
            os.write(fd, (json.dumps(_cut(payload)) + "\n").encode("ascii"))
        finally:
            os.close(fd)

    def events(self) -> list[dict[str, Any]]:
        """Return the events so far, skipping a truncated line."""
        events = []
        with suppress(OSError):
            for line in self.path.read_bytes().splitlines():
                with suppress(ValueError):
                    event = parse_json_text(line)
                    events += [event] if isinstance(event, dict) else []
        return events

    def run_id(self) -> str | None:
        """Return the id of the turn's run, which stands in the first line; None without a turn."""
        with suppress(OSError, ValueError), self.path.open("rb") as file:
            first = parse_json_text(file.readline())
            return str(first["run_id"]) if isinstance(first, dict) and "run_id" in first else None
        return None

    def remove(self) -> None:
        """Delete the delivered events."""
        self.path.unlink(missing_ok=True)


class AgentHooks:
    """The hooks of a coding agent.

    A project that was named for every folder is used in every folder. The default gives way to the
    one that the user bound the event's folder to.
    """

    def __init__(self, client: ResidentClient, host: str, project: str) -> None:
        self._client = client
        self._host = host
        self._project = project
        self.is_prompt = False
        self._unacknowledged: tuple[Payload, Payload] | None = None  # the last request, its answer

    def pass_event(self, payload: Payload) -> dict[str, Any]:
        """Pass on an event; return the hook's output, often empty.

        Raises:
            MemTierError, OSError: recall or storage failed.
        """
        name = str(payload.get("hook_event_name") or "")
        kind = EVENTS[self._host].get(name)
        session = str(payload.get("session_id") or "")
        if kind is None or not session:
            return {}
        if sub := str(payload.get("agent_id") or ""):  # a sub-agent's event, with a turn of its own
            session = f"{session}.{sub}"
            if kind not in ("call", "tool", "subagent_end") or not payload.get("agent_type"):
                return {}  # the host's own summarising call
        turn = TurnFile.of(self._client.home, self._host, session)
        self.is_prompt = kind == "prompt"
        if self.is_prompt:
            return self._recall(turn, name, payload)
        if kind == "call":
            return self._remind(turn, name, payload)
        if kind == "turn_end":
            self._complete(turn, payload)
        if kind in ("tool", "turn_end", "subagent_end"):
            turn.add(payload)
        if kind in ("turn_end", "subagent_end"):
            self._deliver(kind, turn.events())
            if kind == "subagent_end":
                turn.remove()
        elif kind == "compaction" and payload.get("trigger") != _UNPROVEN.get(name):
            self._deliver("compaction", turn.events() or [dict(payload)])
        elif kind == "session_start":
            self._deliver_abandoned()
            self._client.deliver(self._request(kind, [payload], None), END_SECONDS)
        elif kind == "session_end":
            events = turn.events()
            note = next((each for each in reversed(events) if "standing" in each), None)
            self._deliver_unfinished(turn, events)
            if note:
                turn.begin(note)  # the session may be resumed
            self._client.deliver(self._request(kind, [payload], None), END_SECONDS)
        return {}

    def _complete(self, turn: TurnFile, last: Payload) -> None:
        """Add to a turn what its events lack: refused calls, and which edits stand now."""
        events = turn.events()
        if self._host == "claude-code":
            for refused in find_refused(events, str(last.get("transcript_path") or "")):
                turn.add(refused)
        from memtier_plugin.ingest.user_acts import note_standing  # no prompt waits for it

        if standing := note_standing(events, str(last.get("cwd") or "")):
            turn.add({**standing, "hook_event_name": last["hook_event_name"]})

    def _recall(self, turn: TurnFile, name: str, payload: Payload) -> dict[str, Any]:
        started, answered = time.monotonic(), False
        events = turn.events()
        undone = _find_undone(events, payload)
        self._deliver_unfinished(turn, events, PROMPT_SECONDS / 2)
        run = turn.begin(payload)
        for edit in undone:
            turn.add({"undone": edit})
        request = self._request("prompt", [payload], run)
        request["event"]["acknowledges"] = True
        try:
            seconds = max(0.0, started + PROMPT_SECONDS - time.monotonic())
            answer = self._client.call("hook", request, seconds) or {}
            answered = True
        finally:
            ms = round(1000 * (time.monotonic() - started))
            project, agent = request["project"], agent_of(self._host)
            wait = HookWait(project, agent, "before_prompt_build", ms, answered)
            self._client.note_wait(self._host, wait)
        block = answer.get("prepend_context")
        if not block:
            return {}
        if self._host == "gemini":
            block = block.translate(_SQUARE)
        self._unacknowledged = request, answer
        return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": block}}

    def _remind(self, turn: TurnFile, name: str, payload: Payload) -> dict[str, Any]:
        """Return the output that refuses a call with the user's rule, or an empty one."""
        request = self._request("call", [payload], turn.run_id())
        answer = self._client.call("hook", request, CALL_SECONDS) or {}
        if not (text := answer.get("text")):
            return {}
        if self._host == "gemini":
            return {"decision": "deny", "reason": text}
        decision = {"permissionDecision": "deny", "permissionDecisionReason": text}
        return {"hookSpecificOutput": {"hookEventName": name, **decision}}

    def finish(self, *, printed: bool = True) -> None:
        """Acknowledge the last answer, if it was printed.

        If no prompt is waiting, check on a resident that did not answer.
        """
        if printed and self._unacknowledged:
            self._client.acknowledge(*self._unacknowledged)
            self._client.flush()
            self._unacknowledged = None
        if not self.is_prompt:
            self._client.close()

    def _deliver(
        self, kind: str, events: Sequence[dict[str, Any]], seconds: float = END_SECONDS
    ) -> None:
        if self._host == "codex":
            add_exit_codes(events, str(events[-1].get("transcript_path") or ""))
        run = str(events[0].get("run_id") or uuid.uuid4().hex)
        self._client.deliver(self._request(kind, events, run), seconds)

    def _deliver_unfinished(
        self, turn: TurnFile, events: list[dict[str, Any]], seconds: float = END_SECONDS
    ) -> None:
        """Deliver an unfinished turn and delete it; finished ones are already delivered."""
        kinds = EVENTS[self._host]
        if events and kinds.get(str(events[-1].get("hook_event_name"))) != "turn_end":
            if self._host == "claude-code":
                events += find_refused(events, str(events[0].get("transcript_path") or ""))
            self._deliver("unfinished_turn", events, seconds)
        turn.remove()

    def _deliver_abandoned(self) -> None:
        folder = TurnFile.of(self._client.home, self._host, "x").path.parent
        before = time.time() - ABANDONED_SECONDS
        for path in sorted(folder.glob("*.jsonl")):
            with suppress(OSError):
                if path.stat().st_mtime < before:
                    turn = TurnFile(path)
                    self._deliver_unfinished(turn, turn.events())

    def _request(self, kind: str, events: Sequence[Payload], run: str | None) -> dict[str, Any]:
        first = events[0]
        return {
            "host": self._host,
            "name": kind,
            "event": {"events": [*map(dict, events)]},
            "context": {
                "session_id": first.get("session_id"),
                "run_id": run,
                "workspace": first.get("cwd"),
                "subagent": first.get("agent_id"),
            },
            "home": str(self._client.home),
            "project": project_in(self._client.home, self._project, first.get("cwd")),
        }


def _find_undone(events: Sequence[Payload], prompt: Payload) -> list[str]:
    if not any("standing" in event for event in events):
        return []
    from memtier_plugin.ingest.user_acts import find_undone  # most turns edit nothing

    return find_undone(events, str(prompt.get("cwd") or ""))


def read_event(text: str) -> dict[str, Any]:
    """Return a hook's event from stdin.

    Raises:
        MemTierError: it is not a JSON object.
    """
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MemTierError(f"the event is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise MemTierError("the event is not an object")
    return payload


def _cut(value: Any) -> Any:
    """Return an event with its longest texts truncated, as results may be megabytes."""
    if isinstance(value, str):
        return value[:MAX_RESULT_CHARS]
    if isinstance(value, Mapping):
        return {name: _cut(inner) for name, inner in value.items()}
    return [*map(_cut, value)] if isinstance(value, list) else value


# -- Find the calls that a user of Claude Code refused, which only its transcript has


def find_refused(events: Sequence[Payload], transcript: str) -> list[dict[str, Any]]:
    """Return a turn's refused calls that its events lack, each with the user's reason if any."""
    prompt = events[0].get("prompt_id") if events else None
    known = [event.get("tool_use_id") for event in events]  # of any type
    with suppress(OSError):
        if prompt and transcript:
            refused = _read_refused(Path(transcript), str(prompt))
            return [event for event in refused if event["tool_use_id"] not in known]
    return []


def _read_refused(path: Path, prompt: str) -> list[dict[str, Any]]:
    lines = [*_last_lines(path)]
    reasons: dict[str, tuple[str, str]] = {}  # by call: the result, the user's reason
    for line in lines:
        if b'"toolDenialKind"' in line:
            reasons |= _read_reasons(line, prompt)
    if not reasons:
        return []
    ids = [call.encode(errors="replace") for call in reasons]
    calls: dict[str, Mapping[str, Any]] = {}
    for line in lines:  # a transcript may be megabytes; few of its lines have these calls
        if b'"tool_use"' in line and any(call in line for call in ids):
            with suppress(ValueError, AttributeError, KeyError, TypeError):
                for block in parse_json_text(line)["message"]["content"]:
                    if block["type"] == "tool_use":
                        calls[block["id"]] = block
    return [
        {
            "tool_name": calls[call]["name"],
            "tool_input": calls[call].get("input"),
            "tool_use_id": call,
            "tool_response": text,
            "refused": reason,
        }
        for call, (text, reason) in reasons.items()
        if call in calls and calls[call].get("name")
    ]


def _read_reasons(line: bytes, prompt: str) -> dict[str, tuple[str, str]]:
    # No prompt waits for these imports.
    from memtier_plugin.ingest.host_words import refusal_reason
    from memtier_plugin.ingest.messages import flatten_content

    reasons: dict[str, tuple[str, str]] = {}
    with suppress(ValueError, AttributeError, KeyError, TypeError, MemTierError):
        record = parse_json_text(line)
        for block in record["message"]["content"] if record["promptId"] == prompt else ():
            text = flatten_content(block["content"])
            reason = refusal_reason(record["toolDenialKind"], text)
            if reason is not None:
                reasons[str(block["tool_use_id"])] = text, reason
    return reasons


# -- Find the exit codes of Codex' commands, which only its session file has
#
# A finished command is a line with its exit code; the model's result is another, whose head names
# the code.  A call with neither is left unchanged.

_HEAD: Final = re.compile(r"(?:[^\n]*\n){0,4}?Process exited with code (\d{1,3})\n")


def add_exit_codes(events: Sequence[dict[str, Any]], transcript: str) -> None:
    """Add to each tool call the ``exit_code`` from the session file."""
    calls = {str(event.get("tool_use_id")): event for event in events if event.get("tool_name")}
    with suppress(OSError):
        for call, code in _read_codes(Path(transcript)) if calls and transcript else ():
            if call in calls:
                calls[call]["exit_code"] = code


def _read_codes(path: Path) -> Iterator[tuple[str, int]]:
    for line in _last_lines(path):
        if b'"exit_code"' not in line and b"Process exited with code" not in line:
            continue
        with suppress(ValueError, AttributeError, KeyError, TypeError):
            payload = parse_json_text(line)["payload"]
            item = payload.get("item") or payload
            if isinstance(item.get("exit_code"), int):
                yield str(item["id"]), item["exit_code"]
            elif head := _HEAD.match(item["output"]):
                yield str(item["call_id"]), int(head[1])


def _last_lines(path: Path) -> Iterator[bytes]:
    if path.is_file():
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MAX_BYTES))
            yield from file
