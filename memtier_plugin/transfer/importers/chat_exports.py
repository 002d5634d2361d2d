"""Read conversation exports of ChatGPT and Claude: `conversations.json`, or the whole ZIP.

chatgpt   A conversation is a tree of messages, of which the branch last seen by the user is read.
          Hidden and empty nodes, custom instructions and the model's reasoning are left out;
          images and files are named; tool results get the role `tool`.
claude    A conversation is a list of messages; if they name their parents, the newest branch is
          read.  The text of an attachment has the origin `external`; tools as above.

An exchange is named by its question's id, so that importing a later export adds only what is new.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from memtier_plugin.core.errors import ImportFileError, MessageError
from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.ingest.messages import ImportedMessage, Session, flatten_content
from memtier_plugin.transfer.importers.reading import (
    SkipCallback,
    as_object,
    as_text,
    parse_timestamp,
    read_items,
)

CONVERSATIONS_STEM: Final = "conversations"
_HIDDEN_TYPES: Final = frozenset(
    {"user_editable_context", "model_editable_context", "thoughts", "reasoning_recap"}
)


class _MessageNode(NamedTuple):
    id: str
    message: Message


def read_chatgpt(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield the conversations of a ChatGPT export."""
    for location, chat in read_items(path, CONVERSATIONS_STEM):
        if not isinstance(chat, dict) or not isinstance(chat.get("mapping"), dict):
            skip(location, f"no conversation with a `mapping`: {chat!r:.60}")
            continue
        where = _titled_place(location, chat.get("title"))
        name = as_text(chat.get("conversation_id")) or as_text(chat.get("id"))
        if not name:
            skip(where, "it has no `id`")
            continue
        branch = list(walk_chatgpt_branch(chat, where, skip))
        yield from _session(f"chatgpt/{name}", branch, chat.get("create_time"), where, skip)


def walk_chatgpt_branch(
    chat: Mapping[str, Any], location: str, skip: SkipCallback
) -> Iterator[_MessageNode]:
    """Yield the messages of the branch last seen, from the root; replaced edits are left out."""
    mapping = chat["mapping"]
    path, seen = [], set[str]()
    key = chat.get("current_node")
    if not isinstance(key, str) or key not in mapping:
        key = _newest_leaf(mapping)
    while isinstance(key, str) and key in mapping and key not in seen:
        seen.add(key)
        path.append(key)
        key = as_object(mapping[key]).get("parent")
    for name in reversed(path):
        message = as_object(mapping[name]).get("message")
        if not isinstance(message, dict):
            continue  # the root, or a deleted message
        try:
            parsed = _chatgpt_message(message, f"{location}, message {name}")
        except (MessageError, ImportFileError) as error:
            skip(f"{location}, message {name}", str(error))
            continue
        if parsed:
            yield _MessageNode(as_text(message.get("id")) or name, parsed)


def _newest_leaf(mapping: Mapping[str, Any]) -> str | None:
    parents = {as_object(node).get("parent") for node in mapping.values()}
    leaves = [key for key in mapping if key not in parents]

    def made(key: str) -> float:
        time = as_object(as_object(mapping[key]).get("message")).get("create_time")
        return float(time) if isinstance(time, int | float) else 0.0

    return max(leaves, key=made, default=None)


def _chatgpt_message(message: Mapping[str, Any], location: str) -> Message | None:
    author, content = as_object(message.get("author")), as_object(message.get("content"))
    role, kind = author.get("role"), content.get("content_type")
    hidden = as_object(message.get("metadata")).get("is_visually_hidden_from_conversation")
    if hidden or kind in _HIDDEN_TYPES or role not in ("user", "assistant", "tool"):
        return None
    parts = content.get("parts")
    texts = [_part_text(piece) for piece in parts] if isinstance(parts, list) else []
    for name in ("text", "result", "content"):
        if not texts and isinstance(content.get(name), str):
            texts = [content[name]]
    text = "\n".join(piece for piece in texts if piece.strip())
    when = parse_timestamp(message.get("create_time"), location)
    recipient = message.get("recipient")
    if role == "assistant" and isinstance(recipient, str) and recipient != "all":
        call = ToolCall(name=recipient, arguments=text)
        return Message(role="assistant", content="", observed_at=when, tool_calls=(call,))
    if not text.strip():
        return None
    if role == "tool":
        tool = ToolCall(name=as_text(author.get("name")) or "tool")
        return Message(role="tool", content=text, observed_at=when, tool=tool)
    return Message(role=role, content=text, observed_at=when)


def _part_text(piece: Any) -> str:
    if isinstance(piece, str):
        return piece
    if isinstance(as_object(piece).get("text"), str):  # a voice transcript
        return str(piece["text"])
    kind = as_text(as_object(piece).get("content_type"))
    return f"[{kind.removesuffix('_asset_pointer').removesuffix('_pointer')}]" if kind else ""


