"""Machines as processes: the command, the daemons that follow, and what happens when they die."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import pytest

from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.shared.nats.ledger import snippet
from tests.builders import write_config
from tests.processes import run_memtier, running, start_daemon, start_python, wait_until
from tests.shared.engines import Engine, on_each_engine, open_for
from tests.shared.nats import NatsServer
from tests.shared.server import PostgresServer
from tests.shared.test_replicas import PROJECT, hits, ledgers, turns_of

pytestmark = pytest.mark.shared

WRITER: Final = """
import sys, pathlib
from memtier_plugin.memory import MemTier
home, name, runs = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with MemTier.open(home, "harbor", "a") as memory:
    for number in range(runs):
        run = f"{name}-{number}"
        message = {"role": "user", "content": f"{run}: crane {number} is at pier {name}."}
        for session in ("shared", name):
            key = f"{run}-{session}"
            while True:
                try:
                    memory.record([message], session_id=session, run_id=key)
                    break
                except Exception as error:
                    print(error, file=sys.stderr, flush=True)
            print(key, flush=True)
"""


def memtier(home: Path, *arguments: str, **more: Any) -> dict[str, Any]:
    """Run the command for a home and return the document that it prints."""
    options = ("--json", "--home", home, "--project", PROJECT)
    document = json.loads(run_memtier(*options, *arguments, **more).stdout.splitlines()[-1])
    assert isinstance(document, dict)
    return document


@pytest.fixture
def homes(engine: Engine, tmp_path: Path) -> list[Path]:
    """Return the homes of two machines that have joined the project."""
    paths = []
    for name in ("anna", "bert"):
        home = tmp_path / name
        where = {"shared": engine.url(name), "durability": engine.durability}
        write_config(home, {"ledger": where, "embedding": {"model": "none"}})
        memtier(home, "shared", "join")
        paths.append(home)
    return paths


def test_the_commands(
    postgres: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database is set up, a machine let in, its past delivered, and its leave taken."""
    home, url = tmp_path / "eric", postgres.url(database)
    write_config(home, {"ledger": {"shared": postgres.url(database, "eric")}})
    assert memtier(home, "shared", "init", "--url", url)["migrations"] == []
    assert memtier(home, "shared", "migrate", "--url", url)["migrations"] == []
    with MemTier.open(home, PROJECT, "a") as memory:
        memory.record([{"role": "user", "content": "The pier is long."}], session_id="s")
    memtier(home, "shared", "join", code=1)
    monkeypatch.setenv("ERICS", "owner")
    options = ("--password-env", "ERICS", "--url", url)
    assert memtier(home, "shared", "grant", "eric", *options)["new_role"]
    assert memtier(home, "shared", "status", code=1)["kind"] == "SettingsError"
    assert memtier(home, "shared", "join")["delivered"] == 1
    assert memtier(home, "shared", "drain")["waiting"] == 0
    state = memtier(home, "shared", "status")
    assert (state["lines"], state["behind"], state["purge_pending"]) == (1, 0, [])
    assert memtier(home, "status")["shared"]["error"] is None
    options = ("--home", home, "--project", PROJECT)
    assert "; 0 lines not delivered yet" in run_memtier(*options, "status").stdout
    assert "Nothing has been purged" in run_memtier(*options, "shared", "purges").stdout
    memtier(home, "purge", "--query", "pier", "--yes")
    [purge] = memtier(home, "shared", "purges")["purges"]
    assert purge["purge"] in run_memtier(*options, "shared", "purges").stdout
    assert memtier(home, "shared", "revoke", "eric", "--url", url)["revoked"] == 1
    assert "may not write" in memtier(home, "remember", "A fact.", code=1)["error"]


