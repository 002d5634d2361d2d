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
from memtier_plugin.hooks.coding_agents import AgentHooks, find_refused, read_event
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


def transcript(path: Path, rng: random.Random) -> Path:
    """Write a transcript of calls and refusals with a field of any type in each record."""
    refusal = "the user said:\nNo."
    with path.open("w") as file:
        for _ in range(50):
            call: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
            result: dict[str, Any] = {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": refusal,
            }
            for block in (call, result):
                if rng.random() < 0.5:
                    block[rng.choice([*block])] = rng.choice(VALUES)
                record: dict[str, Any] = {"message": {"content": [block]}, "promptId": "q"}
                record["toolDenialKind"] = rng.choice(["user-rejected", rng.choice(VALUES)])
                file.write(json.dumps(record) + "\n")
    return path


@pytest.mark.parametrize("host", EVENTS)
@pytest.mark.parametrize("events", [100, pytest.param(3000, marks=pytest.mark.slow)])
def test_drawn_events(home: Path, tmp_path: Path, host: str, events: int) -> None:
    """Fields of any type are passed on or refused by name; the memory is whole after them."""
    rng, client = random.Random(SEED), ResidentHere(home)
    os.mkfifo(tmp_path / "pipe")
    values = [*VALUES, str(tmp_path / "pipe"), str(transcript(tmp_path / "t", rng))]
    for _ in range(events):
        event: dict[str, Any] = {
            "hook_event_name": rng.choice([*EVENTS[host], *EVENTS[host], rng.choice(values)]),
            "session_id": rng.choice(["s", "s", "t", rng.choice(values)]),
            "tool_use_id": "t1",
            "tool_name": "Bash",
            "prompt": "Where is the crane?",
            "prompt_id": "q",
            "transcript_path": rng.choice(values),
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


def test_refusals_beside_fields_of_any_type(tmp_path: Path) -> None:
    """A refused call is found whatever the turn's other events and the transcript hold."""
    file = transcript(tmp_path / "t", random.Random(SEED))
    for name in FIELDS:
        for value in VALUES:
            events = [{"prompt_id": "q"}, {"tool_use_id": "t0", name: value}]
            calls = {event["tool_use_id"] for event in find_refused(events, str(file))}
            assert "t1" in calls
