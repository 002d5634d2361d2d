"""`memtier serve --tcp`: who is let in, to what, and what attackers get."""

from __future__ import annotations

import ctypes
import json
import random
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import pytest

from memtier_plugin.server.requests import MAX_TEXT_CHARS, MAX_VALUES
from tests.builders import turns
from tests.processes import PATIENCE, run_memtier, wait_until
from tests.server.tcp import Client, Resident, make_certificate, request

COLOURS = {"a": "amber", "b": "brown"}


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:
    """Return a resident behind TLS whose projects `a` and `b` know a colour each."""
    folder = tmp_path_factory.mktemp("tcp")
    server = Resident(folder / "home", make_certificate(folder))
    client = Client(server, server.token("*"))
    for project, colour in COLOURS.items():
        message = turns(f"The crane is {colour}.")
        for agent in ("main", "x", "y"):
            client.call("record", project=project, agent=agent, session_id="s", messages=message)
    Client.close_all()
    yield server
    assert "Traceback" not in server.end()


@pytest.fixture(autouse=True)
def _hang_up() -> Iterator[None]:
    """Close what a test has left open."""
    yield
    Client.close_all()


def refused(answer: Any) -> str:
    """Return the message of an answer that refuses, and names no other colour."""
    assert not any(colour in json.dumps(answer) for colour in COLOURS.values())
    return str(answer["error"]["message"])


def test_a_token_reaches_its_project(resident: Resident) -> None:
    """The only project of a token need not be named; another is refused whatever the method."""
    client = Client(resident, resident.token("a"))
    assert "amber" in client.call("recall", query="crane")["result"]["text"]
    assert "amber" in client.call("recall", query="crane", project="a")["result"]["text"]
    entry = client.call("recall", query="crane")["result"]["hits"][0]["id"]
    calls: dict[str, dict[str, Any]] = {
        "recall": {"query": "crane"},
        "ask": {"question": "crane"},
        "explain": {"recall_id": "x"},
        "record": {"messages": [], "session_id": "s"},
        "end_run": {"messages": [], "session_id": "s"},
        "remember": {"text": "The crane is red."},
        "forget": {"ids": [entry]},
        "unforget": {"ids": [entry]},
        "facts": {},
        "fact": {"fact_id": entry},
        "review": {},
        "status": {},
        "hook": {"name": "before_prompt_build", "event": {"prompt": "crane"}, "context": {}},
        "tool": {"name": "memtier_search", "arguments": {"query": "crane"}, "context": {}},
        "command": {"text": "status", "context": {}},
    }
    for method, params in calls.items():
        assert "does not reach" in refused(client.call(method, project="b", **params)), method
    for method in ("hook", "tool", "command"):  # the same in the context
        params = {**calls[method], "context": {"agent_id": "main", "project": "b"}}
        assert "does not reach" in refused(client.call(method, project="a", **params))
    for method in ("offers", "complete", "nothing", "__init__", "restricted"):
        assert refused(client.call(method, project="b"))


def test_a_wildcard(resident: Resident) -> None:
    """A token for a beginning of names reaches these, has to name one, and reaches no others."""
    client = Client(resident, resident.token("tenant-*"))
    assert "error" not in client.call("facts", project="tenant-1")
    assert "missing" in refused(client.call("facts"))
    assert "does not reach" in refused(client.call("facts", project="a"))


def test_a_token_bound_to_an_agent(resident: Resident) -> None:
    """It speaks for that agent and its sub-agents, in requests, contexts and hosts' payloads."""
    client = Client(resident, resident.token("a", agent="x"))
    assert "amber" in client.call("recall", query="crane")["result"]["text"]
    assert "error" not in client.call("facts", agent="x.subagent")
    for agent in ("y", "main", "xy", ""):
        assert "bound to agent" in refused(client.call("recall", query="crane", agent=agent))
    event = {"prompt": "crane"}
    own = {"name": "before_prompt_build", "event": event, "context": {"agent_id": "y"}}
    assert "bound to agent" in refused(client.call("hook", **own))
    context = {"agentId": "y", "sessionKey": "agent:y:main"}
    for host in ("openclaw", "hermes"):
        params: dict[str, Any] = {"host": host, "context": context}
        assert refused(client.call("tool", name="memtier_search", arguments=event, **params))
        assert refused(client.call("command", text="status", **params))
    hook = {"host": "openclaw", "name": "before_prompt_build", "event": event}
    assert "bound to agent" in refused(client.call("hook", context=context, **hook))


