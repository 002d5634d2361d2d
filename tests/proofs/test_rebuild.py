"""What many processes and agents wrote, one rebuilds."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memtier_bench.synthetic import SyntheticChat
from memtier_plugin.daemon import scheduler
from memtier_plugin.memory import MemTier
from tests.builders import write_config
from tests.proofs.checks import ask, assert_equal_to_rebuild, child, outputs, show, unequal
from tests.proofs.processes import PROJECT

AGENTS = ("agent-a", "agent-b", "agent-c")
AT = datetime(2026, 12, 1, tzinfo=UTC)
EACH = 67  # recalls of an agent: 201 in all


# What is off by default and keeps something of its own, or ranks by what another mechanism keeps.
EVERYTHING = {
    "retrieval": {"search": "tiers", "episode_hours": 6, "weights": {"surprise": 1.0}},
    "summaries": {"long": True},
    "priority": {"enabled": True},
    "people": {"profiles": True},
    "gate": {"mode": "index"},
    "causes": {"withhold": 0.3, "weigh": True, "propose": True},
}
KEPT = ["importance", "gate", "prioritise", "outcome"]  # of these kinds it journals events


@pytest.mark.slow
@pytest.mark.parametrize("config", [{}, EVERYTHING], ids=["default", "everything"])
def test_a_rich_store_is_rebuilt(home: Path, config: dict[str, Any]) -> None:
    """Credits, facts, promotions, supersessions and forgets: 200 recalls are equal afterwards.

    So they are with all mechanisms on that the background works for.
    """
    write_config(home, config)
    printed = outputs([child("live", home, agent, 12) for agent in AGENTS])
    done = sum((Counter(json.loads(text)) for text in printed), Counter[str]())
    queries = []
    scheduler.serve_projects(home, [PROJECT], once=True)
    with MemTier.open(home, PROJECT, AGENTS[0]) as memory:
        memory.catch_up()
        texts = [entry.content for entry in memory.entries() if entry.role != "tool"]
        source = SyntheticChat(5)
        queries = [source.question(source.pick(texts)) for _ in range(EACH)]
        superseded = [f for f in memory.facts(include_superseded=True) if f.valid_to is not None]
        weights = [e for e in memory.entries() if e.cognitive_weight]
        promoted = [e for e in memory.entries() if e.promoted]
        kinds = {event.kind for event in memory.events(kinds=KEPT)}
    assert kinds == ({*KEPT} if config else set())
    assert min(done["credits"], done["facts"], done["forgotten"], done["promoted"]) > 0
    assert superseded and weights and promoted

    compared = assert_equal_to_rebuild(home, PROJECT, AGENTS, queries, AT)

    # The same without any index at all, and in another place.
    moved = home.with_name("moved")
    shutil.copytree(home, moved, ignore=shutil.ignore_patterns("index*"))
    again = 0
    for agent in AGENTS:
        with (
            MemTier.open(home, PROJECT, agent) as original,
            MemTier.open(moved, PROJECT, agent) as two,
        ):
            two.catch_up()
            assert unequal(ask(original, queries, AT), ask(two, queries, AT)) == []
            again += len(queries)
    show(
        "3 processes, 3 agents, 1 rebuild",
        {
            **done,
            "superseded": len(superseded),
            "entries with a weight": len(weights),
            "promoted now": len(promoted),
            "recalls equal after reindex": compared,
            "recalls equal without the old index": again,
        },
    )
