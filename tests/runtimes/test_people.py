"""Several people and their sub-agents in one OpenClaw, by each way that MemTier gets into it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from tests.builders import write_config
from tests.loopback.hosts import INTERNAL, text
from tests.processes import wait_until
from tests.runtimes.hosts import (
    ClonedOpenClaw,
    DroppedIntoOpenClaw,
    Ground,
    OpenClaw,
)

BADGES = {"ann": "4711", "bob": "8802", "": "9313"}
DIAGNOSES = {"ann": "diabetes", "bob": "asthma"}
TOLD = "It is done. I live in Cork, and my badge number is 5550."  # by sub-agents
ROUTES = {"install": OpenClaw, "folder": DroppedIntoOpenClaw, "plugins install": ClonedOpenClaw}


def prompts(ground: Ground) -> Iterator[str]:
    """Yield the newest prompt of each request, with the block that it came with."""
    for request in ground.model.requests:
        users = [text(m) for m in request["messages"] if m["role"] == "user"]
        yield next(reversed([each for each in users if INTERNAL not in each]), "")


@pytest.mark.parametrize("route", ROUTES)
def test_two_people_and_their_sub_agents(
    ground: Ground, openclaw: OpenClaw, route: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody gets another's line, and what a sub-agent reports becomes nobody's words."""
    write_config(ground.home, {"hooks": {"prompt_deadline_ms": 14_000}})  # as its bridge waits
    host = openclaw if route == "install" else ROUTES[route](ground, route.replace(" ", "-"))
    statements = {user: [f"My badge number is {BADGES[user]}."] for user in ("ann", "bob")}
    for user in statements:
        statements[user] += [f"The {user} report number {n} goes out on day {n}." for n in range(4)]
        statements[user] += [f"DELEGATE: Count the pages for {user}. :END", "Thanks!"] * 2
    ground.model.sub_agent_says = TOLD
    with host.gateway():
        for turn in range(len(statements["ann"])):
            for user, texts in statements.items():
                delegates = "DELEGATE" in texts[turn]
                before = reports(ground)
                host.post_as(user, texts[turn])
                if delegates:
                    wait_until(lambda: reports(ground) > before, 60.0)  # noqa: B023
        wait_until(lambda: len(ground.said("openclaw.main")) == sum(map(len, statements.values())))
        ground.model.requests.clear()
        asked = dict.fromkeys(statements, "What is my badge number?")
        for _ in range(6):
            for user, question in asked.items():
                host.post_as(user, question, anew=True)
                [prompt, *_] = prompts(ground)
                ground.model.requests.clear()
                others = {badge for name, badge in BADGES.items() if name != user}
                assert f"badge number is {BADGES[user]}" in prompt
                assert not [badge for badge in (*others, "5550") if badge in prompt]
        lines = [*host.errors(), *host.errors("WARN")]
    with ground.memory("openclaw.main") as memory:
        stored = list(memory.entries(agent="openclaw.main"))
    first = next(e.content for e in stored if e.sender == "http:ann")
    words = {e.content for e in stored if e.role == "user"}
    assert words == {*asked.values(), *statements["ann"], *statements["bob"]}
    assert {e.sender for e in stored} == {"http:ann", "http:bob"}
    assert any(TOLD in e.content and e.role == "tool" for e in stored)
    assert {e.sender for e in ground.entries("openclaw.main.subagent")} == {"http:ann", "http:bob"}
    assert first == statements["ann"][0]
    ours = ("memtier:", "plugin=memtier,", "plugin memtier")
    mine = [line for line in lines if any(name in line for name in ours)]
    # OpenClaw says so of every folder that nobody installed by its command.
    assert [line for line in mine if "can't verify where this plugin came from" not in line] == []
    with capsys.disabled():
        levels = {level: len(host.errors(level)) for level in ("WARN", "ERROR")}
        sys.stdout.write(
            f"\n{route}: {len(stored)} lines stored; lines of the log: {json.dumps(levels)}"
        )


def reports(ground: Ground) -> int:
    """Return how many reports of sub-agents are stored with the session that they went to."""
    with ground.memory("openclaw.main") as memory:
        entries = memory.entries(agent="openclaw.main")
        return sum(bool(e.tool and e.tool.name == "session_message") for e in entries)


def test_a_command_in_a_chat(ground: Ground, openclaw: OpenClaw) -> None:
    """`/memtier` in a chat of the Gateway is answered by MemTier and reaches no model."""
    ground.plant(openclaw.agent, "My bag is in the blue locker.")
    with openclaw.gateway():
        message = {"sessionKey": "agent:main:main", "message": "/memtier", "idempotencyKey": "1"}
        openclaw.run("gateway", "call", "chat.send", "--params", json.dumps(message))
        history = json.dumps({"sessionKey": "agent:main:main"})
        wait_until(
            lambda: (
                "MemTier, project shared: 1 lines"
                in openclaw.run("gateway", "call", "chat.history", "--params", history)
            ),
            60.0,
        )
    assert ground.model.requests == []
    assert ground.said(openclaw.agent) == []


def test_a_command_over_http(ground: Ground, openclaw: OpenClaw) -> None:
    """`/memtier` of a user of the HTTP interface is answered for that user, by no model."""
    with openclaw.gateway():
        for user in ("ann", "bob"):
            openclaw.post_as(user, f"I was diagnosed with {DIAGNOSES[user]}.")
        wait_until(lambda: len(ground.said(openclaw.agent)) == 2)
        with ground.memory(openclaw.agent) as memory:
            memory.consolidate(extractor="rules")
        ground.model.requests.clear()
        for user, other in (("ann", "bob"), ("bob", "ann")):
            for anew in (False, True):
                answer = openclaw.post_as(user, "/memtier review", anew=anew)
                assert DIAGNOSES[user] in answer and DIAGNOSES[other] not in answer
        assert "MemTier, project shared: 4 lines" in openclaw.post_as("ann", "/memtier")
        assert ground.model.requests == []
        openclaw.post_as("ann", "What does /memtier do?")
        assert len(ground.model.requests) == 1
    assert len(ground.said(openclaw.agent)) == 3
