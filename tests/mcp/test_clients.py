"""The official client against `memtier mcp`, in processes of their own: good days and bad ones."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib import request
from urllib.error import HTTPError

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from memtier_plugin.core.installation import install_command
from memtier_plugin.core.paths import socket_path
from memtier_plugin.core.settings.load import bind_workspace
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.hosts.project import launch_command
from memtier_plugin.mcp.definitions import TOOLS
from memtier_plugin.mcp.server import MAX_BODY_BYTES, TOKEN_FILE
from memtier_plugin.memory import MemTier
from tests.processes import PATIENCE, running, wait_until

pytestmark = pytest.mark.slow

AGENT = "mcp.main"
VERSIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}


def arguments(home: Path, *more: str) -> list[str]:
    """Return how a client starts the server."""
    return [*launch_command()[1:], "--home", str(home), "--project", "p", "mcp", *more]


@asynccontextmanager
async def stdio(home: Path, mode: str = "auto") -> AsyncIterator[Client]:
    """Connect the official client to a server of its own."""
    server = StdioServerParameters(command=launch_command()[0], args=arguments(home))
    async with Client(stdio_client(server), mode=mode) as client:
        yield client


def test_bound_folder(home: Path, tmp_path: Path) -> None:
    """A server without a project of its own has the one that its folder was bound to."""
    bound, anywhere = tmp_path / "bound", tmp_path / "anywhere"
    for folder, project in ((bound, "shop"), (anywhere, "default")):
        folder.mkdir()
        with MemTier.open(home, project, AGENT) as memory:
            memory.remember(f"The staging host is called {project}-heron.")
    bind_workspace(home, bound, "shop")

    async def search(folder: Path) -> str:
        server = StdioServerParameters(
            command=launch_command()[0],
            args=["--home", str(home), "--project", "default", "mcp"],
            cwd=folder,
        )
        async with Client(stdio_client(server)) as client:
            return text_of(await client.call_tool("memory_search", {"query": "staging host"}))

    assert "shop-heron" in asyncio.run(search(bound))
    assert "default-heron" in asyncio.run(search(anywhere))


def start(home: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start a server whose pipes the test holds."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([launch_command()[0], *arguments(home, *more)], **pipes)


@contextmanager
def http(home: Path) -> Iterator[tuple[str, str]]:
    """Serve HTTP on any port; yield the address and the token."""
    with running(start(home, "--http", "--port", "0")) as server:
        assert server.stderr is not None
        assert select.select([server.stderr], [], [], PATIENCE)[0]
        address = server.stderr.readline().decode().split()[3]
        yield address, (home / TOKEN_FILE).read_text().strip()
        server.send_signal(signal.SIGINT)
        server.wait(PATIENCE)


def text_of(result: Any) -> str:
    """Return the text of a tool's answer."""
    return str(result.content[0].text)


async def call_each(client: Client) -> None:
    """List the tools, call each, read each resource and get the prompt."""
    listed = (await client.list_tools()).tools
    assert [tool.name for tool in listed] == [*TOOLS]
    for tool in listed:
        wire = tool.model_dump(by_alias=True, exclude_none=True, mode="json")
        assert wire["annotations"] == TOOLS[tool.name]["annotations"]
    stored = await client.call_tool("memory_store", {"text": "The staging host is called heron."})
    assert not stored.is_error, text_of(stored)
    hit = await client.call_tool("memory_search", {"query": "What is the staging host called?"})
    assert "heron" in hit.structured_content["text"] and not hit.is_error
    for store, shows in {"turns": True, "facts": False}.items():
        asked = {"query": "staging host heron", "store": store}
        step = await client.call_tool("memory_search", asked)
        assert not step.is_error
        assert ("heron" in text_of(step)) is shows, (store, text_of(step))
    [identity] = hit.structured_content["ids"]
    got = await client.call_tool("memory_get", {"id": identity[-8:]})
    assert "heron" in text_of(got)
    explained = await client.call_tool("memory_explain", {"id": identity[-8:]})
    assert "staging host called" in text_of(explained) and "was injected" in text_of(explained)
    assert "1 lines" in text_of(await client.call_tool("memory_status", {}))
    for uri in (f"memtier://entry/{identity}", "memtier://log/today"):
        assert "heron" in (await client.read_resource(uri)).contents[0].text
    fact = stored.structured_content["ids"][0]
    assert "heron" in (await client.read_resource(f"memtier://fact/{fact}")).contents[0].text
    await client.read_resource("memtier://facts")
    prompt = await client.get_prompt("remember_about", {"topic": "the staging host"})
    assert "heron" in prompt.messages[0].content.text
    refused = await client.call_tool("memory_get", {"id": "ZZZZZZZZ"})
    assert refused.is_error and "memory_search" in text_of(refused)
    assert (await client.call_tool("memory_search", {"query": 5})).is_error
    gone = await client.call_tool("memory_forget", {"ids": [identity[-8:]]})
    assert "1 lines" in text_of(gone)
    again = await client.call_tool("memory_search", {"query": "What is the staging host called?"})
    assert "heron" not in text_of(again)


