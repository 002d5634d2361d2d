"""What is acknowledged can be read back: arguments of the wrong type are refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest

import memtier_plugin
from memtier_plugin import (
    FactDraft,
    MemoryPool,
    MemTier,
    Message,
    RecallRequest,
    RunContext,
    Selection,
    Source,
    ToolCall,
)
from memtier_plugin.core.errors import Closed, MessageError, SettingsError, UnsafePath
from memtier_plugin.core.hook_answers import CHECKS
from memtier_plugin.core.paths import make_ledger_folder
from memtier_plugin.server.methods import Methods
from memtier_plugin.server.requests import BadParams
from tests.cases import each_case
from tests.processes import run_memtier

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


OUTSIDE = (  # in UTC
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
)
SOURCE = Source(agent="main", session="s", entry="e")
DRAFT = {"subject": "pump", "relation": "runs_at", "value": "40", "text": "t", "sources": (SOURCE,)}


@each_case(
    ("record", "values", "named"),
    [
        *((FactDraft, {**DRAFT, "tier": tier}, "tier") for tier in ("../../../out", "none", 5)),
        (FactDraft, {**DRAFT, "personal": "\ud83d"}, "UTF-8"),
        (FactDraft, {**DRAFT, "sources": (5,)}, "sources"),
        (FactDraft, {**DRAFT, "valid_from": "2026-01-01"}, "valid_from"),
        *((FactDraft, {**DRAFT, "valid_from": moment}, "9999 UTC") for moment in OUTSIDE),
        *((Selection, {"since": moment}, "9999 UTC") for moment in OUTSIDE),
        *((FactDraft, {**DRAFT, "confidence": c}, "confidence|range") for c in (10**5000, "1")),
        (FactDraft, {**DRAFT, "span": (10**30, 2)}, "out of range"),
        (FactDraft, {**DRAFT, "kind": "x"}, "kind.*FactDraft has subject, relation"),
        (FactDraft, {}, "missing.*subject"),
        *((Selection, {name: 5}, name) for name in ("query", "ids", "since", "session", "run")),
        (Selection, {"who": "ann"}, "who.*Selection has ids, query"),
        *((RecallRequest, {name: "x"}, name) for name in ("k", "at", "depth")),
        (RecallRequest, {"k": -1}, "k"),
        (RecallRequest, {"limit": 3}, "limit"),
        *((MemoryPool, {"descriptors": value}, "descriptors") for value in ("x", 1, 2.5)),
        (MemoryPool, {"settings": 5}, "settings"),
        (MemoryPool, {"size": 5}, "size"),
    ],
)
def test_a_record_that_a_caller_fills_wrongly(
    record: Callable[..., object], values: dict[str, Any], named: str
) -> None:
    """It is refused where it is made: an unknown name, another type, what cannot be written."""
    with pytest.raises(MessageError, match=named):
        record(**values)


MADE = {"Answer", "Entry", "Fact", "Hit", "PromptAddition", "Recall", "Settings"}  # by MemTier


@each_case(
    "record",
    [
        record
        for name in sorted({*memtier_plugin.__all__} - MADE)
        if is_dataclass(record := getattr(memtier_plugin, name))
    ],
)
def test_a_name_that_a_record_has_not(record: type) -> None:
    """Every record that a caller fills refuses an unknown or missing name, and says its own."""
    named = next(field.name for field in fields(record))
    with pytest.raises(MessageError, match=rf"nosuch'; {record.__name__} has .*\b{named}\b"):
        record(nosuch=1)
    if any(field.default is field.default_factory for field in fields(record)):
        with pytest.raises(MessageError, match="missing"):
            record()


def test_a_fact_that_cannot_be_read_back(memory: MemTier) -> None:
    """A changed fact is checked like a draft, and no folder is made of its tier."""
    entry = memory.record([USER], session_id="s")[0]
    [fact] = memory.add_facts([FactDraft(**{**DRAFT, "sources": (entry.source,)})])
    lone = ({"value": "\ud83d"}, {"subject": "a\udcffb"}, {"quote": "\ud800"})
    empty = ({"sources": ()}, {"confidence": math.nan})
    for wrong in ({"tier": "../../out"}, {"id": 5}, *lone, *empty):
        with pytest.raises(MessageError):
            memory.add_facts([replace(fact, text="other", **wrong)])
    for wrong in (*lone, *empty):
        with pytest.raises(MessageError):
            memory.add_facts([FactDraft(**{**DRAFT, "sources": (entry.source,), **wrong})])
    assert memory.facts() == [fact]
    with pytest.raises(UnsafePath, match="not a ledger"):
        make_ledger_folder(memory.home, "p", "../../out")
    assert not [*memory.home.parent.glob("**/out")]


@pytest.mark.parametrize("home", ["/tmp/a\0b", "\ud83d", "/tmp/\ud83d"])
def test_a_home_that_no_system_has(home: str) -> None:
    """A home whose name holds a NUL, or what no file name can, is refused as a setting."""
    for opened in (
        MemTier.open,
        lambda home: MemoryPool().locate(RunContext(agent_id="a", home=home)),
    ):
        with pytest.raises(SettingsError, match="is not a valid folder"):
            opened(home)


@pytest.mark.parametrize("call", ["record", "end_run", "recall", "remember", "forget", "purge"])
def test_an_argument_that_there_is_not(memory: MemTier, call: str) -> None:
    """An unknown argument, or a missing one, is refused by name."""
    given = ("x",) if call == "recall" else ()
    with pytest.raises(MessageError, match="wherefrom"):
        getattr(memory, call)(*given, wherefrom="x")
    if call != "forget":
        with pytest.raises(MessageError, match="missing"):
            getattr(memory, call)()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "text",
    [
        *("My sister \ud83d lives in Porto.", "The staging host\ud800 is called heron."),
        *("I prefer tea \udcff to coffee.", "We decided to call the server \udcff heron."),
    ],
)
def test_half_a_character_becomes_a_fact_that_is_read(memory: MemTier, text: str) -> None:
    """A lone surrogate, where a host cut a text, fails no consolidation, list, purge or export."""
    memory.record([{"role": "user", "content": text}], session_id="s\ud83d", sender="ann\ud83d")
    assert memory.consolidate(extractor="rules").facts == 1
    assert len(memory.facts(include_superseded=True, sender="ann\ud83d")) == 1
    assert memory.remember(f"{text} Indeed.", session_id="\udcff").id
    assert [f for f in memory.doctor() if f.level == "error"] == []
    html = memory.home.parent / "html"
    run_memtier("--home", str(memory.home), "--project", "p", "export", "--html", html)
    assert memory.purge(Selection(query=text.split()[-1])).copies.entries == 2


def nested(depth: int) -> dict[str, Any]:
    """Return an object in an object, and so on."""
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "message",
    [
        {
            "role": "assistant",
            "tool_calls": [{"function": {"name": "f", "arguments": nested(100_000)}}],
        },
        {"role": nested(100_000), "content": "x"},
        {"role": "user", "content": "x", "name": nested(100_000)},
        {"role": "tool", "content": "x", "exit_code": 10**5000},
        {"role": "tool", "content": "x", "exit_code": -(2**64)},
        {"role": "tool", "content": "x", "tool_call_id": 10**5000},
        Message(role="tool", content="x", tool=ToolCall(name="f", exit_code=10**5000)),
    ],
    ids=["arguments", "role", "name", "code", "negative code", "call", "record"],
)
def test_what_is_nested_or_counted_beyond_reason(
    memory: MemTier, message: Message | dict[str, Any]
) -> None:
    """Nothing is nested so deep, and no number so large, that it raises anything else."""
    with pytest.raises(MessageError, match=r"^message 1: "):
        memory.record([USER, message], session_id="s")
    assert not [*memory.entries()]


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
    with pytest.raises(BadParams, match="session_id: expected str or None, got int"):
        methods.tool("memory_search", {"session_id": 5}, {"query": "pump"})
    assert not served


def test_the_draft_of_a_plugin() -> None:
    """A fact that a plugin fills with values of another type never reaches the ledger."""
    source = Source(agent="main", session="s", entry="e")
    draft = FactDraft(subject="pump", relation="runs_at", value="40", text="t", sources=(source,))
    check = CHECKS["memtier_extract"]
    assert check([draft], {}) == [draft]
    with pytest.raises(MessageError, match=r"^value: "):
        check([draft, replace(draft, value=cast("str", 40))], {})


@pytest.mark.parametrize(
    ("host", "context", "event"),
    [
        ("hermes", {"platform": []}, {}),
        ("hermes", {"platform": {}}, {"user_message": "x"}),
        ("openclaw", {"agentId": "main", "sessionKey": "k"}, {"prompt": "x", "messages": 5}),
    ],
)
def test_a_host_s_payload_of_another_form(
    home: Path, host: str, context: dict[str, Any], event: dict[str, Any]
) -> None:
    """What no host sends is refused as parameters are, whoever sends it."""
    methods = Methods(home, lambda context: None)
    with pytest.raises(BadParams, match=f"payload from {host}: "):
        methods.hook("before_prompt_build", context, event, host=host)


@pytest.mark.parametrize(
    "text",
    [
        *("project: ../../x", "home: /etc", "endpoints: {a: {base_url: http://evil.example}}"),
        *("retrieval: {k: .inf}", "retrieval: &r {k: *r}", "language: ../../etc/passwd"),
        *("!!python/object/apply:os.system ['id']", "x: " + "[" * 3_000, "# " + "x" * 100_000),
        "a: &a [1, 1]\n" + "".join(f"{c}: &{c} [*a, *a]\n" for c in "bcdefgh"),
    ],
)
def test_a_workspace_file_of_a_hostile_repository(home: Path, tmp_path: Path, text: str) -> None:
    """It is refused by file, and nothing is made of it: no home, no project, no endpoint."""
    (tmp_path / ".memtier.yaml").write_text(text)
    with pytest.raises(SettingsError, match=r"\.memtier\.yaml"):
        MemTier.open(home, workspace=tmp_path)
    assert not home.exists()
