"""`memtier mcp` under drawn lines: nothing ends it, and what can be answered is."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.test_clients import start
from tests.mcp.test_opening import READY, initialize
from tests.processes import PATIENCE, running

SEED = int(os.environ.get("TEST_MEMTIER_SEED", "1"))
LINES = int(os.environ.get("TEST_MEMTIER_CALLS", "1000"))
VALUES: list[Any] = [
    *(None, True, 0, -1, 10**400, 1e308, "", "x", "\ud800", "\x00", "../../x", [], {}, [[]]),
    *({"a": 1}, "x" * 50_000, "tools/call", "memory_search", "memtier://fact/../../x", 2**63),
]
METHODS = [
    *("tools/list", "tools/call", "resources/list", "resources/read", "prompts/get", "ping"),
    *("initialize", "logging/setLevel", "completion/complete", "notifications/cancelled", "x"),
    *("resources/subscribe", "server/discover", "notifications/initialized", ""),
]
TOOLS = ["memory_search", "memory_store", "memory_get", "memory_forget", "memory_status", "x"]


def drawn(rng: random.Random, number: int) -> bytes:
    """Return a line: a request with odd values, half of one, or bytes."""

    def value() -> Any:
        return rng.choice(VALUES)

    params: Any = {
        "name": rng.choice([*TOOLS, value()]),
        "arguments": rng.choice([{"query": value(), "text": value(), "ids": value()}, value()]),
        "uri": value(),
        "_meta": value(),
        "cursor": value(),
    }
    request = {
        "jsonrpc": rng.choice(["2.0", "2.0", "2.0", value()]),
        "id": rng.choice([number, number, f"n{number}", value()]),
        "method": rng.choice([*METHODS, value()]),
        "params": rng.choice([params, params, value()]),
    }
    if rng.random() < 0.2:
        del request[rng.choice([*request])]
    line = json.dumps(rng.choice([request, request, request, [request], value()])).encode()
    harm = rng.random()
    if harm < 0.1:
        return line[: rng.randrange(len(line) + 1)].replace(b"\n", b"")
    if harm < 0.15:
        return rng.randbytes(rng.randrange(1, 300)).replace(b"\n", b"").replace(b"\r", b"")
    if harm < 0.18:
        return rng.choice([b"[", b'{"a":']) * rng.randrange(1, 20_000)
    return line


@pytest.mark.slow
def test_stdio_under_drawn_lines(home: Path) -> None:
    """After each hundred of any lines a tool is still called, and stdout holds JSON-RPC alone."""
    rng, answered = random.Random(SEED), 0
    with running(start(home)) as server:
        assert server.stdin and server.stdout
        server.stdin.write(json.dumps(initialize()).encode() + b"\n")
        server.stdin.write(json.dumps(READY).encode() + b"\n")
        for number in range(LINES // 100):
            for step in range(100):
                server.stdin.write(drawn(rng, number * 100 + step) + b"\n")
            call = {"name": "memory_status", "arguments": {}}
            asked = {"jsonrpc": "2.0", "id": f"asked {number}", "method": "tools/call"}
            server.stdin.write(json.dumps(asked | {"params": call}).encode() + b"\n")
            server.stdin.flush()
            answer: Any = {}
            while answer.get("id") != asked["id"]:
                answer = json.loads(server.stdout.readline())
                assert answer.get("jsonrpc") == "2.0"
                answered += 1
            assert not answer["result"].get("isError"), answer
        server.stdin.close()
        assert server.wait(PATIENCE) == 0
    assert answered > LINES // 10