def read_claude(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield the conversations of a Claude export."""
    for location, chat in read_items(path, CONVERSATIONS_STEM):
        if not isinstance(chat, dict) or not isinstance(chat.get("chat_messages"), list):
            skip(location, f"no conversation with `chat_messages`: {chat!r:.60}")
            continue
        where = _titled_place(location, chat.get("name"))
        name = as_text(chat.get("uuid"))
        if not name:
            skip(where, "it has no `uuid`")
            continue
        nodes: list[_MessageNode] = []
        for number, message in _claude_branch(chat["chat_messages"], where, skip):
            spot = f"{where}, message {number}"
            try:
                nodes += _claude_messages(message, str(number), spot)
            except (MessageError, ImportFileError) as error:
                skip(spot, str(error))
        yield from _session(f"claude/{name}", nodes, chat.get("created_at"), where, skip)


def _claude_branch(
    messages: list[Any], location: str, skip: SkipCallback
) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the messages with their indexes: all, or the newest branch of a tree."""
    by_id: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for number, message in enumerate(messages):
        if not isinstance(message, dict):
            skip(f"{location}, message {number}", f"not a message: {message!r:.60}")
            continue
        by_id[as_text(message.get("uuid")) or f"#{number}"] = number, message
    parents = [message.get("parent_message_uuid") for _, message in by_id.values()]
    inside = [parent for parent in parents if parent in by_id]
    if len(inside) == len(set(inside)):  # no message has two answers
        return [*by_id.values()]
    path, key = [], next(reversed(by_id))
    while key in by_id:
        path.append(by_id.pop(key))
        key = str(path[-1][1].get("parent_message_uuid"))
    return path[::-1]


def _claude_messages(
    message: Mapping[str, Any], name: str, location: str
) -> Iterator[_MessageNode]:
    sender = message.get("sender")
    if sender not in ("human", "assistant"):
        raise MessageError(f"the sender {sender!r} is neither 'human' nor 'assistant'")
    when = parse_timestamp(message.get("created_at"), location)
    name = as_text(message.get("uuid")) or name
    blocks = message.get("content")
    blocks = [b for b in blocks if isinstance(b, dict)] if isinstance(blocks, list) else []
    texts = [str(b["text"]) for b in blocks if b.get("type") == "text" and as_text(b.get("text"))]
    text = "\n".join(texts) or as_text(message.get("text"))
    files = [*_as_objects(message.get("attachments")), *_as_objects(message.get("files"))]
    named = "".join(f"\n[file: {as_text(f.get('file_name')) or 'unnamed'}]" for f in files)
    calls = tuple(
        ToolCall(
            name=as_text(block.get("name")) or "tool",
            call_id=as_text(block.get("id")) or None,
            arguments=json.dumps(block.get("input"), ensure_ascii=False),
        )
        for block in blocks
        if block.get("type") == "tool_use"
    )
    role: Final = "user" if sender == "human" else "assistant"
    if f"{text}{named}".strip() or calls:
        content = f"{text}{named}".strip()
        yield _MessageNode(
            name, Message(role=role, content=content, observed_at=when, tool_calls=calls)
        )
    for block in blocks:
        if block.get("type") == "tool_result" and (result := flatten_content(block.get("content"))):
            failed = block.get("is_error")
            tool = ToolCall(
                name=as_text(block.get("name")) or "tool",
                call_id=as_text(block.get("tool_use_id")) or None,
                ok=not failed if isinstance(failed, bool) else None,
            )
            yield _MessageNode(
                name, Message(role="tool", content=result, observed_at=when, tool=tool)
            )
    for file in files:
        if extracted := as_text(file.get("extracted_content")):
            tool = ToolCall(name="attachment")
            yield _MessageNode(
                name,
                Message(
                    role="tool", content=extracted, observed_at=when, origin="external", tool=tool
                ),
            )


def _session(
    name: str, nodes: list[_MessageNode], started: Any, location: str, skip: SkipCallback
) -> Iterator[Session]:
    try:
        when = parse_timestamp(started, location)
    except ImportFileError as error:
        skip(location, str(error))
        when = None
    turns = tuple(
        ImportedMessage(
            id=node.id,
            message=node.message,
            run_id=f"{name}:{node.id}" if node.message.role == "user" else None,
        )
        for node in nodes
    )
    if turns:
        yield Session(session_id=name, observed_at=when, turns=turns)


def _titled_place(location: str, title: Any) -> str:
    return f"{location} ({title[:40]!r})" if isinstance(title, str) and title else location


def _as_objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
