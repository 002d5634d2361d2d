"""OpenClaw's plugin itself, run by node against a real resident: how long it takes, what it bears.

The host is not needed for these: they drive the plugin's own entry through the host's contract.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.hosts import PROJECT, RUNTIMES, Ground

SHIM = Path(__file__).parents[1] / "shim"
THINGS = ("bag", "hat", "key", "map", "coat", "book")
PLACES = ("blue locker", "red hook", "green drawer", "attic", "garage", "desk")
AGENT = "openclaw.main"


@pytest.fixture
def node(ground: Ground) -> str:
    """Return OpenClaw's node, else the system's."""
    executable = shutil.which(
        "node", path=f"{RUNTIMES}/openclaw/node_modules/.bin"
    ) or shutil.which("node")
    if executable is None:
        pytest.skip("there is no node here")
    return executable


def run(node: str, ground: Ground, script: str, *arguments: str) -> Any:
    """Run a script on the plugin and return the JSON that it prints."""
    config = {"command": ground.command, "home": str(ground.home), "project": PROJECT}
    done = subprocess.run(
        [node, SHIM / script, json.dumps(config), *arguments],
        env=ground.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_how_long_a_recall_takes(
    ground: Ground, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two hundred recalls through the shim are all answered; the figures are printed."""
    with ground.memory(AGENT) as memory:
        for session in range(200):
            memory.record(
                [
                    {
                        "role": "user",
                        "content": f"My {THINGS[(session + n) % 6]} number "
                        f"{10 * session + n} is in the {PLACES[(7 * session + n) % 6]}.",
                    }
                    for n in range(10)
                ],
                session_id=f"s{session}",
                run_id=f"r{session}",
            )
    report = run(node, ground, "timing.mjs", "200")
    with capsys.disabled():
        sys.stdout.write(f"\nshim, 2,000 lines in the store: {json.dumps(report)}\n")
    assert report["answered"] == report["recalls"] == 200
    assert report["pipe_ms"]["p50"] < report["recall_ms"]["p50"]


def test_a_turn_of_2000_messages(ground: Ground, node: str) -> None:
    """A run of 2,000 messages is taken within the hook's deadline and stored whole, once."""
    report = run(node, ground, "turn.mjs", "2000")
    entries = ground.entries(AGENT)
    assert len(entries) == 2000
    assert len({entry.run_id for entry in entries}) == 1
    assert report["warnings"] == []


def test_stop_without_start(ground: Ground, node: str) -> None:
    """A host that stops the service it never started loses nothing: the next hook works."""
    report = run(node, ground, "turn.mjs", "2", "stop")
    assert report["warnings"] == []
    assert len(ground.entries(AGENT)) == 2
