"""`memtier serve`: the protocol on stdin/stdout and on the socket, against a real process."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

import memtier_plugin
from memtier_plugin.core.errors import UnsafePath
from memtier_plugin.core.paths import make_socket_folder, socket_path
from memtier_plugin.core.residents import claim_socket, find_owner
from memtier_plugin.memory import MemTier
from memtier_plugin.server import rpc
from memtier_plugin.server.requests import MAX_LINE_BYTES
from memtier_plugin.server.rpc import peer_uid
from tests.builders import turns, write_config
from tests.processes import PATIENCE, fork_python, held_ledger, run_in_fork, running, wait_until

SERVE = """
import sys
from memtier_plugin.server.rpc import serve
sys.exit(serve(None, sys.stdin.buffer, sys.stdout.buffer, scheduler="scheduler" in sys.argv))
"""
RESIDENT = """
import sys
from pathlib import Path
from memtier_plugin.core.residents import claim_socket
from memtier_plugin.server.rpc import serve_resident
serve_resident(home := Path(sys.argv[1]), claim_socket(home), 0, scheduler=False)
"""
HERE = {"project": "p", "agent": "test.main"}


class Server:
    """A `memtier serve` in a process of its own, and the requests to its stdin."""

    def __init__(self, *arguments: str) -> None:
        self.process = fork_python(
            "-c",
            SERVE,
            *arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.stderr = self.process.stderr

    def send(self, line: bytes | dict[str, Any] | list[Any]) -> None:
        """Send a line, or a request as one."""
        self.stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode())
        self.stdin.write(b"\n")
        self.stdin.flush()

    def answer(self) -> Any:
        """Return the next answer, whosever it is; anything but JSON on stdout fails the test."""
        return json.loads(self.stdout.readline())

    def call(self, method: str, **params: Any) -> Any:
        """Return the answer to one request."""
        self.send(request(method, 1, **params))
        return self.answer()

    def end(self) -> tuple[int, str]:
        """End its input and return its exit code and what it said on stderr."""
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors.decode()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Return a function that starts servers, which end with the test."""
    servers: list[Server] = []

    def start(*arguments: str) -> Server:
        servers.append(Server(*arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.process.kill()
        server.process.wait()
        for pipe in (server.stdin, server.stdout, server.stderr):
            pipe.close()


@pytest.fixture
def resident(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the resident of the home."""
    with running(fork_python("-c", RESIDENT, home, stderr=subprocess.PIPE)) as process:
        yield process


def request(method: str, key: object = 1, **params: Any) -> dict[str, Any]:
    """Return a request."""
    return {"jsonrpc": "2.0", "id": key, "method": method, "params": params}


def connect(path: Path) -> IO[bytes]:
    """Connect to a server's socket, as soon as it is there."""
    connection = socket.socket(socket.AF_UNIX)
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.connect(str(path))
            break
        except OSError:
            assert time.monotonic() < end, f"nobody listens on {path}"
            time.sleep(0.02)
    file = connection.makefile("rwb")
    connection.close()  # the file keeps it open
    return file


def test_a_key_that_is_not_read_is_named_in_the_answer(serve: Callable[..., Server]) -> None:
    """The turn is stored all the same; an answer about messages without such keys has no field."""
    server = serve()
    message = {"role": "user", "content": "My bag is blue.", "speeker": "Mara"}
    odd = server.call("record", messages=[message], session_id="s", **HERE)["result"]
    assert (len(odd["entries"]), odd["ignored_keys"]) == (1, ["speeker"])
    usual = server.call("record", messages=turns("My hat is red."), session_id="s", **HERE)
    assert usual["result"].keys() == {"entries"}


def test_what_is_recorded_is_recalled(serve: Callable[..., Server], home: Path) -> None:
    """Every method that reads or writes a memory works on the home that is served."""
    server = serve()
    recorded = server.call("record", messages=turns("My bag is blue."), session_id="s", **HERE)
    (entry,) = recorded["result"]["entries"]
    recalled = server.call("recall", query="Which colour has my bag?", **HERE)["result"]
    assert "bag is blue" in recalled["text"]
    assert recalled["hits"][0]["id"] == recalled["hits"][0]["item"]["id"] == entry["id"]
    assert recalled["hits"][0]["sources"][0]["file"]
    why = server.call("explain", recall_id=recalled["id"], why=entry["id"], **HERE)["result"]
    assert why["why"]["reason"] == "injected" and why["injected"][0]["id"] == entry["id"]
    ended = server.call(
        "end_run", messages=turns("My hat is red."), session_id="s", run_id="r", **HERE
    )
    assert ended["result"]["reward"] == 0.0 and len(ended["result"]["entries"]) == 1
    fact = server.call("remember", text="The code is on the board.", **HERE)["result"]
    assert fact["sources"]
    assert server.call("status", **HERE)["result"]["project"] == "p"
    forgotten = server.call("forget", ids=[entry["id"]], **HERE)["result"]
    assert entry["id"] in forgotten["ids"]
    assert "blue" not in server.call("recall", query="my bag", **HERE)["result"]["text"]
    elsewhere = server.call("recall", query="my hat", project="q", agent="test.main")
    assert elsewhere["result"]["hits"] == []
    assert server.end()[0] == 0


def test_hooks_over_rpc(serve: Callable[..., Server]) -> None:
    """`hook` takes the host-independent event and context and returns what the hook returns."""
    server = serve()
    context = {"agent_id": "test.main", "session_id": "s", "run_id": "r1"}
    scope = {"project": "p"}
    start = server.call("hook", name="session_start", context=context, **scope)
    assert start["result"] is None
    event = {"messages": turns("My bag is blue.")}
    ended = server.call("hook", name="agent_end", event=event, context=context, **scope)
    assert ended["result"] is None
    event = {"prompt": "Which colour has my bag?", "messages": []}
    context = {**context, "run_id": "r2"}
    addition = server.call(
        "hook", name="before_prompt_build", event=event, context=context, **scope
    )
    assert "bag is blue" in addition["result"]["prepend_context"]
    assert addition["result"]["recall_id"]


WRONG = [
    (b"{not json", -32700),
    (b"\xff\xfe", -32700),
    (b"[" * 100_000, -32700),
    (b"7", -32600),
    (b"[]", -32600),
    (b'{"id": 1, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600),
    (b'{"jsonrpc": "2.0", "id": [1], "method": "ping"}', -32600),
    (request("purge"), -32601),
    (request("__init__"), -32601),
    ({"jsonrpc": "2.0", "id": 1, "method": "recall", "params": ["query"]}, -32602),
    (request("recall"), -32602),
    (request("recall", query=5), -32602),
    (request("recall", query="x", k=True), -32602),
    (request("recall", query="x", at="yesterday"), -32602),
    (request("recall", query="x", purpose="fun"), -32602),
    (request("recall", query="x", colour="red"), -32602),
    (request("hook", name="before_lunch", context={}), -32602),
    (request("hook", name="session_start", context={"agent_id": "a"}, host="moon"), -32602),
    (request("hook", name="session_start", context={}), -32602),
    (request("hook", name="session_start", context={"agent_id": "a", "moon": 1}), -32602),
    (
        request("hook", name="agent_end", context={"agent_id": "a"}, event={"prompt": ""}),
        -32602,
    ),
    (request("record", messages=[{"role": "king", "content": ""}], session_id="s"), -32000),
    (request("recall", query="x", home="/dev/null/x"), -32000),
]


def test_bad_requests(serve: Callable[..., Server]) -> None:
    """Each wrong request gets its error, with JSON-RPC's code, and the server goes on."""
    server = serve()
    for line, code in WRONG:
        server.send(line)
        error = server.answer()["error"]
        assert error["code"] == code, (line, error)
        assert error["message"], line
        if code == -32000:
            assert error["data"]["error"] in ("MessageError", "SettingsError"), line
        assert server.call("ping")["result"]["pid"] == server.process.pid, line
    assert "Traceback" not in server.end()[1]


def test_batches_and_notifications(serve: Callable[..., Server]) -> None:
    """A batch is answered in one array; notifications are carried out without an answer."""
    server = serve()
    note = request("record", messages=turns("My bag is blue."), session_id="s", **HERE)
    del note["id"]
    server.send(b"\n")
    server.send([note])
    server.send([note | {"method": "nothing"}, request("ping", "a"), 5, request("nothing", 2.5)])
    answers = server.answer()
    assert [answer["id"] for answer in answers] == ["a", None, 2.5]
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, -32600, -32601]
    wait_until(lambda: server.call("recall", query="bag", **HERE)["result"]["hits"])


def test_a_slow_call_blocks_nobody(serve: Callable[..., Server], home: Path) -> None:
    """While calls wait for a lock, ping and other agents' calls are answered."""
    server = serve()
    server.call("record", messages=turns("My hat is red."), session_id="s", **HERE)
    with held_ledger(home, HERE["agent"]):
        for number in range(3):
            text = turns(f"My bag is number {number}.")
            server.send(request("record", number, messages=text, session_id="s", **HERE))
        server.send(request("ping", "quick"))
        assert server.answer()["id"] == "quick"
        server.send(request("recall", "other", query="hat", project="p", agent="test.other"))
        assert server.answer()["id"] == "other"
    assert {server.answer()["id"] for _ in range(3)} == {0, 1, 2}


def test_the_end_of_input_finishes_running_calls(serve: Callable[..., Server], home: Path) -> None:
    """After EOF running calls are finished and answered, and the exit code is 0."""
    server = serve()
    assert server.call("ping")["result"]["socket"] is None
    with held_ledger(home, HERE["agent"]):
        server.send(request("record", messages=turns("My bag is blue."), session_id="s", **HERE))
        server.stdin.close()
        time.sleep(0.2)
        assert server.process.poll() is None
    assert len(server.answer()["result"]["entries"]) == 1
    assert server.process.wait(PATIENCE) == 0


def test_sigterm_is_an_orderly_end(resident: subprocess.Popen[bytes], home: Path) -> None:
    """SIGTERM ends a resident that waits for clients: exit code 0, no socket left, no traceback."""
    path = socket_path(home)
    client = connect(path)
    client.write(json.dumps(request("ping", 1)).encode() + b"\n")
    client.flush()
    assert client.readline()  # accepted: one that still waits at the door is reset
    resident.terminate()
    assert b"Traceback" not in resident.communicate(timeout=PATIENCE)[1]
    assert resident.returncode == 0
    assert client.readline() == b""
    client.close()
    assert not path.exists()


def test_a_line_that_is_too_long(serve: Callable[..., Server]) -> None:
    """A line of more than 16 MB is an error, and the next line is read from its beginning."""
    server = serve()
    server.send(b'{"jsonrpc": "' + b"x" * (MAX_LINE_BYTES + 5) + b'"}')
    assert server.answer()["error"]["code"] == -32600
    assert server.call("ping")["result"]


@pytest.mark.usefixtures("resident")
def test_the_socket(home: Path) -> None:
    """Several clients share the socket, which only its user can reach."""
    path = socket_path(home)
    with connect(path) as first, connect(path) as two:
        for client in (two, first):
            client.write(json.dumps(request("ping", id(client))).encode() + b"\n")
            client.flush()
            assert json.loads(client.readline())["id"] == id(client)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.usefixtures("resident")
def test_silent_connections_lock_nobody_out(home: Path) -> None:
    """Of connections that ask nothing the oldest end for new ones; who has asked stays."""
    path = socket_path(home)
    ping = json.dumps(request("ping")).encode() + b"\n"

    def asked(client: IO[bytes]) -> bool:
        client.write(ping)
        client.flush()
        return "result" in json.loads(client.readline() or b"{}")

    def silent(number: int) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(path))
        if number % 2:
            with suppress(OSError):
                connection.sendall(b'{"jsonrpc"')
        return connection

    with connect(path) as friend:
        assert asked(friend)
        crowd = [silent(number) for number in range(100)]
        with connect(path) as late:
            assert asked(late)
        assert asked(friend)
        for connection in crowd:
            connection.close()


def test_a_connection_without_a_request_ends(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends no whole line in time is let go, and takes no thread any more."""
    monkeypatch.setattr(rpc, "REQUEST_SECONDS", 0.3)
    claim = claim_socket(home)
    assert claim is not None
    listener = rpc.SocketListener(claim, lambda reader, send: send(reader.readline()))
    try:
        for begun in (b"", b"half of a line"):
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(PATIENCE)
            client.connect(str(listener.path))
            client.sendall(begun)
            with suppress(ConnectionResetError):  # with the half line unread
                assert client.recv(1) == b""
            client.close()
        wait_until(lambda: not listener.count_clients())
    finally:
        listener.close()


def test_a_socket_has_one_owner(home: Path) -> None:
    """A claimed socket is nobody else's until the claim ends, however it ends."""
    first = claim_socket(home)
    assert first is not None and find_owner(home) is None
    first.note(ready=True)
    assert claim_socket(home) is None
    owner = find_owner(home)
    assert owner is not None and (owner.pid, owner.ready) == (os.getpid(), True)
    first.hand_over()  # as a process that dies: the socket stays where it is
    assert socket_path(home).is_socket() and find_owner(home) is None
    second = claim_socket(home)
    assert second is not None
    second.end()
    assert not socket_path(home).exists()


def test_a_version_that_is_installed_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resident sees that its own files are another version's, or gone; an edit is no version."""
    module = tmp_path / "__init__.py"
    monkeypatch.setattr(memtier_plugin, "__file__", str(module))
    module.write_text(f'__version__ = "{memtier_plugin.__version__}"\n')
    is_replaced = rpc._watch_version()
    module.write_text(f'__version__ = "{memtier_plugin.__version__}"\nx = 1\n')
    assert not is_replaced()
    module.write_text('__version__ = "99.0.0"\n')
    assert is_replaced()
    module.unlink()
    assert is_replaced()


def test_a_child_that_is_forked_has_no_claim(home: Path) -> None:
    """A process that is forked while its parent has the socket does not keep it from the next."""
    claim = claim_socket(home)
    assert claim is not None

    def work() -> None:
        os.fstat(claim.lock)

    assert "Bad file descriptor" in run_in_fork(work)
    claim.end()


def test_a_foreign_file_at_the_sockets_place(home: Path) -> None:
    """A file that is no socket is neither removed nor used, and named."""
    path = socket_path(home)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text("mine")
    with pytest.raises(UnsafePath, match=re.escape(str(path))):
        claim_socket(home)
    assert path.read_text() == "mine"


def test_socket_paths(tmp_path: Path) -> None:
    """The socket is in the home, for the user alone; one with too long a path is not."""
    home, deep = tmp_path / "new" / "home", Path("/h" * 60)
    assert make_socket_folder(home) == socket_path(home) == home / "run" / "memtier.sock"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (home, home / "run")] == [0o700] * 2
    assert len(os.fsencode(socket_path(deep))) < 104
    assert socket_path(deep) != socket_path(deep / "other")


def test_the_peer_is_known() -> None:
    """The system tells the user at the other end of a socket."""
    first, other = socket.socketpair(socket.AF_UNIX)
    with first, other:
        assert peer_uid(first) == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_is_refused(resident: subprocess.Popen[bytes], home: Path) -> None:
    """Even where the file's mode would let another user in, the resident hangs up on them."""
    path = socket_path(home)
    connect(path).close()
    script = """
import os, socket, sys
client = socket.socket(socket.AF_UNIX)
os.fchdir(int(sys.argv[1]))
os.setuid(65534)
client.connect(sys.argv[2])
print(client.recv(10))
"""
    path.parent.chmod(0o755)
    path.chmod(0o666)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        result = subprocess.run(
            [sys.executable, "-c", script, str(folder), path.name],
            pass_fds=[folder],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        os.close(folder)
    assert result.stdout.strip() == "b''"
    resident.terminate()
    assert b"user 65534 was refused" in resident.communicate(timeout=PATIENCE)[1]


@pytest.mark.slow
def test_what_is_served_is_consolidated(serve: Callable[..., Server], home: Path) -> None:
    """The server consolidates the projects that it was asked for, at their interval."""
    write_config(home, "consolidation: {interval_minutes: 0.01}\n")
    server = serve("scheduler")
    server.call("record", messages=turns("I live in Lisbon."), session_id="s", **HERE)
    with MemTier.open(home, "p", "test.main") as memory:
        wait_until(memory.facts)
    assert server.end()[0] == 0