def test_a_token_bound_to_a_sender(resident: Resident) -> None:
    """It speaks for that sender, also where the request names none; what shows all is refused."""
    both = Client(resident, resident.token("c"))
    for sender in ("ines", "omar"):
        spoken = {"messages": turns(f"I like {sender}'s tea."), "session_id": "g", "sender": sender}
        assert "error" not in both.call("record", **spoken)
    client = Client(resident, resident.token("c", sender="ines"))
    text = client.call("recall", query="tea")["result"]["text"]
    assert "ines's" in text and "omar" not in text
    assert "bound to sender" in refused(client.call("recall", query="tea", sender="omar"))
    assert "sender" in refused(client.call("status"))
    recalled = {who: both.call("recall", query="tea", sender=who) for who in ("ines", "omar")}
    own, other = (recalled[who]["result"]["id"] for who in ("ines", "omar"))
    assert client.call("explain", recall_id=own)["result"]["id"] == own
    assert "no recall" in refused(client.call("explain", recall_id=other))
    entry = client.call("record", messages=turns("And milk."), session_id="g")["result"]["entries"]
    assert entry[0]["sender"] == "ines"


@pytest.mark.parametrize("cases", [150, pytest.param(2000, marks=pytest.mark.slow)])
def test_nothing_gets_past_a_token(resident: Resident, cases: int) -> None:
    """Whatever a request names, wherever, no answer has a line of a project or agent not granted.

    The requests are those that the methods take, with other projects, agents and senders written
    into every place that might be read, and with their kinds of values mixed up.
    """
    chance = random.Random(5)
    for project in ("a", "b"):  # what no other test has written
        message = turns(f"The osprey is of {project}.")
        Client(resident, resident.token(project)).call(
            "record", agent="y", session_id="o", messages=message
        )
    granted = {"a": "osprey is of b", "x": "osprey is of"}  # by the token: what it must not see
    clients = {
        "a": Client(resident, resident.token("a")),
        "x": Client(resident, resident.token("a", "b", agent="x")),
    }
    names: list[Any] = [
        "a",
        "b",
        "y",
        "x",
        "*",
        "../b",
        "b/",
        "B",
        "b\0",
        "",
        None,
        5,
        ["b"],
        {"a": 1},
    ]
    places = ["project", "agent", "sender", "home", "session_id", "host", "workspace", "agent_id"]
    search = {"query": "osprey", "purpose": "search", "k": 50}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("recall", search),
        ("ask", {"question": "osprey?"}),
        ("facts", {}),
        ("status", {}),
        ("tool", {"name": "memtier_search", "arguments": {"query": "osprey"}}),
        ("hook", {"name": "before_prompt_build", "event": {"prompt": "Which osprey?"}}),
        ("command", {"text": "status"}),
    ]
    seen = 0
    for _ in range(cases):
        key, client = chance.choice([*clients.items()])
        method, plain = chance.choice(calls)
        who = {"project": chance.choice("ab"), "agent": chance.choice(["x", "y", "main"])}
        context = {"agent_id": who["agent"], "project": chance.choice("ab")}
        params: dict[str, Any] = {**plain, **who}
        if method in ("tool", "hook", "command"):
            params["context"] = context
        for name in chance.sample(places, chance.choice([0, 0, 1, 2])):
            chance.choice([params, context])[name] = chance.choice(names)
        answer = json.dumps(client.call(method, **params))
        assert granted[key] not in answer, (key, method, params)
        seen += "osprey is of a" in answer
    assert seen > cases / 200  # what is granted is shown, or this would show nothing


def test_folders_that_a_client_names_have_no_effect(resident: Resident, tmp_path: Path) -> None:
    """A home, a workspace or a folder of the client's choice is neither read nor made."""
    client = Client(resident, resident.token("a"))
    stolen = tmp_path / "stolen"
    answer = client.call("recall", query="crane", home=str(stolen))
    assert "amber" in answer["result"]["text"]
    folders = {"home": str(stolen), "workspace": str(stolen)}
    client.call("tool", name="memtier_search", arguments={"query": "crane"}, context=folders)
    hook = {"host": "openclaw", "name": "agent_end", "event": {"messages": [], "cwd": str(stolen)}}
    client.call("hook", context={"sessionKey": "k", "workspaceDir": str(stolen)}, **hook)
    assert not stolen.exists()
    coding = {"name": "Stop", "event": {"transcript_path": "/etc/passwd"}, "context": {}}
    assert "not available" in refused(client.call("hook", host="claude-code", **coding))


