"""Bad days of network and server: real machines, a real server, and what comes of it.

Each prints its figures (`-s`), and appends them to the file SHARED_FIGURES if that is set.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from memtier_plugin.storage.shared.postgres.server import connect, grant
from memtier_plugin.storage.shared.protocol import MachineGrant, Unreachable
from tests.shared.bad_days import Machine, joined, spend
from tests.shared.fixtures import make_database
from tests.shared.proxy import Mode, Proxy
from tests.shared.server import PostgresServer
from tests.shared.standby import Standby, fill, pooler, small_disk

pytestmark = pytest.mark.shared

MODES: tuple[Mode, ...] = (
    "cut",
    "drops",
    "slow",
    "halves",
    "black",
    "no answers",
    "no questions",
)


@pytest.fixture
def network(postgres: PostgresServer) -> Iterator[Proxy]:
    """Return the network between one machine and the server."""
    proxy = Proxy(postgres.port)
    yield proxy
    proxy.close()


@pytest.fixture
def machines(
    postgres: PostgresServer, database: str, network: Proxy, tmp_path: Path
) -> list[Machine]:
    """Return two machines; the network fails for the first."""
    url = postgres.url(database, "anna").replace(f":{postgres.port}/", f":{network.port}/")
    anna = joined(tmp_path / "anna", url)
    bert = joined(tmp_path / "bert", postgres.url(database, "bert"))
    return [Machine(anna), Machine(bert)]


def crash(postgres: PostgresServer) -> None:
    """Kill the server and start it again."""
    postgres.kill()
    time.sleep(0.3)
    postgres.start()


def test_a_day_on_which_everything_fails(
    postgres: PostgresServer, network: Proxy, machines: list[Machine]
) -> None:
    """The network fails in every way, the server crashes, a writer and a follower are killed."""

    def trouble() -> None:
        for mode in random.Random(1).sample(MODES, len(MODES)):
            network.turn(mode)
            time.sleep(1.2)
        network.turn("open")
        machines[0].kill("writer")
        machines[0].start("writer")
        machines[1].kill("follower")
        crash(postgres)
        machines[1].start("follower")

    figures = spend("everything", machines, trouble)
    assert figures.held_s < 10 and figures.failed == 0
    assert figures.recalls > 20 and figures.without_hits == 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_network_fails(mode: Mode, network: Proxy, machines: list[Machine]) -> None:
    """Whatever the network does for twenty seconds, a run is held up for two at most."""

    def trouble() -> None:
        for _ in range(2):
            network.turn(mode)
            time.sleep(10.0)
            network.turn("open")
            time.sleep(1.0)

    figures = spend(f"network: {mode}", machines, trouble)
    assert figures.held_s < 10 and figures.failed == 0


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["server", "writer", "follower"])
def test_twenty_kills(victim: str, postgres: PostgresServer, machines: list[Machine]) -> None:
    """Whoever is killed twenty times, at any moment, nothing is lost or doubled."""
    draw = random.Random(2)

    def trouble() -> None:
        for _ in range(20):
            time.sleep(0.5 + draw.random())
            if victim == "server":
                crash(postgres)
                continue
            machine = draw.choice(machines)
            machine.kill(victim)
            machine.start(victim)

    spend(f"20 kills: {victim}", machines, trouble)


@pytest.mark.slow
def test_a_server_that_is_frozen(postgres: PostgresServer, machines: list[Machine]) -> None:
    """A server that stands still for ten seconds, twice, is as one that is away."""

    def trouble() -> None:
        for _ in range(2):
            with postgres.frozen():
                time.sleep(10.0)
            time.sleep(1.0)

    spend("server frozen", machines, trouble)


@pytest.mark.slow
def test_a_full_disk(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the server's disk is full what is said waits; nothing fails."""
    monkeypatch.setenv("PGPASSWORD", "owner")
    with small_disk(24) as disk:
        if disk is None:
            pytest.skip("no file system can be mounted here")
        with connect(postgres.url("postgres")) as owner:
            owner.execute(f"CREATE TABLESPACE small LOCATION '{disk}/data'".encode())
            name = make_database(postgres, "TABLESPACE small")
            pair = [Machine(joined(tmp_path / m, postgres.url(name, m))) for m in ("anna", "bert")]

            def trouble() -> None:
                for _ in range(2):
                    filler = fill(disk)
                    time.sleep(8.0)
                    filler.unlink()
                    time.sleep(2.0)

            figures = spend("disk full", pair, trouble)
            owner.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            owner.execute(b"DROP TABLESPACE small")
    assert "No space left on device" in (postgres.folder / "log").read_text("utf-8", "replace")
    assert figures.failed == 0


