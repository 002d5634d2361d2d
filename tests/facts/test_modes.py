"""`facts.mode`: what becomes a fact by itself, and what only a person's word makes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtier_plugin.core.records import FactDraft
from memtier_plugin.core.results import RunContext
from memtier_plugin.hooks.tools import call_tool
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool
from tests.facts.test_experiences import MENDED, steps

HELD = "active"
WAITS = "proposed"
# What a way of making a fact gives, by mode: auto, review, explicit.
WAYS = {
    "a person remembers": (HELD, HELD, HELD),
    "the rules find a statement": (HELD, WAITS, WAITS),
    "the rules find an experience": (HELD, WAITS, WAITS),
    "a program adds it": (HELD, HELD, WAITS),
    "a model keeps the user's words": (HELD, HELD, WAITS),
    "a model keeps its own words": (WAITS, WAITS, WAITS),
}
MODES = ("auto", "review", "explicit")


def make(memory: MemTier, way: str) -> None:
    """Let one fact come into being in this way."""
    if way == "a person remembers":
        memory.remember("The gate code is with Rana.")
    elif way == "the rules find a statement":
        memory.record([{"role": "user", "content": "I live in Porto."}], session_id="s")
        memory.consolidate()
    elif way == "the rules find an experience":
        memory.record(steps("run the tests", *MENDED), session_id="s", run_id="r")
        memory.consolidate()
    elif way == "a program adds it":
        [entry] = memory.record([{"role": "user", "content": "The van is red."}], session_id="s")
        draft = FactDraft(
            subject="van", relation="colour", value="red", text="The van is red.",
            sources=(entry.source,), quote="The van is red.", span=(0, 15),
        )  # fmt: skip
        memory.add_facts([draft])
    else:
        words = "The gate code is with Rana."
        prompt = f"Keep this in mind: {words}" if "user" in way else "Any news of the gate?"
        memory.recall(prompt, session_id="s", purpose="inject")
        memory.remember(words, session_id="s", by="assistant")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS)
def test_what_each_mode_lets_hold(home: Path, way: str, mode: str) -> None:
    """By each way a fact holds or waits as its mode says; what waits can be accepted, and holds."""
    with MemTier.open(home, settings={"facts.mode": mode}) as memory:
        make(memory, way)
        knowledge = memory.knowledge.person
        held = [fact.text for fact in memory.facts()]
        waiting = knowledge.review_queue()
        expected = WAYS[way][MODES.index(mode)]
        assert bool(held) == (expected == HELD), (held, waiting)
        assert bool(waiting) == (expected == WAITS) or "experience" in way
        if mode == "explicit" and waiting:
            knowledge.accept([item.id for item in waiting])
            assert memory.facts()
        texts = sorted(fact.text for fact in memory.facts())
        memory.reindex()
        assert sorted(fact.text for fact in memory.facts()) == texts


def test_no_tool_of_a_model_decides(home: Path) -> None:
    """In `explicit` nothing that a model's tools do, in any order, makes a fact hold."""
    home.mkdir(mode=0o700, parents=True)
    (home / "config.yaml").write_text("facts:\n  mode: explicit\n")
    context = RunContext(agent_id="main", session_id="s", home=str(home), project="default")
    with memory_pool.use(context) as memory:
        memory.recall("The lamp is green.", session_id="s", purpose="inject")
    stored = call_tool("memtier_store", {"text": "The lamp is green."}, context)
    assert "review" in stored["text"]
    call_tool("memtier_store", {"text": "The lamp is green."}, context)
    for name in ("memory_review", "memory_accept", "review", "memtier_get", "memtier_search"):
        call_tool(name, {"id": stored["ids"][0], "accept": stored["ids"], "query": "lamp"}, context)
    with memory_pool.use(context) as memory:
        memory.consolidate()
        assert memory.facts() == []
        assert stored["ids"][0] in [item.id for item in memory.knowledge.review_queue()]
    memory_pool.close()
