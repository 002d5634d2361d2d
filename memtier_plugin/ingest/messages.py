"""Parse or check messages, group them into exchanges, and derive their delivery keys."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, NamedTuple, cast, get_args

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.formats import from_iso
from memtier_plugin.core.records import Entry, Message, Origin, Role, ToolCall
from memtier_plugin.core.structs import check_fields
from memtier_plugin.ingest.message_objects import chat_messages

ROLE_ALIASES: Final = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}
_log = logging.getLogger("memtier")

_ORIGINS: Final = get_args(Origin)
_READ_KEYS: Final = frozenset(
    {
        *("role", "content", "name", "speaker", "observed_at", "timestamp", "origin"),
        *("tool_calls", "tool_call_id", "ok", "is_error", "isError", "exit_code"),
    }
)
# Metadata that chat APIs and hosts add to a message, and data sets to a turn. So are keys that
# begin with an underscore.
_IGNORED_KEYS: Final = frozenset(
    {
        *("id", "index", "type", "object", "status", "metadata", "created", "created_at"),
        *("api", "model", "provider", "usage", "logprobs", "responseId", "cache_control"),
        "cache_breakpoint",
        *("phase", "refusal", "annotations", "audio", "citations", "function_call", "details"),
        *("reasoning", "reasoning_content", "reasoning_details", "thinking"),
        *("finish_reason", "stop_reason", "stop_sequence", "stopReason"),
        *("errorCode", "errorMessage", "errorType"),
        *("toolCallId", "toolName", "tool_name", "tool_use_id", "api_content", "has_answer"),
    }
)
# Of a call in OpenAI's, LangChain's and Anthropic's format
_ARGUMENTS: Final = ("arguments", "args", "input")
_MOST_WARNINGS: Final = 100  # keys; with more, somebody is storing data in keys
_LARGEST_CODE: Final = 2**63 - 1
_LONGEST_KEY: Final = 80  # characters
_NONSENSE: Final = (
    MessageError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    OSError,  # a time that the platform cannot represent
)


_warned: set[str] = set()  # unknown keys that were logged


def unknown_keys(messages: Iterable[object]) -> tuple[str, ...]:
    """Return the keys of messages that are neither read nor known as metadata."""
    keys: dict[str, None] = {}
    for message in chain.from_iterable(map(chat_messages, messages)):
        if isinstance(message, Mapping):
            keys |= dict.fromkeys(
                str(key)
                for key in message
                if key not in _READ_KEYS | _IGNORED_KEYS and not str(key).startswith("_")
            )
    return tuple(keys)


def _warn_of_unknown_keys(message: object) -> None:
    """Log each unknown key once per process, rather than lose the turn."""
    for key in unknown_keys([message]):
        if key not in _warned and len(_warned) < _MOST_WARNINGS:
            _warned.add(key)
            _log.warning(
                "messages have an unknown key %r: it is ignored; the keys read are %s",
                key[:_LONGEST_KEY],
                ", ".join(sorted(_READ_KEYS)),
            )


def parse_messages(messages: Iterable[object]) -> tuple[Message, ...]:
    """Return each message as a Message; tool results get their tool's name from the call.

    Accepts a `Message`, an OpenAI chat message, or a type that `message_objects` supports, which
    may contain several messages or none.

    Tool results and files among the parts of a message become messages of their own: they are not
    the words of that message's speaker.

    Raises:
        MessageError: with the position of the invalid message.
    """
    if isinstance(messages, str | bytes | Mapping):
        raise MessageError("messages must be a list of messages, not a single one")
    parsed: list[Message] = []
    names: dict[str, str] = {}
    for position, message in enumerate(messages):
        try:
            if isinstance(message, Message):
                check_fields(message)
                parsed_parts = [message]
            else:
                parsed_parts = [
                    m for chat in chat_messages(message) for m in _split_parts(chat, names)
                ]
                _warn_of_unknown_keys(message)
        except _NONSENSE as error:
            raise MessageError(f"message {position}: {error}") from error
        except RecursionError as error:
            raise MessageError(f"message {position}: it is nested too deeply") from error
        for parsed_message in parsed_parts:
            names.update(
                {call.call_id: call.name for call in parsed_message.tool_calls if call.call_id}
            )
        parsed += parsed_parts
    return tuple(parsed)


def _split_parts(message: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[Message]:
    """Yield a message, preceded by the tool results and files among its parts."""
    content = message.get("content") if isinstance(message, Mapping) else None
    role = ROLE_ALIASES.get(str(message.get("role")).casefold()) if content else None
    if not isinstance(content, list) or role == "tool":
        yield parse_message(message, names)
        return
    spoken: list[Any] = []
    for part in content:
        if _is_result(part):
            text = part.get("content") if part.get("content") is not None else part.get("text")
            outcome = {
                key: part[key] for key in ("ok", "is_error", "exit_code", "name") if key in part
            }
            called = {"tool_call_id": part.get("tool_use_id"), "content": text}
            yield parse_message({**outcome, **called, "role": "tool"}, names)
        elif role == "user" and _is_attached(part):
            yield parse_message({**message, "content": [part], "origin": "external"}, names)
        else:
            spoken.append(part)
    if len(spoken) == len(content):
        yield parse_message(message, names)
        return
    rest = parse_message({**message, "content": spoken}, names)
    if rest.content or rest.tool_calls:
        yield rest


def parse_message(message: Mapping[str, Any], names: Mapping[str, str] | None = None) -> Message:
    """Return one OpenAI-style message: role, content (text or parts), name, tool calls.

    ``speaker``, or else ``name``, names the speaker; in a tool's result ``name`` is the tool.
    A tool's outcome is read from ``ok``, ``is_error`` or ``exit_code``; without any it is unknown.

    Raises:
        MessageError: the role is unknown, or the content is neither text nor parts.
    """
    if not isinstance(message, Mapping):
        raise MessageError(f"a {type(message).__name__}, not a mapping with role and content")
    role = ROLE_ALIASES.get(str(message.get("role", "")).casefold())
    if role is None:
        raise MessageError(f"the role {message.get('role')!r} is none of {', '.join(ROLE_ALIASES)}")
    origin = message.get("origin")
    if origin is not None and origin not in _ORIGINS:
        raise MessageError(f"the origin {origin!r} is none of {', '.join(_ORIGINS)}")
    tool = None
    if role == "tool":
        call_id = message.get("tool_call_id")
        name = message.get("name") or (names or {}).get(str(call_id)) or "tool"
        tool = ToolCall(
            name=str(name),
            call_id=str(call_id) if call_id is not None else None,
            ok=_outcome(message),
            exit_code=_exit_code(message),
        )
    speaker = message.get("speaker") or message.get("name")
    return Message(
        role=cast("Role", role),
        content=flatten_content(message.get("content")),
        speaker=str(speaker) if speaker and role != "tool" else None,
        observed_at=_parse_time(message.get("observed_at") or message.get("timestamp")),
        origin=cast("Origin | None", origin),
        tool=tool,
        tool_calls=tuple(_call(call) for call in message.get("tool_calls") or ()),
    )


def flatten_content(content: Any) -> str:
    """Return content as text: parts are joined by newlines, other media are named.

    Raises:
        MessageError: it is neither text, nor parts, nor empty.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, bytes):
        return content.decode("utf-8", "replace")
    if isinstance(content, Sequence):
        return "\n".join(text for part in content if (text := _part(part)))
    raise MessageError(f"the content is a {type(content).__name__}, neither text nor parts")


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise MessageError(f"a part of the content is a {type(part).__name__}")
    kind = str(part.get("type", "text"))
    if _is_result(part):
        return f"[{kind}]"
    if isinstance(part.get("text"), str):
        return str(part["text"])
    if kind in ("thinking", "reasoning", "toolCall", "tool_use"):
        return ""
    caption = part.get("alt") or part.get("caption")
    name = kind.removesuffix("_url").removeprefix("input_")
    return f"[{name}: {caption}]" if caption else f"[{name}]"