@pytest.mark.slow
def test_no_connection_is_left(
    postgres: PostgresServer, database: str, machines: list[Machine]
) -> None:
    """While others have all of the server's connections what is said waits; nothing fails."""
    import psycopg

    ours = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename IN ('anna', 'bert')"
    )

    def trouble() -> None:
        with ExitStack() as taken:
            owner = taken.enter_context(connect(postgres.url(database)))
            until = time.monotonic() + 10.0
            while time.monotonic() < until:
                with suppress(Unreachable, psycopg.Error):
                    taken.enter_context(connect(postgres.url(database)))
                    continue
                owner.execute(ours.encode())

    figures = spend("no connection left", machines, trouble)
    assert figures.failed == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_machines_number_one_session(
    number: int, postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    """Machines that write into one session as fast as they can number it without gap or double."""
    group = []
    for name in ("anna", "bert", "carl", "dora")[:number]:
        grant(postgres.url(database), MachineGrant(name, "harbor"), "owner")
        home = joined(tmp_path / name, postgres.url(database, name))
        group.append(Machine(home, pause=0.0, every=1))
    figures = spend(f"one session, {number} machines", group, lambda: time.sleep(15.0))
    assert (figures.failed, figures.late) == (0, 0)


@pytest.mark.slow
def test_clocks_an_hour_apart(machines: list[Machine]) -> None:
    """A machine whose clock is an hour ahead changes no order: that is the server's."""
    machines[0].skew = 3600.0
    figures = spend("an hour apart", machines, lambda: time.sleep(15.0))
    assert (figures.failed, figures.late, figures.without_hits) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_standby_takes_over(
    seed: int, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a standby never got before it took over is delivered again by who has it."""
    monkeypatch.setenv("PGPASSWORD", "owner")
    lacked = 0
    with ExitStack() as stack:
        primary = PostgresServer(postgres.programs)
        stack.callback(shutil.rmtree, primary.folder, ignore_errors=True)
        primary.start()
        name, line = make_database(primary), Proxy(primary.port)
        stack.callback(line.close)
        standby = Standby(primary, line.port)
        stack.callback(standby.remove)
        standby.start()
        pair = []
        for machine in ("anna", "bert"):
            url = primary.url(name, machine, "sslmode=disable&target_session_attrs=read-write")
            both = f":{primary.port},127.0.0.1:{standby.port}/"
            url = url.replace(f":{primary.port}/", both)
            pair.append(Machine(joined(tmp_path / machine, url)))

        def trouble() -> None:
            nonlocal lacked
            time.sleep(1.0 + random.Random(seed).random())
            line.turn("black")
            time.sleep(1.0)
            had = lines_on(primary, name)
            primary.kill()
            lacked = had - lines_on(standby, name)
            standby.promote()
            line.turn("cut")  # not before, as it lets through what it held back
            time.sleep(8.0)

        figures = spend(f"failover {seed}", pair, trouble)
    assert lacked > 0 and figures.failed == 0


def lines_on(server: PostgresServer, database: str) -> int:
    """Return how many lines a server has."""
    with connect(server.url(database)) as connection:
        [(number,)] = connection.execute("SELECT count(*) FROM memtier.lines").fetchall()
    return int(number)


def test_a_pooler_between(postgres: PostgresServer, database: str, tmp_path: Path) -> None:
    """Behind a pooler in transaction mode lines arrive by polling, and own ones at once."""
    if shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin") is None:
        pytest.skip("no PgBouncer: apt-get install pgbouncer")
    with pooler(postgres, "anna", "bert") as port:
        pair = []
        for name in ("anna", "bert"):
            url = postgres.url(database, name).replace(f":{postgres.port}/", f":{port}/")
            pair.append(Machine(joined(tmp_path / name, url), pause=0.1))
        figures = spend("pgbouncer", pair, lambda: crash(postgres))
    assert figures.failed == 0
