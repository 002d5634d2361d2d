"""A machine whose rights end while it follows, and machines of other versions than the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtier_plugin.memory import MemTier
from memtier_plugin.storage.shared.postgres import server
from memtier_plugin.storage.shared.postgres.server import connect
from memtier_plugin.storage.shared.protocol import MachineGrant, Unreachable
from tests.builders import say, write_config
from tests.processes import running, wait_until
from tests.shared.server import PostgresServer
from tests.shared.test_machines import follow, memtier
from tests.shared.test_replicas import PROJECT, ledgers

pytestmark = pytest.mark.shared


def make_home(folder: Path, url: str, *, join: bool = True) -> Path:
    """Return a home whose project is shared."""
    write_config(folder, {"ledger": {"shared": url}, "embedding": {"model": "none"}})
    if join:
        memtier(folder, "shared", "join")
    return folder


def test_a_machine_that_is_revoked_while_it_follows(
    postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    """Its daemon says so once and goes on, its copy stays, and it gets nothing more."""
    anna, bert = (make_home(tmp_path / n, postgres.url(database, n)) for n in ("anna", "bert"))
    log = bert / "daemon.log"
    with MemTier.open(anna, PROJECT, "a") as memory:
        say(memory, "The crane is red.", run_id="r1")
        with running(follow(bert)) as daemon:
            copy = bert / "projects" / PROJECT / "episodic" / "a"
            wait_until(lambda: any(b"crane" in path.read_bytes() for path in copy.glob("*.jsonl")))
            server.revoke(postgres.url(database), "bert", PROJECT)
            say(memory, "The pier is long.", run_id="r2")
            wait_until(lambda: b"may not read the project any more" in log.read_bytes())
            wait_until(lambda: "may not read" in str(memtier(bert, "status")["shared"]["error"]))
            assert daemon.poll() is None
        before = {path.name: path.read_bytes() for path in copy.glob("*.jsonl")}
        assert not any(b"pier" in data for data in before.values())
        with MemTier.open(bert, PROJECT, "a") as other:
            assert "crane" in other.recall("crane").text
        server.grant(postgres.url(database), MachineGrant("bert", PROJECT))
        memtier(bert, "shared", "drain")
        with MemTier.open(bert, PROJECT, "a") as other:
            assert "pier" in other.recall("pier").text


def test_a_server_of_another_version(
    postgres: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said waits until they agree; what the older one has is there after migrating."""
    import psycopg

    scripts = server._migrations()
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE old")
    url = postgres.url("old")
    with monkeypatch.context() as patch:
        patch.setattr(server, "_migrations", lambda: scripts[:1])
        assert server.migrate(url) == [1]
    server.grant(url, MachineGrant("anna", PROJECT), "owner")
    with connect(postgres.url("old", "anna")) as connection:
        connection.execute(
            """SELECT memtier.append_at('harbor', 'semantic', '', 0, ARRAY['2026-01-05'::date],
                 ARRAY['k'::bytea], ARRAY['{}\n'::bytea], '{}', '{}', true)"""
        )
    home = make_home(tmp_path / "anna", postgres.url("old", "anna"), join=False)
    assert "memtier shared migrate" in memtier(home, "shared", "join", code=1)["error"]
    assert memtier(home, "shared", "migrate", "--url", url)["migrations"] == [
        number for number, _ in scripts[1:]
    ]
    assert memtier(home, "shared", "join")["fetched"] == 1
    with connect(url) as connection:
        connection.execute("INSERT INTO memtier.schema_version VALUES (99)")
    with MemTier.open(home, PROJECT, "a") as memory:
        say(memory, "The crane is red.", run_id="r1")
        assert "crane" in memory.recall("crane").text
        with pytest.raises(Unreachable, match="install a newer MemTier"):
            memory.synchronise()
        with connect(url) as connection:
            connection.execute("DELETE FROM memtier.schema_version WHERE version = 99")
        wait_until(lambda: memtier(home, "shared", "drain")["waiting"] == 0)
        assert any(b"crane" in data for data in ledgers(memory).values())