def test_hosts_of_two_tenants_do_not_share_sessions(resident: Resident) -> None:
    """The prompt of a run is not that of another tenant's run of the same id."""
    context = {"agentId": "main", "sessionKey": "agent:main:main", "runId": "run-1"}
    hook = {"host": "openclaw", "name": "before_prompt_build", "context": context}
    first = Client(resident, resident.token("t-1"))
    second = Client(resident, resident.token("t-2"))
    first.call("hook", event={"prompt": "my secret word is heron"}, **hook)
    second.call("hook", event={"prompt": "what is the secret?"}, **hook)
    folders = {path.parent.parent.name for path in resident.home.glob("hosts/*/hosts/*.json")}
    assert len(folders) >= 2


@pytest.mark.parametrize("token", ["", "mt", "mt_x", "mt_x_y", "x" * 3000, "mt_\xe9_y", "a, b"])
def test_a_wrong_token(resident: Resident, token: str) -> None:
    """It is refused with a remedy, in whatever scheme, and the connection ends."""
    for header in (f"Bearer {token}", token, f"Basic {token}"):
        client = Client(resident)
        client.headers = {"Authorization": header}
        answer = client.call("recall", query="crane", project="a")
        assert (client.status, answer["error"]["code"]) == (401, -32001)
        assert "memtier token new" in refused(answer) and client.http.sock is None


def test_nearly_the_token(resident: Resident) -> None:
    """Every single changed character of a token makes it none; so does another one's id."""
    token, other = resident.token("a"), resident.token("b")
    for index in range(0, len(token), 5):
        changed = token[:index] + ("x" if token[index] != "x" else "y") + token[index + 1 :]
        assert "error" in Client(resident, changed).call("ping")
    mixed = "_".join([*other.split("_")[:2], token.split("_", 2)[2]])
    assert "error" in Client(resident, mixed).call("ping")


def test_what_is_no_request_with_a_token(resident: Resident) -> None:
    """Nothing is answered without the token in its header; elsewhere it has no effect."""
    token, head = resident.token("a"), b"POST / HTTP/1.1\r\nHost: x\r\n"
    body = request("recall", query="crane", project="a", token=token)
    sized = b"Content-Length: %d\r\n\r\n" % len(body)
    openings = [
        head + sized + body,
        b"POST /?token=%b HTTP/1.1\r\nHost: x\r\n" % token.encode() + sized + body,
        head + b"X-Long: " + b"x" * 20_000,
        b"\x16\x03\x01" + bytes(range(256)) + b"\n",
        body + b"\n",
        b"{" * 90_000,
        b"\r\n\r\n\r\n",
    ]
    for opening in openings:
        answer = Client(resident).send_raw(opening)
        assert b"result" not in answer and b"amber" not in answer, opening
    for path, method, status in (("/x", "POST", 404), ("/", "GET", 405)):
        client = Client(resident, token)
        client.http.request(method, path, headers=client.headers)
        assert refused(client.answer()) and client.status == status


