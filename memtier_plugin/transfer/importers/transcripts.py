"""Read LoCoMo, LongMemEval, chat messages, OpenClaw transcripts and plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import ImportFileError, MessageError
from memtier_plugin.core.records import Message, Role, ToolCall
from memtier_plugin.ingest.messages import ImportedMessage, Session, parse_message, parse_messages
from memtier_plugin.transfer.importers.chat_exports import (
    walk_chatgpt_branch,
)
from memtier_plugin.transfer.importers.reading import (
    SkipCallback,
    as_object,
    in_time,
    parse_date,
    parse_timestamp,
    read_documents,
    read_items,
    read_text_lines,
    require_field,
)
from memtier_plugin.trust.origins import brings_external_text

_MESSAGE_ERRORS: Final = (MessageError, ValueError, OverflowError)  # the last two for invalid times


def parse_locomo_sample(sample: Any, location: str) -> Iterator[Session]:
    """Yield the sessions of one LoCoMo sample; a turn's id is its `dia_id`."""
    name = require_field(sample, "sample_id", str, location)
    conversation = require_field(sample, "conversation", dict, location)
    numbers = sorted(int(key[8:]) for key in conversation if re.fullmatch(r"session_\d+", key))
    for number in numbers:
        key = f"session_{number}"
        spot = f"{location}, {key}"
        date = require_field(conversation, f"{key}_date_time", str, spot)
        records = require_field(conversation, key, list, spot)
        if records:
            yield Session(
                session_id=f"{name}/{key}",
                observed_at=parse_date(date, "%I:%M %p on %d %B, %Y", spot),
                turns=tuple(_locomo_turn(r, f"{spot}[{i}]") for i, r in enumerate(records)),
            )


def parse_longmemeval_item(item: Any, location: str) -> Iterator[Session]:
    """Yield the sessions of one LongMemEval item; a turn's id is `<session>:<index>`."""
    sessions = require_field(item, "haystack_sessions", list, location)
    ids = require_field(item, "haystack_session_ids", list, location)
    dates = require_field(item, "haystack_dates", list, location)
    if not len(sessions) == len(ids) == len(dates):
        raise ImportFileError(
            f"{location}: {len(sessions)} haystack_sessions, {len(ids)} ids and "
            f"{len(dates)} dates; expected one of each a session"
        )
    for name, date, turns in zip(ids, dates, sessions, strict=True):
        spot = f"{location}, session {name!r}"
        if not isinstance(turns, list):
            raise ImportFileError(f"{spot}: expected a list of messages, found {turns!r:.60}")
        if turns:
            yield Session(
                session_id=str(name),
                observed_at=parse_longmemeval_date(str(date), spot),
                turns=_chat_turns(turns, f"{name}:", spot),
            )


def parse_longmemeval_date(text: str, location: str) -> datetime:
    """Read a LongMemEval date, such as ``2023/05/20 (Sat) 02:21``."""
    return parse_date(text, "%Y/%m/%d (%a) %H:%M", location)


def parse_openclaw_message(record: Mapping[str, Any]) -> Message | None:
    """Return an OpenClaw message; None if it is neither spoken nor a tool's result.

    Raises:
        MessageError: its content is neither text nor blocks.
    """
    chat = {key: record.get(key) for key in ("role", "content", "timestamp")}
    if chat["role"] == "assistant" and isinstance(chat["content"], list):
        blocks = [block for block in chat["content"] if isinstance(block, dict)]
        chat["tool_calls"] = [block for block in blocks if block.get("type") == "toolCall"]
    elif chat["role"] == "toolResult":
        details = as_object(record.get("details"))
        chat |= {
            "role": "tool",
            "name": record.get("toolName"),
            "tool_call_id": record.get("toolCallId"),
            "is_error": bool(record.get("isError")) or details.get("status") == "error",
            # A failed command has isError false; only its exit code shows the failure.
            "exit_code": details.get("exitCode"),
        }
    elif chat["role"] not in ("user", "assistant"):
        return None  # compactionSummary, custom, bashExecution
    message = parse_message(chat)
    content = message.content.strip() or message.tool_calls or message.tool
    return message if content else None


