"""Clients of residents on other machines: who is asked, and what happens when they are away."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.residents import Address, in_order, parse_address
from memtier_plugin.hooks.hermes import Provider
from memtier_plugin.hooks.remote import RemoteLink, RemoteResidents
from memtier_plugin.hooks.remote_memory import RemoteMemory
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.hooks.resident_connection import ResidentBroken, ResidentUnreachable
from tests.builders import turns
from tests.cases import each_case
from tests.frameworks import one_run
from tests.processes import PATIENCE, ROOT, run_command, run_python, wait_until
from tests.server.tcp import Resident, make_certificate

ADDRESSES = st.builds(
    Address,
    st.from_regex(r"[a-z][a-z0-9-]{0,10}\.example", fullmatch=True),
    st.integers(1, 65_535),
    st.just(True),
)
SHIM = ROOT / "hooks" / "openclaw"
Start = Callable[..., Resident]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts residents, with TLS; the tests are their clients."""
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("MEMTIER_CA_FILE", str(certificate[0]))
    started: list[Resident] = []

    def start(home: Path, port: int = 0) -> Resident:
        started.append(Resident(home, certificate, port))
        return started[-1]

    yield start
    for resident in started:
        if resident.process.poll() is None:
            resident.process.kill()
            resident.process.communicate()


def payload(home: Path, project: str, run: str, text: str) -> dict[str, Any]:
    """Return the hook call of a finished run."""
    context = {"agent_id": "hermes.default", "session_id": "s", "run_id": run}
    event = {"messages": [{"role": "user", "content": text}]}
    return {
        **{"name": "agent_end", "context": context, "event": event},
        **{"home": str(home), "project": project},
    }


# -- addresses and their order ---------------------------------------------------------------------


@given(st.sets(ADDRESSES, min_size=1, max_size=6), st.lists(st.text(max_size=10), max_size=20))
def test_only_the_projects_of_one_that_leaves_move(
    addresses: set[Address], projects: list[str]
) -> None:
    """Each of them goes to the next in its own order; the order is that of no list."""
    for project in projects:
        order = in_order(addresses, project)
        assert {*order} == addresses and order == in_order(sorted(addresses, key=str), project)
        for gone in addresses:
            rest = in_order(addresses - {gone}, project)
            assert rest == [address for address in order if address != gone]


def test_projects_are_spread() -> None:
    """Of 3,000 projects each of three residents is first for about a third."""
    addresses = [parse_address(f"tls://memory-{number}.example") for number in range(3)]
    first = [in_order(addresses, f"tenant-{number}")[0] for number in range(3000)]
    assert all(900 < first.count(address) < 1100 for address in addresses)


@given(ADDRESSES)
def test_an_address_is_read_as_it_is_written(address: Address) -> None:
    """Text and address are the same; TLS is what an address without a scheme means."""
    assert parse_address(str(address)) == address
    assert parse_address(f"{address.host}:{address.port}") == address
    assert parse_address(address.host) == Address(address.host, 7420)


@each_case("text", ["", "tls://", "http://a", "tls://a:b", "tls://a/b", "u@a", "a:99999"])
def test_what_is_no_address(text: str) -> None:
    """It is refused; so is a plain one that is not this machine's."""
    with pytest.raises(SettingsError):
        parse_address(text)
    with pytest.raises(SettingsError, match="plain text"):
        parse_address("tcp://memory.example:7420")
    assert not parse_address("tcp://[::1]:7420").tls


def test_the_order_is_the_same_in_javascript() -> None:
    """A project of a Hermes and an OpenClaw host is kept by one resident."""
    texts = ["tls://a.example", "b.example:1", "tls://c.example:7421", "tcp://127.0.0.1:5", "[::1]"]
    projects = ["shop", "tenant-17", "", "größe", "日本"]
    script = f"""
        import {{ inOrder, parseAddress }} from {json.dumps(str(SHIM / "residents.js"))};
        const addresses = {json.dumps(texts)}.map(parseAddress);
        const names = (project) => inOrder(addresses, project).map((each) => each.name);
        console.log(JSON.stringify({json.dumps(projects)}.map(names)));
    """
    theirs = json.loads(run_command("node", "--input-type=module", "-e", script).stdout)
    ours = [[str(a) for a in in_order(map(parse_address, texts), name)] for name in projects]
    assert theirs == ours


# -- against real residents ------------------------------------------------------------------------