@pytest.mark.parametrize("mode", VERSIONS)
def test_stdio(home: Path, mode: str) -> None:
    """A client of either version of the protocol uses everything over stdio."""

    async def run() -> None:
        async with stdio(home, mode) as client:
            assert client.protocol_version == VERSIONS[mode]
            await call_each(client)

    asyncio.run(run())


@pytest.mark.parametrize("mode", VERSIONS)
def test_http(home: Path, mode: str) -> None:
    """A client of either version of the protocol uses everything over HTTP, with the token."""

    async def run(address: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as web,
            Client(streamable_http_client(address, http_client=web), mode=mode) as client,
        ):
            assert client.protocol_version == VERSIONS[mode]
            await call_each(client)

    with http(home) as (address, token):
        asyncio.run(run(address, token))


def post(address: str, body: bytes, **headers: str) -> tuple[int, str]:
    """Post to the server as any program could; return the status and the answer."""
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with request.urlopen(request.Request(address, body, sent), timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_http_refuses(home: Path) -> None:
    """Without the token, from a page, under another name or with 5 MB a request gets nothing."""
    call = {"name": "memory_store", "arguments": {"text": "The intruder was here."}}
    begin = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}).encode()
    store = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}).encode()
    with http(home) as (address, token):
        port = address.split(":")[2].partition("/")[0]
        own = {"Authorization": f"Bearer {token}"}
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer "}, 401),
            ({"Authorization": f"Bearer {token[:-1]}"}, 401),
            ({"Authorization": f"Basic {token}"}, 401),
            ({**own, "Host": "evil.example"}, 421),
            ({**own, "Host": f"evil.example:{port}"}, 421),  # a name bound anew to 127.0.0.1
            ({**own, "Host": f"127.0.0.1.evil.example:{port}"}, 421),
            ({**own, "Host": "127.0.0.1:1"}, 421),
            ({**own, "Origin": "https://evil.example"}, 403),
            ({**own, "Origin": "null"}, 403),
            ({**own, "Origin": f"http://evil.example:{port}"}, 403),
            ({**own, "Origin": "http://localhost:3000"}, 403),
            ({**own, "Content_Type": "text/plain"}, 400),  # which a page may send without asking
            ({"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}, 401),
        ):
            for sent in (body, store):
                assert post(address, sent, **headers)[0] == status, headers
        upload = HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE)
        upload.putrequest("POST", "/mcp")
        for name, value in {**own, "Content-Length": str(5 * MAX_BODY_BYTES)}.items():
            upload.putheader(name, value)
        upload.endheaders()  # refused before a byte of it is read
        assert upload.getresponse().status == 413
        upload.close()
        assert post(address, body, **own)[0] == 200
    with MemTier.open(home, "p", AGENT) as memory:
        assert not list(memory.entries())


def test_a_refusal_arrives(home: Path) -> None:
    """A client without the token reads why, however much of its request was still to come."""
    with http(home) as (address, _):
        status, why = post(address, b"[" * (MAX_BODY_BYTES - 1))
    assert status == 401 and "send the token" in why


def test_a_long_argument(home: Path) -> None:
    """An argument of 5 MB is a short tool error over stdio, and the next call is answered."""

    async def run() -> None:
        async with stdio(home) as client:
            refused = await client.call_tool("memory_store", {"text": "x" * (5 * 1024 * 1024)})
            assert refused.is_error and len(text_of(refused)) < 500
            assert not (await client.call_tool("memory_status", {})).is_error

    asyncio.run(run())