def read_locomo(path: Path, _skip: SkipCallback) -> Iterator[Session]:
    """Yield the sessions of a LoCoMo file, a list of samples."""
    for location, sample in read_items(path, ""):
        yield from parse_locomo_sample(sample, location)


def read_longmemeval(path: Path, _skip: SkipCallback) -> Iterator[Session]:
    """Yield the sessions of a LongMemEval file, a list of items."""
    for location, item in read_items(path, ""):
        yield from parse_longmemeval_item(item, location)


def read_openai(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield the conversations of chat messages."""
    number = 0
    for location, document in read_documents(path):
        several = isinstance(document, list) and not all(
            isinstance(item, dict) and "role" in item for item in document
        )
        for index, chat in enumerate(document if several else [document]):
            number += 1
            spot = f"{location}[{index}]" if several else location
            session = _openai_session(chat, f"{path.stem}-{number}", spot, skip)
            if session.turns:
                yield session


def _openai_session(chat: Any, name: str, location: str, skip: SkipCallback) -> Session:
    if isinstance(chat, list):
        chat = {"messages": chat}
    elif isinstance(chat, dict) and "mapping" in chat:
        branch = walk_chatgpt_branch(
            {**chat, "mapping": require_field(chat, "mapping", dict, location)}, location, skip
        )
        chat = {**chat, "messages": [node.message for node in branch]}
    messages = require_field(chat, "messages", list, location)
    started = chat.get("created_at", chat.get("create_time"))
    return Session(
        session_id=str(chat.get("id") or chat.get("conversation_id") or name),
        observed_at=parse_timestamp(started, location),
        turns=_chat_turns(messages, "", location),
    )


def read_openclaw(path: Path, _skip: SkipCallback) -> Iterator[Session]:
    """Yield the sessions of an OpenClaw transcript, or of captured hooks."""
    name, records = path.stem, []
    for location, document in read_documents(path):
        several = isinstance(document, list)
        for index, record in enumerate(document if several else [document]):
            spot = f"{location}[{index}]" if several else location
            if not isinstance(record, dict) or not record.keys() & {"type", "role", "hook"}:
                raise ImportFileError(
                    f"{spot}: expected a transcript line (`type`), a message (`role`) or a "
                    f"captured hook (`hook`), found {record!r:.60}"
                )
            if record.get("hook") == "agent_end":
                yield from _agent_end_session(record, path.stem, spot)
            elif record.get("type") == "session":
                name = str(record.get("id", name))
            elif record.get("type") == "message":
                records.append((spot, require_field(record, "message", dict, spot)))
            elif "role" in record:
                records.append((spot, record))
    if records:
        yield from _openclaw_session(name, records)


def _agent_end_session(payload: dict[str, Any], name: str, location: str) -> Iterator[Session]:
    event = require_field(payload, "event", dict, location)
    messages = require_field(event, "messages", list, location)
    records = [(f"{location}, message {index}", m) for index, m in enumerate(messages)]
    name = str(as_object(payload.get("ctx")).get("sessionId") or name)
    for session in _openclaw_session(name, records):
        run_id = event.get("runId")
        if not isinstance(run_id, str):
            yield session
            continue
        # The payload's own run is the last exchange; the older ones carry their ids themselves.
        last = session.exchanges[-1].turns
        turns = [replace(turn, run_id=turn.run_id or run_id) for turn in last]
        if run_id.startswith("announce:"):  # a sub-agent's report, put in the user's mouth
            turns[0] = replace(turns[0], message=replace(turns[0].message, origin="external"))
        yield replace(session, turns=(*session.turns[: -len(last)], *turns))


def _openclaw_session(name: str, records: list[tuple[str, Any]]) -> Iterator[Session]:
    turns: list[ImportedMessage] = []
    calls: dict[str | None, ToolCall] = {}
    for location, record in records:
        if not isinstance(record, dict):
            raise ImportFileError(f"{location}: expected a message, found {record!r:.60}")
        try:
            message = parse_openclaw_message(record)
        except _MESSAGE_ERRORS as error:
            raise ImportFileError(f"{location}: {error}") from error
        if message:
            calls |= {call.call_id: call for call in message.tool_calls}
            if message.tool and _is_external(message, calls.get(message.tool.call_id), record):
                message = replace(message, origin="external")
            run_id = as_object(record.get("__openclaw")).get("runId")
            run_id = run_id if isinstance(run_id, str) else None
            turns.append(ImportedMessage(id=str(len(turns)), message=message, run_id=run_id))
    if turns:
        yield Session(session_id=name, observed_at=turns[0].message.observed_at, turns=tuple(turns))


def _is_external(message: Message, call: ToolCall | None, record: Mapping[str, Any]) -> bool:
    """Return whether a tool's result is external text."""
    call = call or message.tool
    assert call is not None
    details = as_object(record.get("details"))
    return brings_external_text(call.name, call.arguments, message.content, details)


_HEADING: Final = re.compile(r"#+\s+(.*)")
_SPEAKER_LINE: Final = re.compile(r"([^\W\d_][\w .'\u2019-]{0,40}?)\s*:\s+(\S.*)")
_ROLES: Final[Mapping[str, Role]] = {
    **dict.fromkeys(("user", "human", "me"), "user"),
    **dict.fromkeys(("assistant", "ai", "bot"), "assistant"),
    "system": "system",
}


def read_text(path: Path, _skip: SkipCallback) -> Iterator[Session]:
    """Yield the sessions of a text with lines `Speaker: words`."""
    number, when, dated = 1, None, False
    messages: list[Message] = []

    def session() -> Session:
        turns = tuple(
            ImportedMessage(id=str(i), message=message) for i, message in enumerate(messages)
        )
        return Session(session_id=f"{path.stem}-{number}", observed_at=when, turns=turns)

    for line_number, line in read_text_lines(path):
        heading = _HEADING.fullmatch(line.strip())
        if messages and (heading or not (dated or line.strip())):
            yield session()
            number += 1
            messages.clear()
        if heading:
            dated = True
            when = parse_timestamp(heading[1], f"{path}:{line_number}")
        elif spoken := _SPEAKER_LINE.fullmatch(line.rstrip()):
            messages.append(_spoken_message(spoken[1], spoken[2]))
        elif messages and line.strip():
            last = messages[-1]
            messages[-1] = replace(last, content=f"{last.content}\n{line.strip()}")
        elif line.strip():
            raise ImportFileError(
                f"{path}:{line_number}: expected 'Speaker: words' or '# 2026-03-14', "
                f"found {line.strip()!r:.60}"
            )
    if messages:
        yield session()


def _spoken_message(name: str, words: str) -> Message:
    role = _ROLES.get(name.casefold())
    if role is None:
        return Message(role="user", content=words, speaker=name)
    return Message(role=role, content=words)


def _locomo_turn(record: Any, location: str) -> ImportedMessage:
    text = require_field(record, "text", str, location)
    if record.get("blip_caption"):
        text = f"{text} [image: {record['blip_caption']}]".strip()
    speaker = require_field(record, "speaker", str, location)
    message = Message(role="user", content=text, speaker=speaker)
    return ImportedMessage(id=require_field(record, "dia_id", str, location), message=message)


def _chat_turns(messages: list[Any], prefix: str, location: str) -> tuple[ImportedMessage, ...]:
    try:
        parsed = parse_messages(in_time(messages))
    except _MESSAGE_ERRORS as error:
        raise ImportFileError(f"{location}, {error}") from error
    return tuple(
        ImportedMessage(id=f"{prefix}{index}", message=m) for index, m in enumerate(parsed)
    )