def _is_result(part: Any) -> bool:
    return isinstance(part, Mapping) and str(part.get("type", "")).endswith("tool_result")


def _is_attached(part: Any) -> bool:
    """Return whether a part contains text that its sender neither wrote nor spoke."""
    kind = str(part.get("type", "text")) if isinstance(part, Mapping) else "text"
    is_spoken = any(word in kind for word in ("text", "audio", "transcri", "speech"))
    return not is_spoken and isinstance(part.get("text"), str)


def _call(call: Any) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    if not isinstance(call, Mapping):
        raise MessageError(f"a tool call is a {type(call).__name__}")
    function = call.get("function") or call.get("custom") or call
    if not isinstance(function, Mapping):
        raise MessageError(f"a tool call's function is a {type(function).__name__}")
    arguments = next((function[key] for key in _ARGUMENTS if function.get(key) is not None), "")
    return ToolCall(
        name=str(function.get("name") or "tool"),
        call_id=str(call["id"]) if call.get("id") is not None else None,
        arguments=arguments
        if isinstance(arguments, str)
        else json.dumps(arguments, ensure_ascii=False, default=str),
    )


def _outcome(message: Mapping[str, Any]) -> bool | None:
    code = _exit_code(message)
    if code is not None and code != 0:
        return False  # hosts report an exit code of 3 with is_error false
    for name, good in (("ok", True), ("is_error", False), ("isError", False)):
        if isinstance(message.get(name), bool):
            return bool(message[name]) is good
    return None if code is None else True


