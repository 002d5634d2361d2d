"""A client of `memtier mcp` is greeted before the SDK is loaded, and as the SDK would greet it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from memtier_plugin.hosts.project import launch_command
from memtier_plugin.mcp.opening import MODERN_VERSIONS, VERSIONS, Opening
from memtier_plugin.mcp.server import Binding, serve_stdio
from tests.cases import each_case
from tests.mcp.test_clients import arguments
from tests.processes import PATIENCE, child_environment, end_residents, running, wait_until

READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
# The SDK is not loaded before a file is there.
WAITS = """
import sys, time
from pathlib import Path

class Waits:
    @staticmethod
    def find_spec(name, path=None, target=None):
        while name == "mcp.server" and not Path({go!r}).exists():
            time.sleep(0.01)

sys.meta_path.insert(0, Waits)
"""


def initialize(version: Any = VERSIONS[-1], **params: Any) -> dict[str, Any]:
    """Return a client's first request."""
    client = {"name": "test", "version": "1"}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client} | params
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def discover(version: Any = MODERN_VERSIONS[-1], **meta: Any) -> dict[str, Any]:
    """Return the first request of a client of the newer protocol."""
    client = {"name": "test", "version": "1"}
    meta = {"protocolVersion": version, "clientCapabilities": {}, "clientInfo": client} | meta
    named = {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()}
    params = {"_meta": named}
    return {"jsonrpc": "2.0", "id": "d", "method": "server/discover", "params": params}


class Talk:
    """A client's end of an opening."""

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin, self._stdout = stdin, stdout

    def send(self, *requests: Any) -> None:
        """Send lines, one right after the other."""
        self._stdin.write("".join(json.dumps(request) + "\n" for request in requests))
        self._stdin.flush()

    def read(self) -> Any:
        """Return the next answer."""
        return json.loads(self._stdout.readline())


@contextmanager
def talk() -> Iterator[tuple[Talk, Opening]]:
    """Yield both ends of an opening."""
    (theirs, stdin), (stdout, ours) = os.pipe(), os.pipe()
    with os.fdopen(ours, "w") as writer, os.fdopen(stdout) as answers:
        opening = Opening(os.fdopen(theirs), writer)
        with os.fdopen(stdin, "w") as lines:
            yield Talk(lines, answers), opening


@contextmanager
def served(home: Path, opening: Opening) -> Iterator[None]:
    """Let the SDK serve an opening."""
    binding = Binding(home, "p", "mcp.main")
    server = threading.Thread(target=serve_stdio, args=(binding, opening))
    server.start()
    yield
    server.join(PATIENCE)


def answer_of_sdk(home: Path, request: dict[str, Any]) -> Any:
    """Return what the SDK itself answers."""
    with talk() as (client, opening), served(home, opening):
        wait_until(lambda: not opening._is_open)
        client.send(request)
        answer = client.read()
        client._stdin.close()
    return answer


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "request_",
    [
        *(initialize(v, capabilities={"roots": {}, "sampling": {}}) for v in VERSIONS),
        *map(discover, MODERN_VERSIONS),
        discover("2031-01-01"),
    ],
)
def test_the_greeting_is_the_sdks(home: Path, request_: dict[str, Any]) -> None:
    """In each version of the protocol the answer is the SDK's, to the letter."""
    with talk() as (client, _):
        client.send(request_)
        assert client.read() == answer_of_sdk(home, request_)
    end_residents(home.parent)


@each_case(
    "request_",
    [
        initialize("2031-01-01"),
        initialize(None),
        initialize(capabilities=None),
        initialize(clientInfo={"name": "x"}),
        initialize(clientInfo=[]),
        {**initialize(), "params": []},
        {**initialize(), "id": True},
        {**initialize(), "jsonrpc": "1"},
        discover(None),
        discover(clientCapabilities=None),
        discover(clientInfo=None),
        {**discover(), "params": None},
        LIST,
    ],
)
def test_what_the_sdk_must_answer(request_: dict[str, Any]) -> None:
    """A version that is not known here, or what is not right, is left to the SDK, and all else."""
    with talk() as (client, opening):
        client.send(request_, initialize(), PING)
        assert client.read()["id"] == PING["id"]
        assert json.loads(opening.readline()) == request_
        assert json.loads(opening.readline()) == initialize()


def test_a_client_of_two_protocols(home: Path) -> None:
    """One that asks for a newer protocol than ours, and then for an older one, gets that."""
    with talk() as (client, opening):
        client.send(discover("2031-01-01"))
        assert "error" in client.read()
        client.send(initialize(), READY, LIST)
        assert client.read()["result"]["protocolVersion"] == VERSIONS[-1]
        with served(home, opening):
            assert len(client.read()["result"]["tools"]) == 6
            client._stdin.close()
    end_residents(home.parent)


def test_the_sdk_comes_in_later(home: Path) -> None:
    """It knows who was greeted, greets nobody again, and has every other line in its order."""
    with talk() as (client, opening):
        client.send(initialize(), PING, READY, LIST)
        assert client.read()["result"]["serverInfo"]["name"] == "memtier"
        assert client.read() == {"jsonrpc": "2.0", "id": "p", "result": {}}
        with served(home, opening):
            assert len(client.read()["result"]["tools"]) == 6
            client.send({**LIST, "id": 3}, {**PING, "id": 4})
            assert {client.read()["id"], client.read()["id"]} == {3, 4}
            client._stdin.close()
    end_residents(home.parent)


def test_lines_that_are_no_requests() -> None:
    """Rubbish is left to the SDK as it came, and a ping after it is answered."""
    rubbish = ["hello", [], {"id": True, "method": "ping"}, {"jsonrpc": "2.0", "id": 1}]
    with talk() as (client, opening):
        client.send(*rubbish, PING)
        assert client.read()["id"] == "p"
        assert [json.loads(opening.readline()) for _ in rubbish] == rubbish
    assert opening.readline() == ""


def test_a_client_that_is_gone() -> None:
    """A client that does not wait for its greeting ends the opening."""
    with suppress(BrokenPipeError), talk() as (client, opening):
        client._stdout.close()

        def is_over() -> bool:
            with suppress(BrokenPipeError):  # again: a child between fork and exec has the pipe too
                client.send(PING)
            return opening._stdin.closed

        wait_until(is_over)
        assert opening.readline() == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("first", "more"),
    [
        (initialize(), (READY, LIST)),
        (discover(), ({**LIST, "params": discover()["params"]},)),
    ],
)
def test_the_process_greets_first(
    home: Path, tmp_path: Path, first: dict[str, Any], more: tuple[dict[str, Any], ...]
) -> None:
    """`memtier mcp` answers while it loads the SDK, and what it was asked meanwhile after that."""
    go = tmp_path / "go"
    (tmp_path / "sitecustomize.py").write_text(WAITS.format(go=str(go)))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [launch_command()[0], *arguments(home)]
    with running(subprocess.Popen(command, env=child_environment(tmp_path), **pipes)) as server:
        assert server.stdin and server.stdout
        client = Talk(server.stdin, server.stdout)
        client.send(first, *more)
        assert client.read()["id"] == first["id"]
        go.touch()
        assert client.read()["id"] == 2
        server.stdin.close()
        assert server.wait(PATIENCE) == 0
    end_residents(home.parent)
