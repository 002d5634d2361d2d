"""The boundary is strict: any call is answered or refused by name, and what is written is read.

Calls of the Python API, of the services behind it and of JSON-RPC are made with arguments that fit,
that nearly fit, and that nobody would expect.
"""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from memtier_plugin import FactDraft, MemoryPool, MemTier, RecallRequest, Selection
from memtier_plugin.core.errors import Closed, MemTierError, MessageError
from memtier_plugin.core.records import Entry, Message
from memtier_plugin.server.dispatch import Dispatcher
from tests.builders import user_message
from tests.proofs.checks import show

SEED = int(os.environ.get("TEST_MEMTIER_SEED", "1"))
CALLS = int(os.environ.get("TEST_MEMTIER_CALLS", "1000"))
SETTINGS = {"embedding.model": "none", "consolidation.probes": 0, "ledger.durability": "os"}

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
MOMENTS: list[Any] = [
    *(NOW, NOW.replace(tzinfo=None), datetime.min, datetime.max),
    *(datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))),
]
DEEP: dict[str, Any] = {}
for _ in range(3_000):
    DEEP = {"a": DEEP}
ODD: list[Any] = [
    *(DEEP, [DEEP], 10**5_000, -(2**70), "../../../x", "/dev/null/x", "a\x00b", "\udcff"),
    *(None, True, 0, 1, -1, 3, 10**30, 0.0, -1.5, math.nan, math.inf, "", "x", "\x00", "\ud800"),
    *(
        "x" * 500,
        "main",
        "../..",
        b"bytes",
        b"\xff",
        [],
        [1],
        [None],
        ["a"],
        ("a", 1),
        {},
        {"a": 1},
    ),
    *(
        {"a": 1},
        {"role": "user"},
        [[]],
        [{}],
        {1: 2},
        {"a"},
        object(),
        int,
        print,
        "inject",
        "2026-01-05",
    ),
    *("2026-01-05T09:00:00Z", "9999-99-99", 1e400, -0.0, 2**63, "rules", "zzz", range(3)),
    *MOMENTS,
]
MESSAGES: list[Any] = [
    [user_message("I live in Porto.")],
    [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {}}]}],
    [{"role": "tool", "content": "x", "tool_call_id": 5, "exit_code": "1", "ok": "yes"}],
    [{"role": "user", "content": [{"type": "text", "text": 5}], "timestamp": "x"}],
    [{"role": "user", "content": "x", "timestamp": 10**18}],
    [{"role": "user", "content": "x", "name": ["a"], "origin": "nobody"}],
    [{"role": "robot", "content": "x"}],
    [{"role": "assistant", "content": "x", "tool_calls": [{"function": {"arguments": DEEP}}]}],
    [{"role": "tool", "content": "x", "exit_code": 10**5_000}],
    [{"role": DEEP, "content": [DEEP]}],
    [Message(role="user", content="I like tea.")],
    [Message(role="user", content=5, speaker=[1])],  # type: ignore[arg-type]
    [Message(role="user", content="x", observed_at="now")],  # type: ignore[arg-type]
    [5],
    "text",
]
FITTING: Mapping[str, list[Any]] = {
    "messages": MESSAGES,
    "session_id": ["s1", "s\x00", "\ud800"],
    "session": ["s1", "s2"],
    "observed_at": [NOW, *MOMENTS],
    "at": [NOW, *MOMENTS],
    "since": [NOW, *MOMENTS],
    "until": MOMENTS,
    "moment": [NOW, *MOMENTS],
    "purpose": ["search", "inject", "ask"],
    "depth": ["mixed", "auto"],
    "ids": [["x"], ["main"], []],
    "recall_ids": [["x"], []],
    "query": ["Where do I live?", "x " * 300],
    "text": ["The gate is green."],
    "question": ["Where do I live?"],
    "extractor": ["rules"],
    "kinds": [["recall"], ["credit", "forget"]],
    "context": [
        {
            "platform": {},
            "sessionKey": [],
            "agentId": 5,
            "session_id": {},
            "workspaceDir": "/dev/zero",
        },
        {"agent_id": "main", "session_id": "s1"},
        {"agent_id": 5},
        {"agent_id": "a"},
    ],
    "event": [
        {"platform": [], "messages": 5, "history": {"a": 1}, "usage": "x", "tool_input": [{}]},
        {"prompt": "Where do I live?"},
        {"messages": MESSAGES[0]},
        {"prompt": 5},
        {"messages": [5]},
    ],
    "name": ["agent_end", "before_prompt_build", "memory_search", "memory_store", "memory_forget"],
    "arguments": [{"query": "x"}, {"text": "x"}, {"id": "x"}, {"query": 5}],
    "edit": [{"x": "y"}, {"x": 5}],
    "host": ["openclaw", "hermes"],
    "k": [1, 5],
    "limit": [1, 5],
    "token_budget": [100, 600],
}
# What takes a lock for long, deletes what the others need, or is not the memory's own.
LEFT_OUT = frozenset(
    {
        *("open", "close", "pause", "resume", "reindex", "record_sessions", "count_new"),
        *("record_again", "catch_up", "repair", "as_of"),
    }
)


