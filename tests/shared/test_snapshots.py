"""A new machine begins with another's files and index, and follows the server from there."""

from __future__ import annotations

import io
import json
import shutil
import signal
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.shared.postgres.server import grant, revoke
from memtier_plugin.storage.shared.protocol import MachineGrant
from tests.builders import say_each, write_config
from tests.faults import injection
from tests.processes import PATIENCE, child_environment, fork_python
from tests.shared.server import PostgresServer
from tests.shared.test_machines import memtier
from tests.shared.test_replicas import PROJECT, hits, ledgers

pytestmark = pytest.mark.shared

QUERIES: Final = ("When does the harbor open?", "cranes", "tea", "Which code?")
LONG: Final = "agent " * 40  # a name that no folder can have


def make_home(postgres: PostgresServer, database: str, home: Path) -> Path:
    """Write the settings of a machine, which is called as its home is."""
    where = {"ledger": {"shared": postgres.url(database, home.name)}}
    write_config(home, {**where, "embedding": {"model": "none"}})
    return home


@pytest.fixture
def anna(postgres: PostgresServer, database: str, tmp_path: Path) -> Path:
    """Return the home of a machine with a past of all kinds, some of it not delivered yet."""
    home = make_home(postgres, database, tmp_path / "anna")
    memtier(home, "shared", "join")
    with MemTier.open(home, PROJECT, "a") as memory:
        say_each(memory, "The harbor opens at six.", "Mia likes green tea.")
        say_each(memory, "The code is swordfish.", run_id="r")
        memory.remember("The pier has two cranes.")
        memory.recall("cranes", purpose="inject", session_id="s", run_id="q")
    with MemTier.open(home, PROJECT, LONG) as memory:
        say_each(memory, "The lighthouse keeper is Ines.")
    return home


@pytest.fixture
def bert(postgres: PostgresServer, database: str, tmp_path: Path) -> Path:
    """Return the home of a machine that has not joined yet."""
    return make_home(postgres, database, tmp_path / "bert")


def snapshot(home: Path, *options: str) -> Path:
    """Write a snapshot on a machine, beside its home."""
    path = home.parent / "harbor.tar"
    path.unlink(missing_ok=True)
    memtier(home, "shared", "snapshot", str(path), *options)
    return path


def project(home: Path) -> Path:
    """Return the project's folder on a machine."""
    return home / "projects" / PROJECT


def lines_of(memory: MemTier) -> dict[str, bytes]:
    """Return the bytes of every ledger file, without the register of a machine's exports."""
    return {name: data for name, data in ledgers(memory).items() if "/" in name}


def are_equal(*homes: Path, agent: str = "a") -> None:
    """Check that machines have the same lines and recall the same; both are drained before."""
    for home in (*homes, *homes):
        memtier(home, "shared", "drain")
    first, second = (MemTier.open(home, PROJECT, agent) for home in homes)
    with first, second:
        assert lines_of(first) == lines_of(second) != {}
        for query in QUERIES:
            assert hits(first, query) == hits(second, query)
        assert hits(first, "harbor")
        assert second.store.check_index() == "ok"


def paths_with(home: Path, data: bytes) -> list[Path]:
    """Return the files of a machine that hold these bytes, its index and hidden ones included."""
    return [path for path in home.rglob("*") if path.is_file() and data in path.read_bytes()]


def test_a_new_machine_reads_nothing_anew(anna: Path, bert: Path) -> None:
    """What was copied is neither fetched nor indexed again; what is said afterwards is followed."""
    archive = snapshot(anna)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert all("spool" not in name and "shared" not in name for name in names)
    assert {name.split("/")[1] for name in names[:-1]} == {
        "index.sqlite3", "episodic", "journal", "semantic",
    }  # fmt: skip
    with MemTier.open(anna, PROJECT, "a") as memory:
        say_each(memory, "The crane is red.")
    done = memtier(bert, "shared", "join", "--snapshot", str(archive))
    assert (done["fetched"], done["delivered"], done["read_anew"]) == (1, 0, 0)
    assert done["lines"] >= 6 and done["streams"] == 5
    assert memtier(bert, "shared", "status")["behind"] == 0
    with MemTier.open(bert, PROJECT, "a") as memory:
        assert memory.store.catch_up_all() == 0
    are_equal(anna, bert)
    are_equal(anna, bert, agent=LONG)
    for path in project(bert).rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert not [*bert.glob(".restoring*")] and not [*anna.glob(".restoring*")]