def test_a_program_remembers_elsewhere(start: Start, tmp_path: Path) -> None:
    """What a run said is recalled by the next; nothing heavy is loaded, nothing is kept here."""
    resident = start(tmp_path / "home")
    code = """
        import sys
        from memtier_plugin.hooks.remote_memory import RemoteMemory
        with RemoteMemory("shop", residents=[sys.argv[1]], token=sys.argv[2]) as memory:
            said = [{"role": "user", "content": "My bag is in the blue locker."}]
            for _ in range(2):
                answer = memory.end_run(said, session_id="s", run_id="r1")
            print(memory.recall("Where is my bag?")["text"], len(answer["entries"]))
            print(memory.of("other").call("status", {}, 5)["entries"])
        heavy = {"apsw", "numpy", "yaml", "pluggy", "msgspec", "openai"} & {*sys.modules}
        assert not heavy, heavy
    """
    printed = run_python(code, resident.address, resident.token("shop", "other"))
    assert "blue locker" in printed


def test_message_objects_go_to_another_machine(start: Start, tmp_path: Path) -> None:
    """What an openai client answered is recorded elsewhere as it would be here."""
    resident = start(tmp_path / "home")
    with RemoteMemory("shop", residents=[resident.address], token=resident.token("shop")) as memory:
        answer = memory.end_run(one_run.responses(), session_id="s")
        assert (len(answer["entries"]), answer["reward"]) == (4, -0.5)


def test_a_resident_that_dies_and_one_that_is_not_shared(start: Start, tmp_path: Path) -> None:
    """Of a project that is not shared no other resident is asked; the run waits on disk for it."""
    residents = [start(tmp_path / name) for name in ("a", "b")]
    token = residents[0].token("shop")
    (tmp_path / "b" / "tokens.json").write_bytes((tmp_path / "a" / "tokens.json").read_bytes())
    texts = [each.address for each in residents]
    order = [str(address) for address in in_order(map(parse_address, texts), "shop")]
    first = residents[texts.index(order[0])]
    client = ResidentClient(
        (), tmp_path / "client", remote=RemoteResidents(texts, token=token, ca_file=str(first.root))
    )
    try:
        assert client.deliver(payload(tmp_path, "shop", "r1", "My bag is blue."), 20)
        first.kill()
        assert not client.deliver(payload(tmp_path, "shop", "r2", "My hat is green."), 20)
        with pytest.raises(ResidentUnreachable, match="kept by another resident"):
            client.call("recall", {"project": "shop", "query": "bag"}, 4)
        waiting = [*(tmp_path / "client" / "queue" / "remote").glob("*.json")]
        assert len(waiting) == 1 and not [*(tmp_path / "client" / "queue").glob("*.json")]
        start(first.home, first.port)
        wait_until(lambda: client.replay(10) == 1)
        recalled = client.call(
            "recall", {"project": "shop", "agent": "hermes.default", "query": "hat"}, 20
        )
        assert "green" in recalled["text"] and not waiting[0].exists()
    finally:
        client.close()


def test_a_resident_that_hangs(start: Start, tmp_path: Path) -> None:
    """The deadline holds, the connection is given up, and the next call is answered after it."""
    resident = start(tmp_path / "home")
    memory = RemoteMemory("shop", residents=[resident.address], token=resident.token("shop"))
    memory.end_run(turns("My bag is blue."), session_id="s")
    resident.process.send_signal(signal.SIGSTOP)
    try:
        started = time.monotonic()
        with pytest.raises(ResidentUnreachable):
            memory.recall("bag", seconds=0.5)
        assert time.monotonic() - started < PATIENCE / 2  # it would never answer
    finally:
        resident.process.send_signal(signal.SIGCONT)

    def recalled() -> bool:
        try:
            return "blue" in memory.recall("bag")["text"]
        except ResidentUnreachable:
            return False

    wait_until(recalled)
    memory.close()


def test_no_connection_outlives_its_link(start: Start, tmp_path: Path) -> None:
    """A resident that died, or a client that ended during a request, leaves no socket open."""
    resident = start(tmp_path / "home")
    residents = RemoteResidents(
        [resident.address], token=resident.token("shop"), ca_file=str(resident.root)
    )

    def connected() -> tuple[RemoteLink, list[socket.socket]]:
        """Return a link as two threads leave it, and its sockets."""
        link = residents.connect("shop", time.monotonic() + PATIENCE)
        connections = [link._take_connection() for _ in range(2)]
        connections[1].connect()
        link._idle += connections
        return link, [connection.sock for connection in connections]

    def ask() -> None:
        link.ask("recall", {"project": "shop", "agent": "main", "query": "bag"}, PATIENCE)

    link, sockets = connected()
    resident.process.send_signal(signal.SIGSTOP)
    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: len(link._idle) == 1)
    residents.close()
    resident.process.send_signal(signal.SIGCONT)
    asking.join()
    assert [each.fileno() for each in sockets] == [-1, -1]
    link, sockets = connected()
    resident.kill()
    with pytest.raises(ResidentBroken):
        ask()
    assert [each.fileno() for each in sockets] == [-1, -1]


