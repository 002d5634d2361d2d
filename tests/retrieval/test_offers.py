"""An offer counts for nothing until its host acknowledges it, and then like any injected recall."""

from __future__ import annotations

import json
import threading
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core import plugins
from memtier_plugin.core.events import DeliverEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.hookspecs import hookimpl
from memtier_plugin.core.results import PromptEvent, Recall, RunContext, Shown
from memtier_plugin.hooks import host_hooks
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.retrieval.journal import LATE
from memtier_plugin.views.reading import follow_log
from tests.builders import START, Clock, say_each
from tests.processes import PATIENCE, run_memtier, wait_until

AGENT = "codex.main"
LINE = "The kiln is fired at 1240 degrees."
LATE_MARK = ", late)"
QUESTION = "How hot is the kiln fired?"
TOOL: list[dict[str, Any]] = [
    {"role": "user", "content": QUESTION},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "function": {"name": "fire", "arguments": '{"kiln": 1240}'}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "done", "exit_code": 0},
    {"role": "assistant", "content": "The kiln is fired at 1240 degrees now."},
]


@pytest.fixture
def clock() -> Clock:
    """Return a clock that goes on a little with each look at it."""
    clock = Clock()
    clock.later(days=1)
    return clock


@pytest.fixture
def memory(home: Path, clock: Clock) -> MemTier:
    """Return a memory that knows one line, of another session."""
    opened = MemTier.open(home, "p", AGENT, clock=clock)
    say_each(opened, LINE, session_id="old", observed_at=START)
    return opened


def offer(memory: MemTier, run: str = "r", purpose: Any = "offer") -> Recall:
    """Recall for a prompt of a session whose history keeps what was injected."""
    shown = Shown(since=START, injected=True)
    return memory.recall(QUESTION, session_id="s", run_id=run, purpose=purpose, shown=shown)


def repeats(memory: MemTier) -> bool:
    """Tell whether the session's next prompt gets the line again."""
    return bool(offer(memory, "another").injected)


def test_until_it_is_acknowledged(memory: MemTier) -> None:
    """A block that no host acknowledged earns its lines nothing, and the next prompt has them."""
    made = offer(memory)
    ended = memory.end_run(TOOL, session_id="s", run_id="r")
    assert (ended.credits, ended.reason, ended.uncredited[made.id]) == ({}, LATE, LATE)
    assert [hit.id for hit in offer(memory, "r2").injected] == [hit.id for hit in made.injected]
    memory.acknowledge(offer(memory, "r3").id)
    assert not offer(memory, "r4").injected
    assert memory.end_run(TOOL, session_id="s", run_id="r3").credits


def test_named_recalls(memory: MemTier) -> None:
    """A late recall is not credited by its name either, and the run's result says why."""
    made = offer(memory)
    late = memory.end_run(TOOL, session_id="s", run_id="x", recall_ids=[made.id])
    assert (late.credits, late.uncredited) == ({}, {made.id: LATE})
    memory.acknowledge(made.id)
    assert memory.end_run(TOOL, session_id="s", run_id="y", recall_ids=[made.id]).credits


def test_an_acknowledgement_holds_in_every_process(
    home: Path, clock: Clock, memory: MemTier
) -> None:
    """What one process offered, another may acknowledge and a third knows of and credits."""
    made = offer(memory)
    with MemTier.open(home, "p", AGENT, clock=clock) as second:
        assert repeats(second)
        second.acknowledge(made.id)
        second.acknowledge(made.id)  # once is enough
        second.catch_up()
        assert len(second.events(kinds=[DeliverEvent.KIND])) == 1
    with MemTier.open(home, "p", AGENT, clock=clock) as third:
        assert not repeats(third)
        assert third.end_run(TOOL, session_id="s", run_id="r").credits


def test_it_is_the_agents_own_to_say(home: Path, clock: Clock, memory: MemTier) -> None:
    """Another agent's word, or a word on what is no offer, changes and writes nothing."""
    made, search = offer(memory), memory.recall(QUESTION, session_id="s")
    with MemTier.open(home, "p", "codex.other", clock=clock) as other:
        other.acknowledge(made.id)
    for recall_id in (search.id, "01M842EQB5GE7BTT4EN4ABKPVB", ""):
        memory.acknowledge(recall_id)
    memory.catch_up()
    assert memory.events(kinds=[DeliverEvent.KIND]) == []
    assert memory.explain(made.id)["purpose"] == "offer"
    assert memory.explain(search.id)["purpose"] == "search"