RECORDS: tuple[Callable[..., Any], ...] = (FactDraft, Selection, RecallRequest, MemoryPool)


def methods_of(thing: object) -> list[tuple[str, Callable[..., Any]]]:
    """Return the public methods of an object with their names."""
    kind = type(thing)
    return [
        (f"{kind.__name__}.{name}", getattr(thing, name))
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in LEFT_OUT
    ]


@st.composite
def arguments(draw: st.DrawFn, method: Callable[..., Any]) -> dict[str, Any]:
    """Draw the arguments of a call: most parameters, mostly of a fitting form."""
    drawn = {}
    for name, parameter in parameters_of(method).items():
        required = parameter is inspect.Parameter.empty
        if required or draw(st.integers(0, 2)) == 0:
            fitting = FITTING.get(name)
            odd = draw(st.integers(0, 3)) == 0 or not fitting
            drawn[name] = draw(st.sampled_from(ODD if odd or fitting is None else fitting))
    if draw(st.integers(0, 19)) == 0:
        drawn["nosuch"] = 1
    return drawn


def parameters_of(method: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters of a method with their defaults, options of a `TypedDict` too."""
    from typing import Unpack, get_args, get_origin, get_type_hints

    defaults: dict[str, Any] = {}
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            defaults[name] = parameter.default
            continue
        hint = get_type_hints(method).get(name)
        if get_origin(hint) is Unpack:
            defaults |= dict.fromkeys(get_type_hints(get_args(hint)[0]))
    return defaults


class World:
    """A memory that all calls share, a server beside it, and what was acknowledged."""

    def __init__(self, home: Path) -> None:
        self.memory = MemTier.open(home, "p", settings=SETTINGS)
        self.server = Dispatcher(home, scheduler=False)
        self.memory.record([user_message("I live in Lisbon.")], session_id="s1", run_id="r1")
        self.memory.consolidate(extractor="rules")
        self.acknowledged: set[str] = set()
        self.calls = self.refused = 0
        memory = self.memory
        things = (memory, memory.knowledge, memory.people, memory.history)
        self.methods = [pair for thing in things for pair in methods_of(thing)]
        self.methods += [(record.__name__, record) for record in RECORDS]
        entry = memory.record([user_message("The gate is green.")], session_id="s2")[0]
        self.draft = {"subject": "gate", "relation": "is", "value": "green", "text": "It is green.",
                      "sources": (entry.source,)}  # fmt: skip
        self.rpc = [
            (name, getattr(self.server.methods, name))
            for name in ("hook", "tool", "command", "recall", "ask", "explain", "record", "end_run",
                         "remember", "forget", "unforget", "facts", "fact", "review", "status")
        ]  # fmt: skip

    def call(self, name: str, method: Callable[..., Any], given_arguments: dict[str, Any]) -> None:
        """Make a call of the API: it answers, or raises one of our errors."""
        self.calls += 1
        try:
            answer = method(**given_arguments)
            if isinstance(answer, Iterator):
                answer = list(answer)
        except MemTierError as error:
            self.refused += 1
            assert str(error)
            return
        except Exception as error:
            if given_arguments.get("progress") is int:
                return  # the caller's own callback raised it
            raise AssertionError(f"{name}({given_arguments!r}) raised {error!r}") from error
        answer = getattr(answer, "entries", answer)
        if name == "MemTier.record" or name == "MemTier.end_run":
            self.acknowledged |= {entry.id for entry in answer if isinstance(entry, Entry)}

    def add_fact(self, changed: dict[str, Any]) -> None:
        """Add a fact of a draft with these values: it is refused, or can be read."""
        self.calls += 1
        try:
            facts = self.memory.add_facts([FactDraft(**{**self.draft, **changed})])
        except MemTierError:
            self.refused += 1
            return
        known = {
            view.fact.id for view in self.memory.knowledge.person.facts(include_superseded=True)
        }
        assert {fact.id for fact in facts} <= known, changed

    def request(self, name: str, parameters: Any) -> None:
        """Make a call by JSON-RPC: it has an answer, which is no internal error."""
        self.calls += 1
        try:
            line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": name, "params": parameters})
        except (TypeError, ValueError, RecursionError):
            return  # not JSON at all
        answer = self.server.answer(json.loads(line), self.server.methods)
        assert answer is not None
        json.dumps(answer, default=str)
        error = answer.get("error")
        self.refused += error is not None
        assert not error or error["code"] != -32603, f"{name}({parameters!r}): {error}"
        if name in ("record", "end_run") and not error and (parameters or {}).get("project") == "p":
            self.acknowledged |= {entry["id"] for entry in answer["result"]["entries"]}

    def check(self) -> None:
        """Look whether every line can be read, and everything acknowledged is among them."""
        unreadable = [f for f in self.memory.doctor() if ".jsonl" in f.where and f.level != "ok"]
        assert unreadable == []
        log = self.memory.store.log.entries()
        assert self.acknowledged <= {logged.entry.id for logged in log if logged.entry}

    def close(self) -> None:
        """Close the memory and the server."""
        self.memory.close()
        self.server.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Return the memory that calls are made on."""
    made = World(tmp_path / "home")
    yield made
    made.close()


def make_calls(world: World, number: int) -> None:
    """Make so many calls, drawn by the seed, and look at what they left."""
    rpc = st.sampled_from(world.rpc).flatmap(
        lambda pair: st.tuples(st.just("rpc"), st.just(pair), arguments(pair[1]))
    )
    api = st.sampled_from(world.methods).flatmap(
        lambda pair: st.tuples(st.just("api"), st.just(pair), arguments(pair[1]))
    )

    names = st.sampled_from([field.name for field in fields(FactDraft)])
    values = st.dictionaries(names, st.sampled_from(ODD), min_size=1, max_size=2)
    fact = st.tuples(st.just("fact"), st.just(("", None)), values)

    @seed(SEED)
    @settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(api, rpc, fact))
    def call(drawn: Any) -> None:
        way, (name, method), given_arguments = drawn
        if way == "fact":
            world.add_fact(given_arguments)
        elif way == "api":
            world.call(name, method, given_arguments)
        else:
            world.request(name, {"project": "p", **given_arguments, "home": None})

    call()
    world.check()
    show("any call", {"calls": world.calls, "refused": world.refused, "raw exceptions": 0})


