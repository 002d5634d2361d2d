"""What is acknowledged can be read back: arguments of the wrong type are refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin import MemTier, Message, ToolCall
from memtier_plugin.core.errors import MessageError

USER = {"role": "user", "content": "The pump runs at 40 psi."}


@pytest.fixture
def memory(home: Path) -> Iterator[MemTier]:
    """Return a memory that is empty."""
    with MemTier.open(home, "p", settings={"embedding.model": "none"}) as memory:
        yield memory


@pytest.mark.parametrize(
    ("call", "arguments", "named"),
    [
        ("record", {"messages": [USER], "session_id": 7}, "session_id"),
        ("record", {"messages": [USER], "session_id": None}, "session_id"),
        ("record", {"messages": [USER], "session_id": "s", "sender": 5}, "sender"),
        ("record", {"messages": [USER], "session_id": "s", "run_id": ["r"]}, "run_id"),
        ("record", {"messages": [USER], "session_id": "s", "parent": {"run": "r"}}, "parent"),
        ("record", {"messages": [USER], "session_id": "s", "observed_at": 5}, "observed_at"),
        ("end_run", {"messages": [USER], "session_id": "s", "run_id": 5}, "run_id"),
        ("end_run", {"messages": [USER], "session_id": "s", "recall_ids": "abc"}, "recall_ids"),
        ("end_run", {"messages": [USER], "session_id": "s", "recall_ids": [5]}, "recall_ids"),
        ("remember", {"text": 5}, "text"),
        ("remember", {"text": "tea", "sender": 5}, "sender"),
        ("recall", {"query": "pump", "run_id": ["r"], "purpose": "inject"}, "run_id"),
        ("recall", {"query": "pump", "session_id": 5}, "session_id"),
        ("recall", {"query": "pump", "sender": 5}, "sender"),
        ("recall", {"query": "pump", "k": "4"}, "k"),
        ("recall", {"query": "pump", "at": "2026-01-01"}, "at"),
        ("recall", {"query": "pump", "depth": "deep"}, "depth"),
        ("recall", {"query": "pump", "purpose": "injct"}, "purpose"),
        ("recall", {"query": None}, "query"),
        ("ask", {"question": ["why"]}, "question"),
        ("forget", {"session": 5}, "session"),
        ("explain", {"recall_id": 5}, "recall_id"),
    ],
)
def test_an_argument_of_another_type(
    memory: MemTier, call: str, arguments: dict[str, Any], named: str
) -> None:
    """It is refused with its name, and nothing is written."""
    with pytest.raises(MessageError, match=rf"^{named}: "):
        getattr(memory, call)(**arguments)
    assert not [path for path in memory.folder.rglob("*.jsonl") if path.stat().st_size]


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (Message(role="user", content=5), "content"),  # type: ignore[arg-type]
        (Message(role="owner", content="c"), "role"),  # type: ignore[arg-type]
        (Message(role="user", content="c", speaker=5), "speaker"),  # type: ignore[arg-type]
        (Message(role="user", content="c", origin="web"), "origin"),  # type: ignore[arg-type]
        (Message(role="tool", content="c", tool=ToolCall(name=[1])), "tool.name"),  # type: ignore[arg-type]
        (Message(role="tool", content="c", tool="shell"), "tool"),  # type: ignore[arg-type]
    ],
)
def test_a_message_with_a_field_of_another_type(
    memory: MemTier, message: Message, named: str
) -> None:
    """It is refused with its place and the field's name, and nothing is written."""
    with pytest.raises(MessageError, match=rf"^message 1: {named}: "):
        memory.record([USER, message], session_id="s")
    assert not [path for path in memory.folder.rglob("*.jsonl") if path.stat().st_size]


def test_what_is_acknowledged_is_read_back(memory: MemTier) -> None:
    """Every entry that `record` returns is found again in the ledger, equal to what it returned."""
    odd = [USER, {**USER, "content": "\ud83d", "name": "\udc00"}, {**USER, "timestamp": 1e12}]
    entries = memory.record(odd, session_id="\ud83d", run_id="", sender="", parent="\n")
    assert [*memory.entries()] == entries
    assert memory.store.reader().bad_lines() == []