def test_a_purge_reaches_what_was_copied(anna: Path, bert: Path) -> None:
    """A purge after the snapshot waits for who took it, and clears all of its files."""
    archive = snapshot(anna)
    with MemTier.open(anna, PROJECT, "a") as memory:
        [entry] = [e.entry for e in memory.store.log.entries(agent="a") if "sword" in str(e.entry)]
        assert entry
        memory.purge(Selection(ids=(entry.id,)))
    assert b"swordfish" in archive.read_bytes()
    assert memtier(bert, "shared", "join", "--snapshot", str(archive))["purged"]
    assert paths_with(anna, b"swordfish") == []
    assert paths_with(bert, b"swordfish") == []
    assert memtier(anna, "shared", "status")["purge_pending"] == []
    are_equal(anna, bert)
    assert b"swordfish" not in snapshot(anna).read_bytes()


def test_a_purge_waits_for_a_machine_that_is_joining(
    anna: Path, bert: Path, postgres: PostgresServer, database: str
) -> None:
    """From the moment that copied lines are in its files, a machine is named as pending."""
    archive = snapshot(anna)
    kill_join(bert, archive, "after adopt stream")
    with MemTier.open(anna, PROJECT, "a") as memory:
        memory.purge(Selection(agent="a"))
    memtier(anna, "shared", "drain")
    assert memtier(anna, "shared", "status")["purge_pending"] == ["bert"]
    memtier(bert, "shared", "join")
    assert memtier(anna, "shared", "status")["purge_pending"] == []
    assert paths_with(bert, b"swordfish") == []


def test_what_a_machine_was_not_granted(
    anna: Path, bert: Path, postgres: PostgresServer, database: str
) -> None:
    """A snapshot with too much is refused; one of an agent has no byte of another's."""
    url = postgres.url(database)
    revoke(url, "bert", PROJECT)
    grant(url, MachineGrant("bert", PROJECT, "a"), "owner")
    refused = memtier(bert, "shared", "join", "--snapshot", str(snapshot(anna)), code=1)
    assert refused["kind"] == "Refused" and "--only-agent" in refused["error"]
    assert paths_with(bert, b"Ines") == [] and not (project(bert) / ".shared").exists()
    archive = snapshot(anna, "--only-agent", "a")
    data = archive.read_bytes()
    assert b"swordfish" in data and b"cranes" in data
    assert b"Ines" not in data and LONG[:12].encode() not in data
    assert memtier(bert, "shared", "join", "--snapshot", str(archive))["fetched"] == 0
    with MemTier.open(anna, PROJECT, "a") as one_of, MemTier.open(bert, PROJECT, "a") as other:
        assert other.store.catch_up_all() == 0
        for query in QUERIES:
            assert hits(one_of, query) == hits(other, query)
    assert paths_with(bert, b"Ines") == []


def test_a_machine_that_may_only_read(
    anna: Path, bert: Path, postgres: PostgresServer, database: str
) -> None:
    """It follows, and passes on what it follows, although what it recalls cannot be delivered."""
    grant(postgres.url(database), MachineGrant("bert", PROJECT, read_only=True), "owner")
    memtier(bert, "shared", "join", "--snapshot", str(snapshot(anna)))
    with MemTier.open(bert, PROJECT, "a") as memory:
        memory.recall("cranes", purpose="inject", session_id="s", run_id="q")
    with MemTier.open(anna, PROJECT, "a") as memory:
        say_each(memory, "The crane is red.")
    done = memtier(bert, "shared", "drain")
    assert (done["fetched"], done["waiting"]) == (1, 1) and "may not write" in done["refused"]
    assert "may not write" in memtier(bert, "status")["shared"]["error"]
    with MemTier.open(bert, PROJECT, "a") as memory:
        assert memory.store.catch_up_all() == 0 and "red" in memory.recall("crane").text
    assert snapshot(bert).exists()


def changed(archive: Path, change: Callable[[dict[str, Any]], Any], *more: str) -> Path:
    """Write a snapshot anew with another manifest, and with more members."""
    path = archive.with_name("changed.tar")
    with tarfile.open(archive) as old, tarfile.open(path, "w") as new:
        for name in more:
            new.addfile(tarfile.TarInfo(name), io.BytesIO())
        for member in old:
            data = old.extractfile(member).read()  # type: ignore[union-attr]
            if member.name == "manifest.json":
                manifest = json.loads(data)
                change(manifest)
                data = json.dumps(manifest).encode()
                member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    return path