def test_two_clients_and_a_hook(home: Path) -> None:
    """What two clients and a host's hook write at once is all there."""
    rounds = 8

    async def write(client: Client, name: str) -> None:
        for number in range(rounds):
            text = f"The {name} crane number {number} lifts {number + 3} tons."
            stored = await client.call_tool("memory_store", {"text": text})
            assert not stored.is_error, text_of(stored)

    def end_runs() -> None:
        hook = ResidentClient(launch_command(), home)
        for number in range(rounds):
            message = {"role": "user", "content": f"The hook crane number {number} is blue."}
            payload = {
                "name": "agent_end",
                "context": {"agent_id": AGENT, "session_id": "s", "run_id": str(number)},
                "event": {"messages": [message]},
                "home": str(home),
                "project": "p",
            }
            assert hook.deliver(payload, PATIENCE)
        hook.close()

    async def run() -> None:
        async with stdio(home) as first, stdio(home, "legacy") as second:
            await asyncio.gather(
                write(first, "left"), write(second, "right"), asyncio.to_thread(end_runs)
            )

    asyncio.run(run())
    with MemTier.open(home, "p", AGENT) as memory:
        contents = [entry.content for entry in memory.entries()]
    for name in ("left", "right", "hook"):
        assert sum(f"The {name} crane" in content for content in contents) == rounds
    assert len(contents) == 3 * rounds


def resident_of(home: Path) -> int:
    """Return the process that listens on the home's socket; 0 while none does yet."""
    try:
        return int(socket_path(home).with_suffix(".lock").read_text().split()[0])
    except (FileNotFoundError, IndexError):
        return 0


def test_the_resident_is_killed_in_a_call(home: Path) -> None:
    """A resident that is killed while clients call is replaced; nothing is lost or stored twice."""

    async def kill() -> None:
        killed: set[int] = set()
        while len(killed) < 3:
            await asyncio.sleep(0.3)
            if (pid := resident_of(home)) not in {0, *killed}:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)

    async def run() -> list[str]:
        async with stdio(home) as client:
            await client.call_tool("memory_status", {})
            killer = asyncio.create_task(kill())
            kept = []
            for number in range(30):
                text = f"Berth {number} holds {number + 40} boats."
                answer = await client.call_tool("memory_store", {"text": text})
                if not answer.is_error:
                    kept.append(text)
                await asyncio.sleep(0.03)
            await killer
            while (await client.call_tool("memory_status", {})).is_error:
                await asyncio.sleep(0.5)  # it is started again after a pause
            return kept

    kept = asyncio.run(run())
    with MemTier.open(home, "p", AGENT) as memory:
        contents = [entry.content for entry in memory.entries()]
    assert kept and set(kept) <= set(contents)
    assert len(contents) == len(set(contents))


def test_stdin_closes_in_a_call(home: Path) -> None:
    """A client that leaves while it waits ends its server; what it asked to store is stored."""
    store = {"name": "memory_store", "arguments": {"text": "The pilot boards at buoy nine."}}
    lines = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": store},
    ]
    with running(start(home)) as server:
        assert server.stdin is not None and server.stdout is not None
        for line in lines:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n")
            server.stdin.flush()
            if line.get("id") == 1:
                server.stdout.readline()
        server.stdin.close()
        assert server.wait(PATIENCE) == 0
        for line in server.stdout:  # whatever came before the end was protocol
            assert json.loads(line)["jsonrpc"] == "2.0"

    def is_stored() -> bool:
        with MemTier.open(home, "p", AGENT) as memory:
            return any("buoy nine" in entry.content for entry in memory.entries())

    wait_until(is_stored)


def test_stdout_is_protocol(home: Path) -> None:
    """Rubbish on stdin is answered by protocol or not at all, and the server goes on."""
    ping = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
    rubbish = [
        b"hello",
        b"{",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":1}',
        b"1" * 70_000,
    ]
    with running(start(home)) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(b"\n".join([*rubbish, json.dumps(ping).encode(), b""]))
        server.stdin.flush()
        answers = []
        while not any(answer.get("id") == 9 for answer in answers):
            assert select.select([server.stdout], [], [], PATIENCE)[0]
            answers.append(json.loads(server.stdout.readline()))
        server.stdin.close()
        assert server.wait(PATIENCE) == 0
        assert all(answer["jsonrpc"] == "2.0" for answer in answers)


def test_start_without_the_sdk(home: Path, tmp_path: Path) -> None:
    """Without the extra the command says in one line how to install it."""
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "def find_spec(name, *more):\n"
        "    absent = name.partition('.')[0] in ('mcp', 'mcp_types')\n"
        "    return None if absent else find(name, *more)\n"
        "PathFinder.find_spec = find_spec\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "memtier_plugin", "--home", str(home), "--project", "p", "mcp"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert install_command("memtier[mcp]") in done.stderr and done.stderr.count("\n") == 1