def test_a_wrong_configuration_is_told(start: Start, tmp_path: Path) -> None:
    """A wrong token, a strange root, a missing file: each failure says which it is."""
    resident = start(tmp_path / "home")
    wrong = {
        "revoked or has expired": {"token": "mt_x_y"},
        "certificate verify failed": {
            "token": "t",
            "ca_file": "/etc/ssl/certs/ca-certificates.crt",
        },
        "cannot be read": {"token_file": str(tmp_path / "none")},
        "no token": {},
        "is no root certificate": {"token": "t", "ca_file": str(tmp_path / "none")},
    }
    for words, keys in wrong.items():
        residents = RemoteResidents([resident.address], **{"ca_file": str(resident.root), **keys})
        with pytest.raises(ResidentUnreachable, match=words):
            residents.connect("shop", time.monotonic() + 5)
    with pytest.raises(ResidentUnreachable, match="plain text"):
        RemoteResidents(["tcp://memory.example"], token="t").connect("shop", time.monotonic() + 5)
    with pytest.raises(SettingsError, match="MEMTIER_RESIDENTS"):
        RemoteMemory("shop")


def test_hermes_remembers_elsewhere(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `memtier.json` alone: a turn is stored there and recalled by the next."""
    resident = start(tmp_path / "home")
    hermes = tmp_path / "hermes"
    hermes.mkdir()
    (hermes / "token").write_text(resident.token("shop", agent="hermes.default") + "\n")
    config = {"residents": [resident.address], "token_file": str(hermes / "token")}
    config |= {"project": "shop", "home": str(tmp_path / "client"), "command": ["/nowhere"]}
    (hermes / "memtier.json").write_text(json.dumps(config))
    monkeypatch.setenv("HERMES_HOME", str(hermes))
    provider = Provider()
    provider.initialize("s1", hermes_home=str(hermes), agent_identity="default")
    try:
        provider.on_turn_start(1, "My bag is in the blue locker.")
        provider.sync_turn("My bag is in the blue locker.", "Noted.")
        provider.on_session_switch("s2")
        provider.on_turn_start(2, "Where is my bag?")
        assert "blue locker" in provider.prefetch("Where is my bag?")
        answer = json.loads(provider.handle_tool_call("memtier_search", {"query": "bag"}))
        assert "blue locker" in answer["result"]
    finally:
        provider.shutdown()


def test_openclaw_remembers_elsewhere(start: Start, tmp_path: Path) -> None:
    """By the plugin's configuration alone; a run waits on disk while its resident is away."""
    resident = start(tmp_path / "home")
    (tmp_path / "token").write_text(resident.token("shop") + "\n")
    config = {
        **{"residents": [resident.address], "tokenFile": str(tmp_path / "token")},
        **{"caFile": str(resident.root), "project": "shop"},
        **{"home": str(tmp_path / "client"), "command": ["/nowhere"]},
    }
    script = f"""
        import {{ Bridge }} from {json.dumps(str(SHIM / "bridge.js"))};
        const bridge = new Bridge({{ ...{json.dumps(config)}, log: {{ warn: console.error }} }});
        const context = {{ agent_id: "main", session_id: "s", run_id: process.argv[1] }};
        const event = {{ messages: [{{ role: "user", content: process.argv[2] }}] }};
        const run = {{ name: "agent_end", home: bridge.home, project: "shop", context, event }};
        const stored = await bridge.deliver(run, 15000).then(() => true, () => false);
        await bridge.replaying;
        const recalled = await bridge.call("recall", {{ project: "shop", query: "bag hat" }}, 4000)
          .catch((error) => ({{ text: error.message }}));
        console.log(stored, recalled.text);
        bridge.close();
    """

    def turn(run: str, text: str) -> str:
        return run_command("node", "--input-type=module", "-e", script, run, text).stdout

    first = turn("r1", "My bag is blue.")
    assert first.startswith("true") and "blue" in first
    resident.kill()
    assert turn("r2", "My hat is green.").startswith("false")
    start(resident.home, resident.port)
    last = turn("r3", "My coat is red.")
    assert last.startswith("true") and "green" in last
    assert not [*(tmp_path / "client" / "queue" / "remote").glob("*.json")]
