"""Five headless scenarios of the real hosts: a turn recalls, stores, and learns from its tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memtier_plugin.core.paths import socket_path
from memtier_plugin.core.records import Entry
from memtier_plugin.hosts.presence import last_use
from memtier_plugin.trust.escaping import FENCE
from tests.loopback.hosts import text
from tests.processes import wait_until
from tests.runtimes.hosts import Ground, Hermes, Host, OpenClaw, environment

BAG = "My bag is in the blue locker at the station."
# A consolidation may make a fact of the line at any moment; then the fact is what is recalled.
RECALLED = BAG.removeprefix("My ")
ANSWER = "Your bag is in the blue locker at the station."
LOCKER = "blue locker"


def recalled(ground: Ground) -> None:
    """Check that the last turn's requests have the line by the user's message, and only there."""
    without = [p for p in ground.model.asked() if RECALLED not in p or FENCE not in p]
    assert without == []
    assert not any(RECALLED in instructions for instructions in ground.model.instructed())


def tools(entries: list[Entry]) -> list[tuple[bool | None, int | None]]:
    """Return how the tools of a ledger's runs fared."""
    return [(entry.tool.ok, entry.tool.exit_code) for entry in entries if entry.tool]


def runs(entries: list[Entry]) -> set[str]:
    """Return the runs of entries."""
    return {entry.run_id for entry in entries}


def answered(held: Mapping[str, Any], turns: int) -> None:
    """Check that `status` knows how long each turn's recall and storing held the host."""
    for hook in ("before_prompt_build", "agent_end"):
        mark = held[hook]
        assert (mark["calls"], mark["failed"]) == (turns, 0)
        assert 0 < mark["last_ms"] <= mark["slowest_ms"]


def seen_in_use(ground: Ground, host: Host) -> None:
    """Check that the alarm for a silent host looks where this one keeps its sessions."""
    with environment(ground, host.environment):
        used = last_use(host.agent.partition(".")[0])
    assert used is not None, "no session is seen"


def test_openclaw_local(ground: Ground, openclaw: OpenClaw) -> None:
    """`openclaw agent --local`: recall in the request, run in the log, weight after 0 and 3."""
    line = ground.plant(openclaw.agent, BAG)
    ground.model.says, ground.model.takes = ANSWER, LOCKER
    openclaw.say("Where is my bag? RUN-OK")
    recalled(ground)
    entries = ground.entries(openclaw.agent)
    assert [e.role for e in entries] == ["user", "assistant", "tool", "assistant"]
    assert entries[0].content == "Where is my bag? RUN-OK"
    assert tools(entries) == [(True, 0)]
    wait_until(lambda: ground.weight(openclaw.agent, line) > 0)  # credited after the run is stored
    up = ground.weight(openclaw.agent, line)
    openclaw.say("Where is my bag? RUN-FAIL")
    entries = ground.entries(openclaw.agent)
    assert tools(entries) == [(True, 0), (False, 3)]
    assert len(runs(entries)) == 2
    wait_until(lambda: ground.weight(openclaw.agent, line) < up)
    assert ground.queued() == []
    held = ground.held(openclaw.agent)
    assert held["before_prompt_build"]["slowest_ms"] == max(openclaw.hook_ms()), "the host's log"
    answered(held, 2)
    seen_in_use(ground, openclaw)


def test_openclaw_at_a_call(ground: Ground, openclaw: OpenClaw) -> None:
    """A call of a rule's kind is held up once, the model reads why, and the same call then runs."""
    rule, yarn = "No, never use yarn here. Use pnpm.", openclaw.top / "yarn"
    yarn.write_text(f'#!/bin/sh\ntouch "{openclaw.top}/added-$2"\n')
    yarn.chmod(0o755)
    openclaw.install(call_reminders=True)
    openclaw.say(f"Add the date library. RUN: {yarn} add dayjs :END", key="agent:main:one")
    openclaw.say(rule, key="agent:main:one")
    with ground.memory(openclaw.agent) as memory:
        memory.consolidate()
    task, added = f"Install lodash. RUN: {yarn} add lodash :END", openclaw.top / "added-lodash"
    openclaw.say(task, key="agent:main:two")
    assert (openclaw.top / "added-dayjs").exists() and not added.exists()
    results = [text(m) for m in ground.model.requests[-1]["messages"] if m["role"] == "tool"]
    assert rule in results[-1]
    openclaw.say(task, key="agent:main:two")
    assert added.exists()
    with ground.memory(openclaw.agent) as memory:
        [kept] = memory.knowledge.person.rules()
    assert (kept.fact.text, kept.reminded, kept.insisted) == (rule, 1, 1)