def test_the_proof_is_in_the_journal(home: Path, memory: MemTier) -> None:
    """Explain, log and status call a recall late until the acknowledgement, then give its time.

    A new index tells the same.
    """
    item = offer(memory).injected[0].item.id
    made = offer(memory)
    memory.acknowledge(made.id)
    memory.catch_up()
    scope = ("--home", home, "--project", "p", "--agent", AGENT)

    def told() -> list[Any]:
        memory.catch_up()
        first, second = (memory.explain(e.id, item) for e in memory.events(kinds=["recall"]))
        assert second["why"]["said"] in first["why"]["said"] and LATE in first["why"]["said"]
        return [first["purpose"], second["purpose"], second["delivered"]] + [
            LATE in run_memtier(*scope, "explain", each["id"]).output for each in (first, second)
        ]

    delivered = memory.events(kinds=[DeliverEvent.KIND])[0].timestamp
    assert told() == ["offer", "inject", to_iso(delivered), True, False]
    log = (*scope, "log", "--date", "all")
    lines = json.loads(run_memtier(*log, "--json").output)["lines"]
    shown = {line["id"]: line["text"] for line in lines if line["kind"] == "recall"}
    assert [LATE_MARK in shown[recall] for recall in shown] == [True, False]
    assert f"recall {made.id[-SHORT_ID_CHARS:]} is in the prompt" in run_memtier(*log).output
    before = told(), memory.status()["agents"], run_memtier(*log).output
    memory.reindex()
    assert (told(), memory.status()["agents"], run_memtier(*log).output) == before
    injected = memory.status()["agents"][AGENT]["injected"]
    assert (injected["turns"], injected["lines"], injected["late"]) == (1, 1, 1)


def test_a_log_that_is_followed(memory: MemTier, clock: Clock) -> None:
    """A recall is shown once its host has had its time: as in the prompt, or as late."""
    say_each(memory, "Good morning.", session_id="s")
    last = [entry.id for entry in memory.entries()][-1]
    late = offer(memory)
    clock.later(seconds=6)
    say_each(memory, "The clay is dry.", session_id="s")
    made = offer(memory)
    lines = follow_log(memory, last, agent=AGENT)
    assert (line := next(lines))["id"] == late.id and LATE_MARK in line["text"]
    assert next(lines)["content"] == "The clay is dry."
    memory.acknowledge(made.id)
    assert (line := next(lines))["id"] == made.id and LATE_MARK not in line["text"]


def test_a_silent_offer_is_not_late(memory: MemTier) -> None:
    """Where there is no block there is nothing to deliver."""
    memory.recall("thanks!", session_id="s", run_id="r", purpose="offer")
    assert memory.status()["agents"][AGENT]["injected"]["late"] == 0


def test_recalls_of_before(memory: MemTier) -> None:
    """A recall that was journalled as injected counts without an acknowledgement."""
    offer(memory, purpose="inject")
    assert not repeats(memory)
    assert memory.end_run(TOOL, session_id="s", run_id="r").credits


class Held:
    """A plugin in which a recall waits until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    @hookimpl
    def memtier_signals(self, query: str, items: Any) -> list[Any]:
        """Wait."""
        self.begun.set()
        self.go.wait(PATIENCE)
        return []


def test_a_hook_that_gives_up(home: Path, memory: MemTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a Python host's hook found after its deadline is late; what it was given is not."""
    context = RunContext(agent_id=AGENT, session_id="s", run_id="r", project="p", home=str(home))

    def ask() -> Any:
        hook = plugins.manager().hook.before_prompt_build
        return hook(event=PromptEvent(prompt=QUESTION), context=context)

    def purposes() -> list[Any]:
        memory.catch_up()
        return [event.data["purpose"] for event in memory.events(kinds=["recall"])]

    held = Held()
    plugins.manager().register(held)
    try:
        with monkeypatch.context() as patch:  # the deadline passes while the recall is under way
            patch.setattr(host_hooks, "wait", lambda *_: held.begun.wait(PATIENCE) and wait([], 0))
            assert ask() is None
    finally:
        held.go.set()
        plugins.manager().unregister(held)
    wait_until(lambda: purposes() == ["offer"])
    assert LINE in ask().prepend_context
    host_hooks.workers.drain(PATIENCE)
    assert purposes() == ["offer", "inject"]
