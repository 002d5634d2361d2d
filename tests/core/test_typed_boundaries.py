"""What is acknowledged can be read back: arguments of the wrong type are refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from memtier_plugin import FactDraft, MemTier, Message, RecallRequest, Source, ToolCall
from memtier_plugin.core import plugins
from memtier_plugin.core.errors import Closed, MessageError
from memtier_plugin.server.methods import Methods
from memtier_plugin.server.parameters import BadParams

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
        ("recall", {"query": "pump", "k": 0}, "k"),
        ("recall", {"query": "pump", "k": 10**9}, "k"),
        ("recall", {"query": "pump", "token_budget": -5}, "token_budget"),
        ("recall", {"query": "pump", "deadline_ms": -1}, "deadline_ms"),
        ("recall", {"query": "pump", "request": RecallRequest(k=-1)}, "k"),
        ("consolidate", {"limit": 0}, "limit"),
        ("events", {"kinds": ["recall"], "limit": -3}, "limit"),
        ("purge", {"wanted": 5}, "wanted"),
        ("purge", {"wanted": range(3)}, "wanted"),
        ("recall", {"query": "pump", "request": range(3)}, "request"),
        ("consolidate", {"extractor": "../../x"}, "extractor"),
        ("recall", {"query": "pump", "request": {"k": 4}}, "request"),
        ("ask", {"question": ["why"]}, "question"),
        ("forget", {"session": 5}, "session"),
        ("explain", {"recall_id": 5}, "recall_id"),
    ],
)
def test_an_argument_of_another_type_or_out_of_bounds(
    memory: MemTier, call: str, arguments: dict[str, Any], named: str
) -> None:
    """It is refused with its name, and nothing is written."""
    with pytest.raises(MessageError, match=rf"^{named}: "):
        getattr(memory, call)(**arguments)
    assert not [path for path in memory.folder.rglob("*.jsonl") if path.stat().st_size]


def test_a_closed_memory_says_so(home: Path) -> None:
    """After `close` every call raises Closed, also one whose service had been made before."""
    memory = MemTier.open(home, "p", settings={"embedding.model": "none"})
    memory.record([USER], session_id="s")
    memory.recall("pump")
    memory.facts()
    memory.close()
    memory.close()
    for call in (
        lambda: memory.recall("pump"),
        lambda: memory.record([USER], session_id="s"),
        lambda: memory.remember("The pump is green."),
        lambda: memory.ask("Which pump?"),
        lambda: memory.entries(),
        lambda: memory.facts(),
        lambda: memory.status(),
        lambda: memory.consolidate(),
    ):
        with pytest.raises(Closed, match=r"MemTier\.open"):
            call()


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


def test_the_context_of_a_tool_call(home: Path) -> None:
    """A host's context with a value of another type is refused by name, as a hook's is."""
    served: list[object] = []
    methods = Methods(home, served.append)
    with pytest.raises(BadParams, match=r"^session_id is int, not str or null"):
        methods.tool("memory_search", {"session_id": 5}, {"query": "pump"})
    assert not served


def test_the_draft_of_a_plugin() -> None:
    """A fact that a plugin fills with values of another type never reaches the ledger."""
    source = Source(agent="main", session="s", entry="e")
    draft = FactDraft(subject="pump", relation="runs_at", value="40", text="t", sources=(source,))
    check = plugins._CHECKS["memtier_extract"]
    assert check([draft], {}) == [draft]
    with pytest.raises(MessageError, match=r"^value: "):
        check([draft, replace(draft, value=cast("str", 40))], {})