def test_openclaw_gateway(ground: Ground, openclaw: OpenClaw) -> None:
    """A Gateway: two conversations, recall across them, one resident that outlives it."""
    line = ground.plant(openclaw.agent, BAG)
    ground.model.says, ground.model.takes = ANSWER, LOCKER
    with openclaw.gateway():
        openclaw.say("Where is my bag? RUN-FAIL", key="agent:main:one", gateway=True)
        wait_until(lambda: len(ground.entries(openclaw.agent)) >= 4)
        recalled(ground)
        openclaw.say("My hat is on the red hook.", key="agent:main:one", gateway=True)
        wait_until(lambda: len(runs(ground.entries(openclaw.agent))) == 2)
        ground.model.requests.clear()
        openclaw.say("Where is my hat?", key="agent:main:two", gateway=True)
        assert "red hook" in ground.model.asked()[0]
        wait_until(lambda: len(runs(ground.entries(openclaw.agent))) == 3)
        down = ground.weight(openclaw.agent, line)
        openclaw.say("Where is my bag? RUN-OK", key="agent:main:three", gateway=True)
        wait_until(lambda: len(runs(ground.entries(openclaw.agent))) == 4)
        wait_until(lambda: ground.weight(openclaw.agent, line) > down)
        resident = ground.resident()
        assert resident is not None
    assert ground.resident() == resident
    entries = ground.entries(openclaw.agent)
    assert tools(entries) == [(False, 3), (True, 0)]
    assert len({entry.session_id for entry in entries}) == 3
    assert down < 0
    assert ground.status()["degraded"] == []


def test_hermes(ground: Ground, hermes: Hermes) -> None:
    """`hermes -z` and `chat -q`: recall in the request, run in the log, weight moved both ways."""
    line = ground.plant(hermes.agent, BAG)
    ground.model.says, ground.model.takes = ANSWER, LOCKER
    hermes.say("Where is my bag? RUN-OK")
    recalled(ground)
    assert tools(ground.entries(hermes.agent)) == [(True, 0)]
    wait_until(lambda: ground.weight(hermes.agent, line) > 0)  # credited after the run is stored
    up = ground.weight(hermes.agent, line)
    ground.model.requests.clear()
    hermes.say("Where is my bag? RUN-FAIL", chat=True)
    recalled(ground)
    entries = ground.entries(hermes.agent)
    assert [e.content for e in entries if e.role == "user"] == [
        "Where is my bag? RUN-OK",
        "Where is my bag? RUN-FAIL",
    ]
    assert tools(entries) == [(True, 0), (False, 3)]
    wait_until(lambda: ground.weight(hermes.agent, line) < up)
    assert ground.queued() == []
    answered(ground.held(hermes.agent), 2)
    seen_in_use(ground, hermes)


def test_both_on_one_project(ground: Ground, openclaw: OpenClaw, hermes: Hermes) -> None:
    """A fact learned in one host is recalled in the other's next turn; a private line is not."""
    ground.plant(openclaw.agent, "My secret nickname for the boss is Moose.")
    openclaw.say("STORE: The deploy key of the shop is in vault seven. :END")
    ground.model.requests.clear()
    hermes.say("Where is the deploy key of the shop? And what is my nickname for the boss?")
    prompts = "\n".join(ground.model.asked())
    assert "vault seven" in prompts
    assert "Moose" not in prompts
    hermes.say("STORE: The staging server is named Otter. :END")
    ground.model.requests.clear()
    openclaw.say("What is the staging server named? And my nickname for the boss?")
    prompts = "\n".join(ground.model.asked())
    assert "Otter" in prompts
    assert "Moose" in prompts


def test_the_child_killed_in_the_middle_of_a_turn(ground: Ground, openclaw: OpenClaw) -> None:
    """The resident is killed by the turn's own tool call: the run is stored, exactly once."""
    ground.plant(openclaw.agent, BAG)
    ground.model.says = ANSWER
    kill = f"RUN: kill -9 $(cut -d ' ' -f 1 {socket_path(ground.home).with_suffix('.lock')}) :END"
    text = f"In which locker at the station is my bag? {kill}"
    openclaw.say(text)
    recalled(ground)
    entries = ground.entries(openclaw.agent)
    assert [entry.content for entry in entries if entry.role == "user"] == [text]
    assert [e.role for e in entries] == ["user", "assistant", "tool", "assistant"]
    assert tools(entries) == [(True, 0)], "the kill itself went well"
    assert ground.queued() == []
