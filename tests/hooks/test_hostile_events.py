"""Events that any process of the machine may send to `memtier hook`: none stops the agent."""

from __future__ import annotations

import json
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.hooks.coding_agents import AgentHooks, read_event
from memtier_plugin.hosts.project import EVENTS
from memtier_plugin.memory import MemTier
from tests.builders import user_message
from tests.hooks.test_coding_agents import ResidentHere

SEED = int(os.environ.get("TEST_MEMTIER_SEED", "1"))
DEEP = '{"a":' * 400 + "1" + "}" * 400
VALUES: list[Any] = [
    *(None, True, 0, -1.5, 10**400, "", "x", "\ud800", "a\x00b", "../../x", "x" * 5_000, []),
    *({}, [[]], {"a": 1}, ["a", 5], json.loads(DEEP), "/dev/zero", "/", "/etc/passwd", "2026"),
]
FIELDS = [
    *("session_id", "agent_id", "agent_type", "prompt_id", "turn_id", "cwd", "prompt", "trigger"),
    *("transcript_path", "tool_name", "tool_input", "tool_response", "tool_use_id", "source"),
    *("prompt_response", "last_assistant_message", "error", "is_interrupt", "reason", "model"),
]


@pytest.mark.parametrize("host", EVENTS)
@pytest.mark.parametrize("events", [40, pytest.param(3000, marks=pytest.mark.slow)])
def test_drawn_events(home: Path, tmp_path: Path, host: str, events: int) -> None:
    """Fields of any type are passed on or refused by name; the memory is whole after them."""
    rng, client = random.Random(SEED), ResidentHere(home)
    os.mkfifo(tmp_path / "pipe")
    values = [*VALUES, str(tmp_path / "pipe")]
    for _ in range(events):
        event: dict[str, Any] = {
            "hook_event_name": rng.choice([*EVENTS[host], *EVENTS[host], rng.choice(values)]),
            "session_id": rng.choice(["s", "s", "t", rng.choice(values)]),
            "tool_use_id": "t1",
            "tool_name": "Bash",
            "prompt": "Where is the crane?",
            "cwd": str(tmp_path),
        }
        event |= {rng.choice(FIELDS): rng.choice(values) for _ in range(rng.randrange(4))}
        hooks = AgentHooks(client, host, "p")
        with suppress(MemTierError, OSError):  # the command says so, and the agent goes on
            hooks.pass_event(read_event(json.dumps(event)))
    with MemTier.open(home, "p", f"{host}.main") as memory:
        memory.record([user_message("The crane is amber.")], session_id="after", run_id="r")
        assert "amber" in memory.recall("Which colour is the crane?").text
        assert [find for find in memory.doctor() if ".jsonl" in find.where] == []
    assert not [*tmp_path.glob("x*")]
