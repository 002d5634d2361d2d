"""Import the sessions that coding agents keep: Claude Code, Codex and Gemini CLI.

claude-code  ``~/.claude/projects/FOLDER/*.jsonl``: a line for each message, and for much else.
codex        ``~/.codex/sessions/**/*.jsonl``: a line for each item of the conversation.
gemini       ``~/.gemini/tmp/FOLDER/chats/*``: a line for each message, which a later line with its
             id replaces; of older versions a document with ``messages``.

What a person typed, what the assistant answered and what tools were called with are read; what the
host put into the conversation in the user's place, thoughts, and the work of sub-agents are not.
A run is named by its prompt, so that a session that has grown adds only what is new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.ingest.host_words import (
    LOCAL_TOOLS,
    RUNNERS,
    given_answers,
    refusal_reason,
    user_words,
)
from memtier_plugin.ingest.messages import (
    ImportedMessage,
    Session,
    flatten_content,
    parse_message,
)
from memtier_plugin.ingest.user_acts import refusals
from memtier_plugin.transfer.importers.reading import (
    SkipCallback,
    as_object,
    as_text,
    in_time,
    load_json,
    read_json_lines,
)
from memtier_plugin.trust.origins import brings_external_text

_ERRORS: Final = (MessageError, ValueError, OverflowError)  # the last two for invalid times
_CLAUDE_CODE: Final = re.compile(r"\AExit code (\d{1,3})\b")  # of a failed command
_CODEX_CODE: Final = re.compile(r"Process exited with code (\d{1,3})\n")
_GEMINI_CODE: Final = re.compile(r"(?m)^Exit Code: (\d{1,3})\n(?=.*\Z)")
_HEAD: Final = re.compile(r"\A(?:[^\n]*\n){0,5}?Output:\n")  # of a command's result in Codex
_FRAME: Final = re.compile(r"</?untrusted_context>\n?|Process Group PGID: \d+\n?")  # of Gemini's

Add = Callable[[str, Mapping[str, Any]], None]


class _SessionFile:
    """Collects the messages of one session; what cannot be read is reported."""

    def __init__(self, host: str, name: str, skip: SkipCallback) -> None:
        self.host, self.name = host, name
        self._skip = skip
        self._turns: list[ImportedMessage] = []
        self._calls: dict[str, tuple[str, str]] = {}  # by id, the tool and its arguments

    def session(self) -> Iterator[Session]:
        """Yield the session if anybody said anything in it."""
        if any(turn.message.role == "user" for turn in self._turns):
            when = next((t.message.observed_at for t in self._turns if t.message.observed_at), None)
            yield Session(
                session_id=f"{self.host}/{self.name}", observed_at=when, turns=tuple(self._turns)
            )

    def say(self, location: str, key: str, role: str, content: Any, when: Any) -> None:
        """Add a text, or its parts, of the user or the assistant."""
        text = flatten_content(content) if isinstance(content, list) else as_text(content)
        text = user_words(text, self.host) if role == "user" else text
        if text.strip():
            self._add(location, key, {"role": role, "content": text, "timestamp": when})

    def call(self, location: str, key: str, name: str, arguments: Any, when: Any) -> None:
        """Add a call of a tool, named by ``key``."""
        name = name or "tool"
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        self._calls[key] = name, arguments
        call = {"id": key, "name": name, "arguments": arguments}
        record = {"role": "assistant", "content": "", "tool_calls": [call], "timestamp": when}
        self._add(location, key, record)

    def tool(self, key: str) -> str:
        """Return the name of a call's tool, or ""."""
        return self._calls.get(key, ("", ""))[0]

    def result(
        self, location: str, key: str, text: str, outcome: Mapping[str, Any], when: Any
    ) -> None:
        """Add the result of a call; the outcome is empty where the host does not say."""
        name, arguments = self._calls.get(key, ("tool", ""))
        tool = RUNNERS.get(name, name.lower())
        external = brings_external_text(tool, arguments, text, local=LOCAL_TOOLS)
        record = {
            "role": "tool",
            "name": name,
            "tool_call_id": key,
            "content": text or "(no output)",
            "origin": "external" if external else "tool",
            "timestamp": when,
            **outcome,
        }
        self._add(location, f"{key}.result", record)

    def refused(self, location: str, key: str, folder: str, when: Any) -> None:
        """Add that the user refused a call without a reason."""
        name, arguments = self._calls.get(key, ("tool", ""))
        given: Any = {"command": arguments}
        with suppress(ValueError):
            given = parse_json_text(arguments)
        for act in refusals(name, given, folder):
            self._add(location, f"{key}.refused", {**act, "timestamp": when})

    def _add(self, location: str, key: str, record: Mapping[str, Any]) -> None:
        try:
            message = parse_message(record)
        except _ERRORS as error:
            self._skip(location, str(error))
            return
        run = f"{self.host}:{self.name}:{key}" if message.role == "user" else None
        self._turns.append(ImportedMessage(id=key, message=message, run_id=run))