def test_any_call(world: World) -> None:
    """Arguments of any kind are answered or refused; a sample of the calls."""
    make_calls(world, 150)


@pytest.mark.slow
def test_thousands_of_calls(world: World) -> None:
    """TEST_MEMTIER_CALLS [1000] calls each of Python, RPC and new facts, of a seed: none raw."""
    make_calls(world, 3 * CALLS)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"home": 5}, {"project": 5}, {"agent_id": None}, {"settings": 3}, {"workspace": "x"}),
        *({"create": "yes"}, {"clock": 5}),
    ],
)
def test_opening(home: Path, wrong: dict[str, Any]) -> None:
    """What a memory is opened with is checked like any argument, and named."""
    with pytest.raises(MessageError, match=next(iter(wrong))):
        MemTier.open(**{"home": home, **wrong})
    assert not home.exists()


def test_recalls_of_another_agent_earn_no_credit(home: Path) -> None:
    """Who names another agent's recall when its run ends does not move that agent's weights."""
    with MemTier.open(home, "p", "ann", SETTINGS) as anns:
        anns.record([user_message("The key is under the blue pot.")], session_id="s1")
        recall = anns.recall("Where is the key?", purpose="inject", session_id="s2", run_id="r1")
        assert recall.injected
    answer = {"role": "assistant", "content": "The key is under the blue pot."}
    done = {"role": "tool", "name": "shell", "content": "unlocked", "exit_code": 0, "ok": True}
    messages = [user_message("Where is the key?"), done, answer]
    with MemTier.open(home, "p", "bob", SETTINGS) as bobs:
        ended = bobs.end_run(messages, session_id="s3", recall_ids=[recall.id])
        assert not ended.credits
    with MemTier.open(home, "p", "ann", SETTINGS) as anns:
        assert anns.end_run(messages, session_id="s2", recall_ids=[recall.id], run_id="r1").credits


def test_a_closed_memory_refuses(home: Path) -> None:
    """After `close` a call says that the memory is closed."""
    memory = MemTier.open(home, "p", settings=SETTINGS)
    memory.close()
    for call in (
        lambda: memory.recall("x"),
        lambda: memory.record([], session_id="s"),
        memory.facts,
    ):
        with pytest.raises(Closed):
            call()
