"""Residents that follow one shared project: what a client sees when one of them is killed."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtier_plugin.core.residents import in_order, parse_address
from memtier_plugin.hooks.remote_memory import RemoteMemory
from memtier_plugin.hooks.resident_connection import ResidentUnreachable
from memtier_plugin.server.access import FILE, Tokens
from tests.builders import write_config
from tests.processes import PATIENCE, wait_until
from tests.server.tcp import CONFIG, Resident, make_certificate
from tests.shared.server import PostgresServer
from tests.shared.test_machines import memtier

pytestmark = pytest.mark.shared
PROJECT = "harbor"


@pytest.fixture
def residents(postgres: PostgresServer, database: str, tmp_path: Path) -> Iterator[list[Resident]]:
    """Return two residents that share a project, the first in its order before the other."""
    certificate, started = make_certificate(tmp_path), []
    for name in ("anna", "bert"):
        home = tmp_path / name
        write_config(home, {**CONFIG, "ledger": {"shared": postgres.url(database, name)}})
        memtier(home, "shared", "join")
        if started:
            shutil.copy(started[0].home / FILE, home / FILE)
        else:
            Tokens(home).new([PROJECT, "alone"])
        started.append(Resident(home, certificate))
    order = [str(each) for each in in_order((parse_address(r.address) for r in started), PROJECT)]
    yield sorted(started, key=lambda resident: order.index(resident.address))
    for resident in started:
        resident.kill()


def client(residents: list[Resident]) -> RemoteMemory:
    """Return a client that knows both residents, by a token of its own at each."""
    token = residents[0].token(PROJECT, "alone")
    shutil.copy(residents[0].home / FILE, residents[1].home / FILE)
    addresses = [resident.address for resident in residents]
    root = str(residents[0].root)
    return RemoteMemory(PROJECT, residents=addresses, token=token, ca_file=root)


def test_a_resident_is_killed(residents: list[Resident]) -> None:
    """The next one knows what was acknowledged, takes each run once, and gives the project back."""
    first, second = residents
    with client(residents) as memory:
        turn = [{"role": "user", "content": "The heron crane stands at pier 7."}]
        memory.end_run(turn, session_id="s", run_id="r1")
        first.kill()
        assert "pier 7" in memory.recall("heron crane", seconds=PATIENCE)["text"]
        again = memory.end_run(turn, session_id="s", run_id="r1")
        assert [entry["turn"] for entry in again["entries"]] in ([], [1])
        turn = [{"role": "user", "content": "The osprey crane stands at pier 9."}]
        memory.end_run(turn, session_id="s", run_id="r2")
        hits = memory.recall("crane pier", seconds=PATIENCE)["hits"]
        assert sorted(hit["item"]["turn"] for hit in hits) == [1, 2]
        residents[0] = Resident(first.home, first.certificate, first.port)
        second.process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: _answers(memory))
            assert "pier 9" in memory.recall("osprey", seconds=PATIENCE)["text"]
        finally:
            second.process.send_signal(signal.SIGCONT)
            residents[0].kill()


def test_what_is_not_shared_stays(residents: list[Resident]) -> None:
    """Of a project that only one resident has, no other answers, and none is begun there."""
    with client(residents) as memory:
        addresses = [parse_address(resident.address) for resident in residents]
        order = [str(address) for address in in_order(addresses, "alone")]
        residents.sort(key=lambda resident: order.index(resident.address))
        alone = memory.of("alone")
        alone.end_run([{"role": "user", "content": "My bag is blue."}], session_id="s")
        residents[0].kill()
        with pytest.raises(ResidentUnreachable, match="kept by another resident"):
            alone.recall("bag")
        with pytest.raises(ResidentUnreachable, match="kept by another resident"):
            alone.end_run([{"role": "user", "content": "Hat."}], session_id="s", seconds=1)
        assert not (residents[1].home / "projects" / "alone").exists()


def _answers(memory: RemoteMemory) -> bool:
    try:
        return bool(memory.recall("crane", seconds=5)["hits"])
    except ResidentUnreachable:
        return False
