"""Read conversations from files, for `memtier import` and `memtier bench`.

locomo       a LoCoMo file: samples with numbered, dated sessions between two people.  Both are
             people, so both speak as role `user`, told apart by `speaker`; an image's caption is
             appended as ``[image: caption]``.
longmemeval  a LongMemEval file: items, each with a haystack of dated chat sessions.
openai       JSON, or JSON Lines with a conversation a line: a list of chat messages, an object
             with `messages` (and optionally `id`, `created_at`), or a conversation of ChatGPT's.
openclaw     a session transcript (JSON Lines), or a captured `agent_end` payload.  Summaries made
             by compaction are skipped, as nobody said them.
chatgpt, claude, openclaw-memory, hermes-memory, mem0
             see `chat_exports` and `memories`; anything else in such a file is skipped
             and reported.
text         lines ``Speaker: words``.  A line that is indented, or has no speaker, continues the
             message before it.  A heading ``# 2026-03-14 09:30`` (ISO, UTC unless it says
             otherwise) starts a session of that date; up to the first heading an empty line does.
             User, Human and Me speak as `user`, Assistant, AI and Bot as `assistant`, System as
             `system`; any other name is a person: role `user` with that speaker.

Every function raises ImportFileError, which names the file, the location and what was expected.
Formats of lines are read lazily, session by session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import ImportFileError, MessageError
from memtier_plugin.core.records import Message, Role, ToolCall
from memtier_plugin.ingest.messages import ImportedMessage, Session, parse_message, parse_messages
from memtier_plugin.transfer.importers.chat_exports import (
    read_chatgpt,
    read_claude,
    walk_chatgpt_branch,
)
from memtier_plugin.transfer.importers.memories import (
    read_hermes_memory,
    read_mem0,
    read_openclaw_memory,
)
from memtier_plugin.transfer.importers.reading import (
    SkipCallback,
    as_object,
    in_time,
    load_json,
    parse_date,
    parse_timestamp,
    read_documents,
    read_text_lines,
    require_field,
)
from memtier_plugin.trust.origins import brings_external_text

_MESSAGE_ERRORS: Final = (MessageError, ValueError, OverflowError)  # the last two: no such time


def _ignore_skipped(location: str, why: str) -> None:
    """Ignore what is left out."""


def read_transcript(
    path: Path, format: str, skip: SkipCallback = _ignore_skipped
) -> Iterator[Session]:
    """Yield the sessions of a file.

    Args:
        path: the file; for formats of several files, the folder or ZIP.
        format: one of `FORMATS`, described at the top of this module.
        skip: called with the location of what is left out, and the reason.

    Raises:
        ImportFileError: no such format; the file cannot be read or is not of that format.
    """
    try:
        read = FORMATS[format]
    except KeyError:
        names = ", ".join(FORMATS)
        raise ImportFileError(f"unknown format {format!r}; one of: {names}") from None
    empty = True
    for session in read(path, skip):
        empty = False
        yield session
    if empty:
        raise ImportFileError(f"{path}: no messages in it that format {format!r} knows")


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
    """Return an OpenClaw message, or None for one that nobody said and no tool answered.

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
            # A command that failed has isError false; only its exit code tells.
            "exit_code": details.get("exitCode"),
        }
    elif chat["role"] not in ("user", "assistant"):
        return None  # compactionSummary, custom, bashExecution
    message = parse_message(chat)
    content = message.content.strip() or message.tool_calls or message.tool
    return message if content else None


def _read_locomo(path: Path, skip: SkipCallback) -> Iterator[Session]:
    for index, sample in enumerate(_require_list(load_json(path), "samples", str(path))):
        yield from parse_locomo_sample(sample, f"{path}: sample {index}")


def _read_longmemeval(path: Path, skip: SkipCallback) -> Iterator[Session]:
    for index, item in enumerate(_require_list(load_json(path), "items", str(path))):
        yield from parse_longmemeval_item(item, f"{path}: item {index}")


def _read_openai(path: Path, skip: SkipCallback) -> Iterator[Session]:
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


def _read_openclaw(path: Path, skip: SkipCallback) -> Iterator[Session]:
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
    """Tell whether a tool's result is what strangers wrote."""
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


def _read_text(path: Path, skip: SkipCallback) -> Iterator[Session]:
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


FORMATS: Final[Mapping[str, Callable[[Path, SkipCallback], Iterator[Session]]]] = {
    "chatgpt": read_chatgpt,
    "claude": read_claude,
    "hermes-memory": read_hermes_memory,
    "locomo": _read_locomo,
    "longmemeval": _read_longmemeval,
    "mem0": read_mem0,
    "openai": _read_openai,
    "openclaw": _read_openclaw,
    "openclaw-memory": read_openclaw_memory,
    "text": _read_text,
}


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


def _require_list(document: Any, of: str, location: str) -> list[Any]:
    if not isinstance(document, list):
        raise ImportFileError(f"{location}: expected a list of {of}, found {document!r:.60}")
    return document
