"""A purge reaches every machine: its files, its index, and what it has not delivered yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.paths import ProjectFolder
from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.shared.bootstrap import join
from memtier_plugin.storage.shared.postgres import server as admin
from memtier_plugin.storage.shared.postgres.server import connect
from memtier_plugin.storage.shared.protocol import MachineGrant
from tests.builders import say, write_config
from tests.faults import injection
from tests.processes import run_in_fork
from tests.shared.server import PostgresServer
from tests.shared.test_machines import memtier
from tests.shared.test_replicas import PROJECT, ledgers, sharing

pytestmark = pytest.mark.shared

MACHINES = ("anna", "bert", "carl")
SECRET = "The code of the harbor is swordfish, says Mia."


class Team:
    """Three machines that share a project, and a server where bytes can be looked for."""

    def __init__(self, server: PostgresServer, database: str, folder: Path) -> None:
        self.server, self.database, self.folder = server, database, folder
        self.open: dict[str, MemTier] = {}
        admin.grant(server.url(database), MachineGrant("carl", PROJECT), "owner")
        for name in MACHINES:
            self.start(name)

    def start(self, name: str, *, away: bool = False) -> MemTier:
        """Open the project on a machine, with or without the server."""
        if name in self.open:
            self.open.pop(name).close()
        home = self.folder / name
        url = self.server.url(self.database, name)
        if away:
            url = f"postgresql://{name}@127.0.0.1:1/none?sslmode=disable"
        write_config(home, {"ledger": {"shared": url}, "embedding": {"model": "none"}})
        folder = ProjectFolder.of(home, PROJECT)
        if not (folder.path / ".shared").exists():
            folder.make()
            join(folder, PROJECT)
        self.open[name] = MemTier.open(home, PROJECT, "a")
        return self.open[name]

    def sync(self, *names: str) -> None:
        """Let machines fetch, apply and deliver, twice."""
        for name in names * 2:
            self.open[name].synchronise()

    def found(self, words: str) -> dict[str, int]:
        """Count the files of each home, and the rows of the server, that hold these words."""
        counts = {
            name: sum(
                words.encode() in path.read_bytes()
                for path in (self.folder / name).rglob("*")
                if path.is_file()
            )
            for name in MACHINES
        }
        with connect(self.server.url(self.database)) as connection:
            tables = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'memtier'"
            ).fetchall()
            rows = 0
            for (table,) in tables:
                query = f"SELECT * FROM memtier.{table}"  # noqa: S608
                for row in connection.execute(query.encode(), binary=True):
                    rows += any(words.encode() in bytes(v) for v in row if isinstance(v, bytes))
                    rows += any(words in v for v in row if isinstance(v, str))
        return {**counts, "server": rows}

    def states(self, name: str = "anna") -> list[dict[str, str]]:
        """Return the state of each machine for each purge."""
        return [
            {machine: state["state"] for machine, state in purge["machines"].items()}
            for purge in self.open[name].purges()
        ]


@pytest.fixture
def team(postgres: PostgresServer, database: str, tmp_path: Path) -> Iterator[Team]:
    """Return three machines that all know the secret."""
    team = Team(postgres, database, tmp_path)
    say(team.open["anna"], "The crane is red.", run_id="r0")
    team.sync(*MACHINES)
    yield team
    for memory in team.open.values():
        memory.close()


PURGES: dict[str, Callable[[Any], Selection | str]] = {
    "text": lambda _: "swordfish",
    "ids": lambda entry: Selection(ids=(entry.id,)),
    "sender": lambda _: Selection(sender="mia"),
    "session": lambda _: Selection(session="vault"),
}


@pytest.mark.parametrize("by", PURGES)
def test_a_purge_reaches_who_was_away(team: Team, by: str) -> None:
    """The receipt names who was away; back again, it has nothing, in what it kept either."""
    entry = say(team.open["anna"], SECRET, sender="mia", session_id="vault", run_id="r1")
    team.open["carl"].recall("What is the code?")
    team.sync(*MACHINES)
    bert = team.start("bert", away=True)
    kept = say(bert, SECRET, sender="mia", session_id="vault", run_id="r2")
    say(bert, "The pier is long.", run_id="r3")
    bert.recall(SECRET, sender="mia", run_id="r4", purpose="inject")
    assert "swordfish" in bert.recall("the code of the harbor", sender="mia").text
    receipt = team.open["anna"].purge(PURGES[by](entry))
    assert [machine["machine"] for machine in receipt.pending or ()] == ["bert", "carl"]
    assert all(machine["seen"] for machine in receipt.pending or ())
    assert receipt.gone and any("VACUUM" in beyond for beyond in receipt.beyond)
    team.sync("carl", "anna")
    assert team.states() == [{"bert": "pending", "carl": "reached"}]
    counts = team.found("swordfish")
    assert counts.pop("bert") > 0 and not any(counts.values())
    team.start("bert")
    team.sync("bert", "anna", "carl")
    assert team.states() == [{"bert": "reached", "carl": "reached"}]
    assert not any(team.found("swordfish").values())
    team.sync(*MACHINES)
    assert ledgers(team.open["anna"]) == ledgers(team.open["bert"]) == ledgers(team.open["carl"])
    assert "pier is long" in team.open["anna"].recall("pier").text
    again = [{"role": "user", "content": SECRET}]
    assert team.open["bert"].record(again, sender="mia", session_id="vault", run_id="r2") == []
    assert kept.id in {e.id for e in team.open["anna"].entries(agent="a")}
    assert not any('"salt"' in line for line in _purge_lines(team))


def test_who_never_returns_is_revoked(team: Team) -> None:
    """A machine whose rights are gone, or that left, is no longer waited for, and named so."""
    say(team.open["anna"], SECRET, run_id="r1")
    team.sync(*MACHINES)
    team.start("bert", away=True)
    team.start("carl", away=True)
    team.open["anna"].purge("swordfish")
    assert team.states() == [{"bert": "pending", "carl": "pending"}]
    admin.revoke(team.server.url(team.database), "bert", PROJECT)
    assert team.states() == [{"bert": "revoked", "carl": "pending"}]
    carl = sharing(team.start("carl"))
    carl.ledger.leave()
    assert team.states() == [{"bert": "revoked", "carl": "left"}]
    assert not any('"salt"' in line for line in _purge_lines(team))


def test_what_the_server_did_not_hear_is_said_again(team: Team) -> None:
    """A machine that ended between a purge and its confirmation confirms it at its next start."""
    say(team.open["anna"], SECRET, run_id="r1")
    team.sync(*MACHINES)
    team.open["anna"].purge("swordfish")
    team.sync(*MACHINES)
    with connect(team.server.url(team.database)) as connection:
        connection.execute("UPDATE memtier.followers SET epoch = 0 WHERE machine = 'bert'")
    ledger = sharing(team.open["anna"]).ledger
    assert {machine for machine, *_ in ledger.pending()} == {"bert"}
    team.start("bert")
    team.sync("bert")
    assert not ledger.pending()


def test_a_purge_that_is_killed_reaches_all_the_same(team: Team) -> None:
    """Its machine completes it when it is back, and the others hear of it then."""
    say(team.open["anna"], SECRET, run_id="r1")
    team.sync(*MACHINES)
    home = team.folder / "anna"
    bert = team.start("bert", away=True)
    say(bert, SECRET, run_id="r2")

    def purge() -> None:
        injection.arm("after shared purge")
        with MemTier.open(home, PROJECT, "a") as memory:
            memory.purge("swordfish")

    assert "9" in run_in_fork(purge)
    team.start("bert")
    anna = team.start("anna")
    assert anna.purger.complete()
    team.sync(*MACHINES, *MACHINES)
    assert team.states() == [{"bert": "reached", "carl": "reached"}]
    assert not any(team.found("swordfish").values())


def test_leaving(postgres: PostgresServer, database: str, tmp_path: Path, team: Team) -> None:
    """What waits is delivered first; without the server it is refused, or stays here alone."""
    say(team.open["anna"], "The pier is long.", run_id="r1")
    team.sync(*MACHINES)
    homes = {name: team.folder / name for name in MACHINES}
    for name in MACHINES:
        team.start(name, away=True)
        say(team.open[name], f"{name} says goodbye.", run_id=name)
        team.open.pop(name).close()
    assert "wait here" in memtier(homes["anna"], "shared", "leave", code=1)["error"]
    assert "deliver" in memtier(homes["anna"], "shared", "leave", "--forget", code=1)["error"]
    gone = memtier(homes["carl"], "shared", "leave", "--undelivered")
    assert gone["undelivered"] >= 1 and not gone["told_the_server"]
    for name in ("anna", "bert"):
        team.start(name)
        team.open.pop(name).close()
    assert memtier(homes["anna"], "shared", "leave")["told_the_server"]
    assert memtier(homes["bert"], "shared", "leave", "--forget")["forgotten"]
    assert not (homes["bert"] / "projects" / PROJECT / "episodic").exists()
    for name in ("anna", "carl"):
        write_config(homes[name], {"embedding": {"model": "none"}})
        with MemTier.open(homes[name], PROJECT, "a") as own:
            assert not (own.folder / ".shared").exists()
            assert "long" in own.recall("pier").text
            assert f"{name} says" in own.recall("goodbye").text
            say(own, "The crane sleeps.", run_id="alone")
    with connect(postgres.url(database)) as connection:
        rows = connection.execute("SELECT DISTINCT machine::text FROM memtier.followers").fetchall()
    assert rows == [("carl",)]


def test_secrets_do_not_leave_the_machine(team: Team) -> None:
    """What is redacted is redacted before it is kept for the server, sent, or stored there."""
    key = "AKIA" + "IOSFODNN7" + "QWERTZU"
    say(team.open["anna"], f"The key is {key}, keep it.", run_id="r1")
    away = team.start("bert", away=True)
    say(away, f"Take {key} instead.", run_id="r2")
    away.recall(f"What is {key} for?", run_id="r3", purpose="inject")
    assert not any(team.found(key).values())
    team.start("bert")
    team.sync(*MACHINES)
    assert not any(team.found(key).values())
    assert "redacted" in str(ledgers(team.open["anna"])).lower()


def _purge_lines(team: Team) -> list[str]:
    return [
        line
        for data in ledgers(team.open["anna"]).values()
        for line in data.decode().splitlines()
        if '"kind": "purge"' in line
    ]