def test_plain_text_and_wrong_certificates(resident: Resident) -> None:
    """Without TLS no answer comes; a client that knows another root does not go on."""
    where = ("127.0.0.1", resident.port)
    with socket.create_connection(where, timeout=20) as plain, suppress(ConnectionError):
        head = f"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {resident.token('a')}\r\n"
        plain.sendall(f"{head}Content-Length: 0\r\n\r\n".encode())
        assert b"HTTP" not in plain.recv(1000)
    strangers = ssl.create_default_context()
    with (
        socket.create_connection(where, timeout=20) as raw,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        strangers.wrap_socket(raw, server_hostname="127.0.0.1")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with catch_warnings():
        simplefilter("ignore", DeprecationWarning)
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(where, timeout=20) as raw, pytest.raises(OSError):
        old.wrap_socket(raw)


@pytest.mark.parametrize("cases", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_drawn_bytes_under_tls(resident: Resident, cases: int) -> None:
    """Any bytes, in the place of a handshake or of a request, or within one, let nobody in.

    They stop nobody else either; what the server writes of them is looked at when it ends.
    """
    rng, token = random.Random(cases), resident.token("a")
    body, hello = request("recall", query="crane", project="b"), _client_hello()
    head = f"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    message = f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    for _ in range(cases):
        raw = rng.random() < 0.5
        opening = bytearray(hello if raw else message)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(opening))
            opening[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(1, 4))
        sent = bytes(opening) if rng.random() < 0.8 else rng.randbytes(rng.randrange(1, 500))
        with suppress(OSError, ValueError):
            if raw:
                with socket.create_connection(("127.0.0.1", resident.port), 20) as plain:
                    plain.sendall(sent)
                    plain.shutdown(socket.SHUT_WR)
                    assert b"result" not in plain.recv(4096)
            else:
                client = Client(resident)
                client.http.sock.settimeout(0.05)
                assert b"brown" not in client.send_raw(sent)
        Client.close_all()
    assert "amber" in Client(resident, token).call("recall", query="crane")["result"]["text"]


def _client_hello() -> bytes:
    """Return the first bytes of a client's handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_a_network_needs_tls(home: Path) -> None:
    """To listen on a network without TLS is refused, with the remedy, before anything is open."""
    answer = run_memtier("--home", home, "serve", "--tcp", "0.0.0.0:0", code=1).output
    assert "plain text" in answer and "--certificate" in answer


def test_bad_requests_after_the_token(resident: Resident) -> None:
    """What is deep, long, a batch or no JSON is refused; others go on, and so does the client."""
    token, other = resident.token("a"), Client(resident, resident.token("a"))
    deep = b'{"jsonrpc":"2.0","id":1,"method":"recall","params":%s%s}'
    bad = {
        "nested": deep % (b"[" * 500, b"]" * 500),
        "batches": json.dumps([json.loads(request("ping"))] * 3).encode(),
        "not JSON": b"{]",
        "objects or lists": b"[" * 100_001,
    }
    client = Client(resident, token)
    for words, body in bad.items():
        client.send(body)
        assert words in refused(client.answer()) and client.status == 400
    client.send(deep % (b"[" * 500, b"]" * 500 + b" " * 70_000))  # read in its turn only
    assert "nested" in refused(client.answer())
    for body in (b"\xff\xfe", b'"text"', b""):
        client.send(body)
        assert refused(client.answer())
    head = f"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n".encode()
    sized = head + b"Content-Length: %d\r\n\r\n" % (16 * 1024 * 1024)
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n500001\r\n" + b"x" * 0x500001
    for data in (sized, chunked):
        answer = Client(resident).send_raw(data)
        assert (b" 413 " in answer and b"longer" in answer) or data is chunked
    assert "amber" in client.call("recall", query="crane")["result"]["text"]
    assert "amber" in other.call("recall", query="crane")["result"]["text"]


def test_who_waits_no_more_is_not_served(resident: Resident) -> None:
    """A request that waited longer for its turn than its sender does is answered as too late."""
    client = Client(resident, resident.token("a"))
    call = json.loads(request("remember", text="The quay is closed."))
    client.send(json.dumps({**call, "seconds": -1}).encode())
    assert client.answer()["error"]["data"]["error"] == "Busy"
    assert "closed" not in json.dumps(client.call("facts"))
    client.send(json.dumps({**json.loads(request("facts")), "seconds": 20}).encode())
    assert "result" in client.answer()


def test_a_damaged_file_of_tokens(tmp_path: Path) -> None:
    """Whoever is connected is refused from then on, with a warning in the log, and no crash."""
    server = Resident(tmp_path / "home", None)
    client = Client(server, server.token("a"))
    (server.home / "tokens.json").write_text("{")
    assert "revoked" in refused(client.call("facts"))
    assert "tokens.json" in (errors := server.end()) and "Traceback" not in errors


def test_a_half_request_is_dropped(resident: Resident) -> None:
    """What is not complete when the connection ends is not carried out."""
    token = resident.token("h")
    client, body = Client(resident, token), request("remember", text="The quay is closed.")
    client.headers["Content-Length"] = str(len(body))
    client.send(body[:-1])
    client.close()
    time.sleep(0.2)
    assert Client(resident, token).call("facts")["result"]["facts"] == []


def test_a_revoked_token(resident: Resident) -> None:
    """An open connection is refused with its next request, and ends; the command tells of it."""
    token = resident.token("a", name="front")
    client = Client(resident, token)
    assert "result" in client.call("ping")
    run_memtier("--home", resident.home, "token", "revoke", "front")
    assert "revoked" in refused(client.call("recall", query="crane")) and client.http.sock is None
    run_memtier("--home", resident.home, "token", "revoke", "front", code=1)


def test_a_signal_that_another_thread_gets(tmp_path: Path) -> None:
    """It ends the server all the same, once the calls that run are answered."""
    server = Resident(tmp_path / "home", None)
    client = Client(server, server.token("a"))
    assert "result" in client.call("facts")
    threads = [int(path.name) for path in Path(f"/proc/{server.process.pid}/task").glob("*")]
    if len(threads) < 2:
        pytest.skip("threads cannot be told apart here")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.tgkill(server.process.pid, max(threads), signal.SIGTERM) == 0
    assert server.process.wait(PATIENCE) == 0
    server.process.communicate()


def test_what_the_home_keeps_of_a_token(resident: Resident) -> None:
    """A hash and what is granted: the token itself is in no file, and its file is the user's."""
    token = resident.token("a")
    secret = token.split("_", 2)[2].encode()
    files = [path for path in resident.home.rglob("*") if path.is_file()]
    assert files and not [path for path in files if secret in path.read_bytes()]
    assert (resident.home / "tokens.json").stat().st_mode & 0o777 == 0o600
    listed = run_memtier("--json", "--home", resident.home, "token", "list").output
    assert token not in listed and "sha256" not in listed


def test_a_crowd_without_tokens(resident: Resident) -> None:
    """Connections that bring nothing do not keep out who has a token."""
    crowd = [socket.create_connection(("127.0.0.1", resident.port)) for _ in range(160)]
    try:
        client = Client(resident, resident.token("a"))
        assert "amber" in client.call("recall", query="crane")["result"]["text"]
    finally:
        for connection in crowd:
            connection.close()


def test_slow_senders(tmp_path: Path) -> None:
    """A head or a body that comes a byte at a time has its time, however often a byte comes."""
    server = Resident(tmp_path / "home", None, limits={"REQUEST_SECONDS": 0.5})
    token = server.token("a")
    head = f"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n".encode()
    for opening in (b"", head, head + b"Content-Length: 90\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as slow:
            answer = _drip(slow, opening)
        assert b"result" not in answer
        assert (b"408" in answer) == opening.endswith(b"\n\r\n")
    assert "result" in Client(server, token).call("ping")
    assert "Traceback" not in server.end()


def _drip(slow: socket.socket, opening: bytes) -> bytes:
    """Send an opening, and then bytes until the connection ends; return what came back."""
    slow.sendall(opening)
    slow.settimeout(0.02)
    answer, end = b"", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(TimeoutError):
            try:
                if not (more := slow.recv(4096)):
                    return answer
                answer += more
            except ConnectionError:
                return answer
        with suppress(OSError):
            slow.sendall(b"x")
    raise AssertionError("the connection did not end")


def test_who_reads_nothing(tmp_path: Path) -> None:
    """A client that does not take its answers loses its connection; its answers take no memory."""
    server = Resident(tmp_path / "home", None, limits={"SEND_SECONDS": 0.3})
    token = server.token("a")
    long = {"role": "user", "content": "We ship on Friday. " * 3_000}
    Client(server, token).call("record", session_id="l", messages=[long])
    body = request("recall", query="Friday", purpose="search", k=50)
    head = f"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    message = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.socket() as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        idle.settimeout(PATIENCE)
        idle.connect(("127.0.0.1", server.port))
        with pytest.raises(ConnectionError):
            while True:
                idle.sendall(message)
    assert "Traceback" not in server.end()


def test_who_hangs_up(resident: Resident) -> None:
    """What a client asked to store before it hung up is stored."""
    token = resident.token("hang-up")
    client = Client(resident, token)
    client.send(request("remember", text="The quay is closed."))
    client.close()
    wait_until(lambda: "closed" in json.dumps(Client(resident, token).call("facts")))


def test_limits_at_the_door(resident: Resident) -> None:
    """Too long a text, too many values and too long a line are refused; the next call is served."""
    client = Client(resident, resident.token("a"))
    assert "characters" in refused(client.call("remember", text="x" * (MAX_TEXT_CHARS + 1)))
    arguments = {"text": "x" * (MAX_TEXT_CHARS + 1)}
    more = {"name": "memtier_store", "context": {}, "arguments": arguments}
    assert "characters" in refused(client.call("tool", **more))
    assert "objects or lists" in refused(client.call("recall", query="x", more=[[]] * MAX_VALUES))
    long = {"role": "user", "content": "We ship on Friday. " * 20_000}
    assert client.call("record", session_id="l", messages=[long])["result"]["entries"]
    assert "amber" in client.call("recall", query="crane")["result"]["text"]


def test_sigterm_ends_it_whatever_runs(tmp_path: Path) -> None:
    """It ends though a client has much work running and waiting; what it acknowledged is there."""
    server = Resident(tmp_path / "home", None)
    token = server.token("a")
    client = Client(server, token)
    assert "error" not in client.call("remember", text="The quay is wet.", session_id="s")
    for number in range(20):
        text = f"We ship crane {number} on Friday. " * 300
        Client(server, token).send(request("remember", text=text))
    server.process.terminate()
    server.process.communicate(timeout=PATIENCE)
    assert server.process.returncode == 0
    again = Resident(tmp_path / "home", None)
    assert "wet" in json.dumps(Client(again, again.token("a")).call("facts"))
    again.end()