def _exit_code(message: Mapping[str, Any]) -> int | None:
    code = message.get("exit_code")
    if not isinstance(code, int) or isinstance(code, bool):
        return None
    if abs(code) > _LARGEST_CODE:
        raise MessageError("exit_code: a number is out of range: beyond 64 bits")
    return code


def _parse_time(value: Any) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, int | float):  # seconds, or milliseconds as hosts write them
        return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    return from_iso(str(value))


# -- Sessions, exchanges and turns of a conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessage:
    """One message, with the name and run that its file states, if any."""

    id: str
    message: Message
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A question and everything up to the next question."""

    run_id: str
    turns: tuple[ImportedMessage, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the exchange."""
        return tuple(turn.message for turn in self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session of a file; `observed_at` is None if the file does not date it.

    ``sender`` limits recall to one person, if the file has sessions of several.
    """

    session_id: str
    observed_at: datetime | None
    turns: tuple[ImportedMessage, ...]
    sender: str | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages of the session, in order."""
        return tuple(turn.message for turn in self.turns)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The session as exchanges, whose ids stay the same when the file is read again.

        An exchange starts where a user speaks after an answer; between people, where whoever opened
        the session speaks after another.
        """
        groups: list[list[ImportedMessage]] = []
        for turn in self.turns:
            if not groups or _starts_exchange(
                turn.message, groups[-1][-1].message, self.turns[0].message
            ):
                groups.append([])
            groups[-1].append(turn)
        return tuple(
            Exchange(
                run_id=next((t.run_id for t in group if t.run_id), f"{self.session_id}:{number}"),
                turns=tuple(group),
            )
            for number, group in enumerate(groups, start=1)
        )


def _starts_exchange(message: Message, before: Message, first: Message) -> bool:
    if message.role != "user":
        return False
    if before.role != "user":
        return True
    return message.speaker == first.speaker and message.speaker != before.speaker


# -- Keys that recognise repeated deliveries of a message

PLACES: Final = 5_000  # positions in a run that are tried to recognise a key


class Delivery(NamedTuple):
    """Identifies a run's owner: hosts number runs per person, so one id may belong to several."""

    agent: str
    run: str
    sender: str | None = None

    @classmethod
    def of(cls, entry: Entry) -> Delivery:
        """Return the delivery that an entry came from."""
        return cls(entry.agent_id, entry.run_id, entry.sender)

    def key(self, position: int, message: Message) -> str:
        """Return the key of a message at a position of the run, by its role and content."""
        content = message.content.encode("utf-8", "surrogatepass")
        names = [name for name in self if name is not None]
        identity = json.dumps([*names, position, message.role]).encode()
        digest = identity + hashlib.blake2b(content).digest()
        return hashlib.blake2b(digest, digest_size=16).hexdigest()

    def place_key(self, position: int, role: str) -> str:
        """Return a key for a position, independent of the text there."""
        names = [name for name in self if name is not None]
        identity = json.dumps(["purged", *names, position, role]).encode()
        return f"purged:{hashlib.blake2b(identity, digest_size=16).hexdigest()}"


def key_after(entry: Entry) -> str:
    """Return a purged entry's new key: that of its position, found by its old key."""
    delivery, message = Delivery.of(entry), Message(role=entry.role, content=entry.content)
    for position in range(PLACES):
        if delivery.key(position, message) == entry.key:
            return delivery.place_key(position, entry.role)
    return entry.key  # another program's key, which tells us nothing
