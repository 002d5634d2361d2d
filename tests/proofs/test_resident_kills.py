"""What a resident acknowledged is kept once, although it is killed in the same moment."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core.paths import socket_path
from memtier_plugin.core.residents import find_owner
from tests.processes import start_python, wait_until
from tests.proofs.checks import show

SEED = int(os.environ.get("TEST_MEMTIER_SEED", "1"))
KILLS = int(os.environ.get("TEST_MEMTIER_KILLS", "12"))
SCOPE = {"project": "p", "agent": "main"}


def start(home: Path) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a resident, and connect to its socket."""
    resident = start_python(
        *("-m", "memtier_plugin", "--home", str(home), "serve"), stdin=subprocess.PIPE
    )

    def listens() -> bool:  # a child of the killed one may hold its socket for a moment
        owner = find_owner(home)
        return owner is not None and owner.pid == resident.pid and owner.ready

    wait_until(listens)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(socket_path(home)))
    return resident, connection


def end(resident: subprocess.Popen[bytes], connection: socket.socket) -> None:
    """Kill a resident at once."""
    resident.kill()
    connection.close()
    with resident:
        assert resident.stdin
        resident.stdin.close()


def deliver(connection: socket.socket, method: str, params: dict[str, Any]) -> Any:
    """Send a request and return its answer."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, **SCOPE}}
    with connection.makefile("rwb") as lines:
        lines.write(json.dumps(request).encode() + b"\n")
        lines.flush()
        return json.loads(lines.readline())["result"]


def call_for(method: str, number: int) -> dict[str, Any]:
    """Return the parameters with which a run is delivered by a method."""
    messages = [
        {"role": "user", "content": f"The crane {number} lifts {number * 7} tons."},
        {"role": "assistant", "content": f"Noted: crane {number}."},
    ]
    if method == "hook":
        context = {"session_id": f"s{number % 3}", "run_id": f"r{number}", "agent_id": "main"}
        return {"name": "agent_end", "context": context, "event": {"messages": messages}}
    return {"messages": messages, "session_id": f"s{number % 3}", "run_id": f"r{number}"}


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_killed_right_after_its_acknowledgement(home: Path) -> None:
    """Of each run that was acknowledged before a kill no line is lost, and none is there twice."""
    rng, delivered, number = random.Random(SEED), dict[int, str](), 0
    for _ in range(KILLS):
        resident, connection = start(home)
        for _ in range(rng.randrange(1, 4)):
            number += 1
            delivered[number] = rng.choice(["record", "end_run", "hook"])
            deliver(connection, delivered[number], call_for(delivered[number], number))
        end(resident, connection)
    resident, connection = start(home)
    for again, method in delivered.items():  # a host that saw the connection break
        deliver(connection, method, call_for(method, again))
    end(resident, connection)
    with MemTier.open(home, "p", "main") as memory:
        contents = Counter(entry.content for entry in memory.entries())
        unreadable = [f for f in memory.doctor() if ".jsonl" in f.where and f.level == "error"]
    expected = {m["content"] for n in delivered for m in call_for("record", n)["messages"]}
    lost, doubled = expected - contents.keys(), [text for text, n in contents.items() if n > 1]
    show(
        "resident killed right after its acknowledgement",
        {"kills": KILLS, "acknowledged": len(expected), "lost": len(lost), "doubled": len(doubled)},
    )
    assert not lost and not doubled and not unreadable
