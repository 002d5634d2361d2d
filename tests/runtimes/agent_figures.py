"""Measure the real coding agents over many sessions, with a resident that runs and without.

    python -m tests.runtimes.agent_figures [--sessions N] [AGENT ...]

In each session one of twenty things told earlier is asked for, in a turn whose command fails or
succeeds; every other one ends with a thank-you, which needs no memory.  Every process of MemTier's
is metered, from its start to its end, as its host sees it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from tests.loopback.hosts import LoopbackModel, text
from tests.processes import wait_until
from tests.runtimes.agents import AGENTS, Codex, resident
from tests.runtimes.hosts import Ground
from tests.runtimes.test_coding_agents import blocks, outcomes

# The command of a second environment, which has this one's packages: whoever starts MemTier, a
# hook's client that needs a resident too, does it by this.
METER = """\
#!/bin/sh
started=$(date +%s%N)
event=
case " $* " in
*" hook "*)
    input=$(cat)
    event=$(printf %s "$input" | sed -n 's/.*"hook_event_name": *"\\([A-Za-z]*\\)".*/\\1/p')
    printf %s "$input" | {python} -m memtier_plugin "$@"
    code=$?
    echo "hook $event $(($(date +%s%N) - started))" >> {log}
    exit $code
    ;;
*" mcp "*) echo "mcp" >> {log} ;;
*" serve "*) echo "resident" >> {log} ;;
esac
exec {python} -m memtier_plugin "$@"
"""
PROMPTS = ("UserPromptSubmit", "BeforeAgent")

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
        log = Path(folder) / "meter.log"
        ground = Ground(Path(folder), model, [metered_command(Path(folder), log)])
        agent = AGENTS[host](ground)
        agent.install()
        if isinstance(agent, Codex):
            agent.trust()
        for thing, name in zip(THINGS, NAMES, strict=True):
            ground.plant(agent.agent, f"Our {thing} is called {name}.")
        right = silent = thanks = 0
        seconds: list[float] = []
        cpu = -processor_seconds()
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
                    cpu += end_resident(ground)
        cpu += processor_seconds()
        started = [line.split() for line in log.read_text("utf-8").splitlines()]
        hooks = [int(line[2]) / 1e6 for line in started if line[0] == "hook" and line[1] in PROMPTS]
        counts = Counter(line[0] for line in started)
        known = [ok for ok, _ in outcomes(ground, agent.agent)]
        hook = ground.held(agent.agent).get("before_prompt_build", {})
        return {
            "agent": host,
            "resident": "runs" if warm else "none",
            "right block": f"{right} of {sessions}",
            "silent": f"{silent} of {thanks}",
            "outcome right": f"{sum(ok == (i % 2 == 0) for i, ok in enumerate(known))}"
            f" of {sessions}",
            "no answer": f"{hook.get('failed', '?')} of {hook.get('calls', '?')}",
            "prompt's hook ms, p50, p95": [round(q) for q in percentiles(hooks)],
            "processes": dict(counts),
            "turn s, median": round(statistics.median(seconds), 1),
            "cpu s a session": round(cpu / sessions, 1),
            "load": round(os.getloadavg()[0], 1),
        }


def metered_command(top: Path, log: Path) -> str:
    """Make an environment with this one's packages whose command of MemTier's is metered."""
    bins = top / "bin"
    bins.mkdir()
    (bins / "python").symlink_to(os.path.realpath(sys.executable))
    for name in ("lib", "pyvenv.cfg"):
        (top / name).symlink_to(Path(sys.prefix) / name)
    command = bins / "memtier"
    log.touch()
    command.write_text(METER.replace("{python}", f"{bins}/python").replace("{log}", str(log)))
    command.chmod(0o755)
    return str(command)


def processor_seconds() -> float:
    """Return what the processes that ended so far took."""
    times = os.times()
    return times.children_user + times.children_system


def percentiles(values: list[float]) -> tuple[float, float]:
    """Return the median and the 95th percentile."""
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return cuts[9], cuts[18]


def end_resident(ground: Ground) -> float:
    """End the resident, so that the next session finds none; return the CPU seconds it took."""
    seconds = 0.0
    if pid := ground.resident():
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
            seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: ground.resident() != pid)
    return seconds


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
