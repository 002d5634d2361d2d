"""Measure the real coding agents over many sessions, with a resident that runs and without.

    python -m tests.runtimes.agent_figures [--sessions N] [AGENT ...]

In each session one of twenty things told earlier is asked for, in a turn whose command fails or
succeeds; every other one ends with a thank-you, which needs no memory.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import tempfile
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from tests.loopback.hosts import LoopbackModel, text
from tests.processes import wait_until
from tests.runtimes.agents import AGENTS, Codex, resident
from tests.runtimes.hosts import Ground
from tests.runtimes.test_coding_agents import blocks, outcomes

THINGS = (
    *("deploy host", "backup disk", "build server", "test printer", "company van", "mail relay"),
    *("wiki robot", "office plant", "release train", "build badge", "meeting room", "log bucket"),
    *("spare laptop", "night job", "staging queue", "door sensor", "song of the team"),
    *("parking spot", "coffee machine", "chat channel"),
)
NAMES = (
    *("pelican", "juniper", "marzipan", "obsidian", "tamarind", "walrus", "cinnabar", "falcon"),
    *("gooseberry", "lanthanum", "mandolin", "nutmeg", "oleander", "periscope", "quartz"),
    *("rhubarb", "saffron", "turnip", "umbrella", "vermilion"),
)


def measure(host: str, sessions: int, *, warm: bool) -> dict[str, Any]:
    """Return the figures of some sessions of an agent."""
    with tempfile.TemporaryDirectory() as folder, LoopbackModel() as model:
        ground = Ground(Path(folder), model)
        agent = AGENTS[host](ground)
        agent.install()
        if isinstance(agent, Codex):
            agent.trust()
        for thing, name in zip(THINGS, NAMES, strict=True):
            ground.plant(agent.agent, f"Our {thing} is called {name}.")
        right = silent = thanks = 0
        seconds: list[float] = []
        before = os.times()
        with resident(ground) if warm else nullcontext():
            for number in range(sessions):
                thing, name = THINGS[number % 20], NAMES[number % 20]
                ending = "RUN-FAIL" if number % 2 else "RUN-OK"
                started = time.monotonic()
                asked = agent.say(f"What is our {thing} called? {ending}")
                seconds.append(time.monotonic() - started)
                right += name in "".join(blocks(asked[0]))
                if number % 2:
                    thanks += 1
                    [thanked] = agent.say("Thank you, that was helpful!", resume=True)
                    last = text([m for m in thanked["messages"] if m["role"] == "user"][-1])
                    silent += not any(b for b in blocks(thanked) if b in last)
                if not warm:
                    end_resident(ground)
        after = os.times()
        known = [ok for ok, _ in outcomes(ground, agent.agent)]
        hook = ground.held(agent.agent).get("before_prompt_build", {})
        cpu = after.children_user + after.children_system
        cpu -= before.children_user + before.children_system
        return {
            "agent": host,
            "resident": "runs" if warm else "none",
            "right block": f"{right} of {sessions}",
            "silent": f"{silent} of {thanks}",
            "outcome right": f"{sum(ok == (i % 2 == 0) for i, ok in enumerate(known))}"
            f" of {sessions}",
            "no answer": f"{hook.get('failed', '?')} of {hook.get('calls', '?')}",
            "hook ms, slowest": hook.get("slowest_ms"),
            "turn s, median": round(statistics.median(seconds), 1),
            "cpu s a session": round(cpu / sessions, 1),
            "load": os.getloadavg()[0],
        }


def end_resident(ground: Ground) -> None:
    """End the resident, so that the next session finds none."""
    pid = ground.resident()
    with suppress(OSError):
        if pid:
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: ground.resident() != pid)


def main() -> None:
    """Print a line of figures for each agent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="*", default=[*AGENTS])
    parser.add_argument("--sessions", type=int, default=20)
    options = parser.parse_args()
    for host in options.agents:
        for warm in (True, False):
            click.echo(json.dumps(measure(host, options.sessions, warm=warm)))


if __name__ == "__main__":
    main()