def _blocks(content: Any) -> list[dict[str, Any]]:
    return (
        [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    )


# -- Claude Code -----------------------------------------------------------------------------------


def read_claude_code(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield the session of a transcript of Claude Code."""
    talk = _SessionFile("claude-code", path.stem, skip)
    for location, record in read_json_lines(path, skip):
        if not isinstance(record, dict):
            skip(location, f"not a record: {record!r:.60}")
        elif record.get("type") in ("user", "assistant") and not (
            record.get("isSidechain") or record.get("isMeta") or record.get("isCompactSummary")
        ):
            talk.name = as_text(record.get("sessionId")) or talk.name
            _add_claude(talk, location, record)
    yield from talk.session()


def _add_claude(talk: _SessionFile, location: str, record: Mapping[str, Any]) -> None:
    message, when = as_object(record.get("message")), record.get("timestamp")
    role, content = as_text(record.get("type")), message.get("content")
    key = as_text(record.get("uuid")) or location.rpartition(":")[2]
    if isinstance(content, str):
        talk.say(location, key, role, content, when)
        return
    spoken = [b for b in _blocks(content) if b.get("type") in ("text", "image")]
    results = [b for b in _blocks(content) if b.get("type") == "tool_result"]
    denial = record.get("toolDenialKind")  # the call was not made
    for block in results:
        text, failed = _text_of(block.get("content")), block.get("is_error") is True
        code = _CLAUDE_CODE.match(text) if failed else None
        outcome = {"exit_code": int(code[1])} if code else {"ok": not failed}
        call = as_text(block.get("tool_use_id"))
        talk.result(location, call, text, {} if denial else outcome, when)
        answers = given_answers(talk.tool(call), record.get("toolUseResult"))
        reason = refusal_reason(denial, text)
        if reason == "":
            talk.refused(location, call, as_text(record.get("cwd")), when)
        for number, words in enumerate([reason or "", *answers]):
            talk.say(location, f"{key}.{number}", "user", words, when)
    if not results:  # beside a result, the host's own notes
        talk.say(location, key, role, spoken, when)
    for block in _blocks(content):
        if block.get("type") == "tool_use":
            name = as_text(block.get("name"))
            talk.call(location, as_text(block.get("id")), name, block.get("input"), when)


def _text_of(content: Any) -> str:
    return flatten_content(content) if isinstance(content, list) else as_text(content)


# -- Codex -----------------------------------------------------------------------------------------


def read_codex(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield the session of a rollout of Codex."""
    talk = _SessionFile("codex", path.stem, skip)
    for location, record in read_json_lines(path, skip):
        if not isinstance(record, dict):
            skip(location, f"not a record: {record!r:.60}")
            continue
        kind = record.get("type")
        item = as_object(record.get("payload")) or record  # older files have the items alone
        if kind == "session_meta" or (kind is None and "id" in record):
            talk.name = as_text(item.get("id")) or talk.name
        elif kind == "response_item" or item is record:
            _add_codex(talk, location, item, record.get("timestamp"))
    yield from talk.session()


def _add_codex(talk: _SessionFile, location: str, item: Mapping[str, Any], when: Any) -> None:
    kind, key = item.get("type"), location.rpartition(":")[2]
    call = as_text(item.get("call_id")) or key
    if kind == "message" and item.get("role") in ("user", "assistant"):
        parts = [
            {**part, "type": "text"} for part in _blocks(item.get("content")) if "text" in part
        ]
        talk.say(location, key, as_text(item.get("role")), parts, when)
    elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
        arguments = item.get("arguments") or item.get("input") or item.get("action")
        talk.call(location, call, as_text(item.get("name")) or "local_shell", arguments, when)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        text, code = _codex_output(item.get("output"))
        talk.result(location, call, text, {} if code is None else {"exit_code": code}, when)


def _codex_output(output: Any) -> tuple[str, int | None]:
    """Return the text of a command's result, and its exit code where that stands beside it."""
    if isinstance(output, str) and output.startswith('{"output"'):
        with suppress(ValueError, RecursionError):
            output = json.loads(output)
    if isinstance(output, dict):
        code = as_object(output.get("metadata")).get("exit_code")
        text = output.get("output") or output.get("content")
        return _text_of(text), code if isinstance(code, int) else None
    text = _text_of(output)
    if head := _HEAD.match(text):
        stated = _CODEX_CODE.search(head[0])
        return text[head.end() :], int(stated[1]) if stated else None
    return text, None


# -- Gemini CLI ------------------------------------------------------------------------------------


def read_gemini(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield the session of a chat file of Gemini CLI."""
    talk = _SessionFile("gemini", path.stem, skip)
    messages: dict[str, tuple[str, dict[str, Any]]] = {}
    for location, record in _gemini_records(path, skip):
        if not isinstance(record, dict):
            skip(location, f"not a record: {record!r:.60}")
            continue
        talk.name = as_text(record.get("sessionId")) or talk.name
        if record.get("type") in ("user", "gemini"):
            messages[as_text(record.get("id")) or location] = location, record
        history = [*_blocks(record.get("messages"))]
        history += _blocks(as_object(record.get("$set")).get("messages"))
        for number, earlier in enumerate(history):  # told again when a session goes on, and shorter
            if earlier.get("type") in ("user", "gemini"):
                key = as_text(earlier.get("id")) or f"{location}.{number}"
                messages.setdefault(key, (location, earlier))
    for key, (location, message) in in_time(messages.items()):
        _add_gemini(talk, location, key, message)
    yield from talk.session()


def _gemini_records(path: Path, skip: SkipCallback) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".json":
        yield str(path), load_json(path)
    else:
        yield from read_json_lines(path, skip)


def _add_gemini(talk: _SessionFile, location: str, key: str, message: Mapping[str, Any]) -> None:
    when, content = message.get("timestamp"), message.get("content")
    if isinstance(content, list):  # results stand beside their calls, too
        content = [{"type": "text", **part} for part in _blocks(content) if "text" in part]
    role = "user" if message.get("type") == "user" else "assistant"
    talk.say(location, key, role, content, when)
    for number, call in enumerate(_blocks(message.get("toolCalls"))):
        name = as_text(call.get("id")) or f"{key}.{number}"
        talk.call(location, name, as_text(call.get("name")), call.get("args"), when)
        responses = [
            as_object(part.get("functionResponse")) for part in _blocks(call.get("result"))
        ]
        answers = [as_object(response.get("response")) for response in responses]
        text = "\n".join(as_text(a.get("output") or a.get("error")) for a in answers)
        text = _FRAME.sub("", text).strip()
        outcome: dict[str, Any] = {"ok": call.get("status") == "success"}
        if code := _GEMINI_CODE.search(f"{text}\n"):
            outcome = {"exit_code": int(code[1])}
        talk.result(location, name, text, outcome, call.get("timestamp") or when)