def test_a_snapshot_that_cannot_be_used(anna: Path, bert: Path, tmp_path: Path) -> None:
    """Damaged, foreign, newer, or with what leads elsewhere: an error says so, nothing changes."""
    archive = snapshot(anna)
    data = archive.read_bytes()
    bad = tmp_path / "bad.tar"

    def refused(path: Path, says: str) -> None:
        answer = memtier(bert, "shared", "join", "--snapshot", str(path), code=1)
        assert says in answer["error"], answer
        assert not (project(bert) / ".shared").exists() and not [*project(bert).glob("*.sqlite3")]
        assert [*bert.glob(".restoring*")] == []

    for spot in (0, len(data) // 2, len(data) - 12_000):
        bad.write_bytes(data[:spot])
        refused(bad, "snapshot")
    bad.write_bytes(data.replace(b"swordfish", b"swordfist"))
    refused(bad, "SHA-256")
    memtier(anna, "backup", str(tmp_path / "b.tar.gz"))
    refused(tmp_path / "b.tar.gz", "not a snapshot")
    refused(tmp_path / "none.tar", "there is no file")
    refused(changed(archive, lambda m: m.update(version=2)), "newer MemTier")
    refused(changed(archive, lambda m: m.update(format="other")), "not a snapshot")
    refused(changed(archive, lambda m: m.update(project="other")), "--name")
    refused(changed(archive, lambda m: m.update(streams=[{}])), "cannot be read")
    up = {"../../x": 0}
    refused(changed(archive, lambda m: m["streams"][0].update(sizes=up)), "cannot be read")
    refused(changed(archive, lambda m: m["streams"][0]["sizes"].clear()), "0 lines")
    for name in ("../x", "/etc/x", "snapshot/../x", "snapshot/episodic/../../x.jsonl", "x",
                 "snapshot/.shared/project.json", "snapshot/config.yaml"):  # fmt: skip
        refused(changed(archive, lambda m: None, name), "rejected")
    assert memtier(bert, "shared", "join", "--snapshot", str(archive))["fetched"] == 0
    again = memtier(bert, "shared", "join", "--snapshot", str(archive), code=1)
    assert "shared drain" in again["error"]


def test_a_snapshot_of_another_server(
    anna: Path, bert: Path, postgres: PostgresServer, database: str
) -> None:
    """Lines of a project that only has the same name are not mixed into this one."""
    import psycopg

    archive = snapshot(anna)
    with psycopg.connect(postgres.url(database), autocommit=True) as connection:
        connection.execute("UPDATE memtier.lines SET data = '{}', key = md5(key::text)::bytea")
    answer = memtier(bert, "shared", "join", "--snapshot", str(archive), code=1)
    assert "of another server" in answer["error"]
    assert not (project(bert) / ".shared").exists()


def test_a_snapshot_that_is_newer_than_the_server(
    anna: Path, bert: Path, postgres: PostgresServer, database: str
) -> None:
    """A stream that the server has otherwise, restored from a backup, is read anew."""
    import psycopg

    archive = snapshot(anna)
    with psycopg.connect(postgres.url(database), autocommit=True) as connection:
        connection.execute(
            """WITH cut AS (UPDATE memtier.streams SET head = head - 2
                            WHERE ledger = 'episodic' AND owner = 'a' RETURNING id, head)
               DELETE FROM memtier.lines USING cut WHERE stream = cut.id AND "offset" > cut.head"""
        )
    done = memtier(bert, "shared", "join", "--snapshot", str(archive))
    assert (done["read_anew"], done["fetched"]) == (1, 2)
    memtier(bert, "shared", "drain")
    with MemTier.open(bert, PROJECT, "a") as memory:
        assert "swordfish" not in memory.recall("Which code?").text
        assert "six" in memory.recall("harbor").text
    are_equal(anna, bert)  # which still has what the server lost, and delivers it


JOIN: Final = """
import sys
from memtier_plugin.cli.main import main
home, archive = sys.argv[1:]
main(["--home", home, "--project", "harbor", "shared", "join", "--snapshot", archive])
"""


def kill_join(home: Path, archive: Path, point: str) -> None:
    """Kill a machine at a point of its joining."""
    environment = child_environment(**{injection.VARIABLE: point})
    process = fork_python("-c", JOIN, home, archive, env=environment)
    assert process.wait(PATIENCE) == -signal.SIGKILL


@pytest.mark.parametrize("point", ["after join shared", "after adopt stream:2"])
def test_a_machine_that_is_killed_while_it_joins(anna: Path, bert: Path, point: str) -> None:
    """The next join completes it, by the snapshot or without; what was said here before stays."""
    archive = snapshot(anna)
    alone = bert.with_name("alone")
    with MemTier.open(bert, PROJECT, "a") as memory:
        say_each(memory, "The pilot is called Bo.")
    kill_join(bert, archive, point)
    shutil.copytree(bert, alone)
    done = memtier(bert, "shared", "join", "--snapshot", str(archive))
    assert done["delivered"] == 1
    memtier(alone, "shared", "join")
    are_equal(anna, bert)
    are_equal(bert, alone)
    with MemTier.open(bert, PROJECT, "a") as memory:
        assert "Bo" in memory.recall("Who is the pilot?").text
    assert not json.loads((project(alone) / ".shared" / "project.json").read_text()).get("joining")