def test_the_commands_with_nats(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream is made, a machine gets its lines of configuration, joins, and is let go."""
    monkeypatch.setenv("NATS_PASSWORD", "owner")
    nats.forget(PROJECT)
    home, url = tmp_path / "eric", nats.url()
    write_config(home, {"ledger": {"shared": nats.url("eric"), "durability": "os"}})
    with MemTier.open(home, PROJECT, "a") as memory:
        memory.record([{"role": "user", "content": "The pier is long."}], session_id="s")
    assert memtier(home, "shared", "init", "--url", url)["new_stream"]
    assert not memtier(home, "shared", "migrate", "--url", url)["new_stream"]
    assert "uthorization" in memtier(home, "shared", "join", code=1)["error"]
    granted = memtier(home, "shared", "grant", "eric", "--url", url)["add_to_users"]
    nats.add_user(PROJECT, "eric")
    assert granted == snippet(PROJECT, "eric")
    assert memtier(home, "shared", "join")["delivered"] == 1
    state = memtier(home, "shared", "status")
    assert (state["lines"], state["behind"], state["purge_pending"]) == (1, 0, [])
    assert memtier(home, "status")["shared"]["server"] == f"nats://127.0.0.1:{nats.port}"
    revoked = memtier(home, "shared", "revoke", "eric", "--url", url)
    assert (revoked["forgotten"], revoked["remove_from_users"]) == (1, "eric")


def test_a_project_does_not_say_where_it_is_shared(tmp_path: Path) -> None:
    """The server is named by the user's own file, without a password, and by no other."""
    from memtier_plugin.core.errors import SettingsError

    home = tmp_path / "home"
    for settings in ("http://host/db", "postgresql://a:secret@host/db", 3):
        write_config(home, {"ledger": {"shared": settings}})
        with pytest.raises(SettingsError, match="no password"):
            load_settings(home, PROJECT)
    write_config(home, {"ledger": {"shared": "postgresql://a@host/db"}})
    assert load_settings(home, PROJECT).ledger.shared == "postgresql://a@host/db"
    file = home / "projects" / PROJECT / "project.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("ledger: {shared: 'postgresql://a@host/db'}")
    with pytest.raises(SettingsError, match=r"only in the home's config\.yaml"):
        load_settings(home, PROJECT)


def follow(home: Path) -> subprocess.Popen[Any]:
    """Start the daemon of a machine, which follows the server."""
    with (home / "daemon.log").open("ab") as log:
        return start_daemon("--home", str(home), "--all", "--interval", "2", stderr=log)


def acknowledged(path: Path) -> set[str]:
    """Return what a writer printed: the runs that it was told are stored."""
    return {line for line in path.read_text().splitlines() if line}


@on_each_engine
@pytest.mark.parametrize("seed", [1])
def test_whoever_is_killed_nothing_is_lost(engine: Engine, homes: list[Path], seed: int) -> None:
    """Writers, followers and the server are killed: no line is lost or doubled, all are the same.

    A killed writer starts again from its first run, as a host does that delivers again.
    """
    draw, runs = random.Random(seed), int(os.environ.get("SHARED_RUNS", "25"))
    outputs = [home / "acknowledged" for home in homes]

    def write(number: int) -> subprocess.Popen[Any]:
        with outputs[number].open("ab") as out:
            arguments = ("-c", WRITER, homes[number], homes[number].name, str(runs))
            return start_python(*arguments, stdout=out, stderr=subprocess.DEVNULL)

    writers, followers = [write(0), write(1)], [follow(home) for home in homes]
    try:
        for victim in ("writer", "follower", "server", "writer", "server"):
            time.sleep(1.0 + draw.random())
            number = draw.randrange(2)
            if victim == "server":
                engine.server.kill()
                time.sleep(0.5)
                engine.server.start()
                continue
            group, start = (writers, write) if victim == "writer" else (followers, None)
            with running(group[number]):
                pass
            group[number] = start(number) if start else follow(homes[number])
        for writer in writers:
            assert writer.wait(120) == 0
    finally:
        for process in (*writers, *followers):
            with running(process):
                pass
    for home in (*homes, *homes):
        memtier(home, "shared", "drain")
    first, second = (MemTier.open(home, PROJECT, "a") for home in homes)
    with first, second:
        assert ledgers(first) == ledgers(second)
        entries = [logged.entry for logged in first.store.log.entries()]
        stored = [entry.run_id for entry in entries if entry]
        wanted = acknowledged(outputs[0]) | acknowledged(outputs[1])
        assert len(wanted) == 4 * runs and sorted(stored) == sorted(wanted)
        for session in ("shared", "anna", "bert"):
            turns = turns_of(first, session)
            assert turns == [*range(1, len(turns) + 1)]
        for query in ("Which crane is at pier anna?", "bert-3", "crane 7"):
            assert hits(first, query) == hits(second, query) != []


@on_each_engine
def test_a_follower_hears_of_a_line_soon(engine: Engine, homes: list[Path]) -> None:
    """What is said on one machine is found on the other while its daemon runs."""
    anna, bert = homes
    with running(follow(bert)), MemTier.open(anna, PROJECT, "a") as memory:
        state = bert / "projects" / PROJECT / ".shared" / "state.json"
        wait_until(state.exists)
        memory.record([{"role": "user", "content": "The crane is red."}], session_id="s")
        begun = time.monotonic()
        folder = bert / "projects" / PROJECT / "episodic" / "a"
        wait_until(lambda: any(b"crane" in path.read_bytes() for path in folder.glob("*.jsonl")))
        assert time.monotonic() - begun < 30
    ledger = open_for(engine, "bert")
    assert sum(head.offset for head in ledger.heads().values()) == 1
    ledger.close()
