"""The engines that hold a shared ledger, each with a fresh `harbor` that anna and bert share."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, Protocol

import pytest

from memtier_plugin.storage.shared.nats import ledger as nats_ledger
from memtier_plugin.storage.shared.postgres import server as admin
from memtier_plugin.storage.shared.protocol import MachineGrant, SharedLedger
from memtier_plugin.storage.shared.sharing import open_ledger
from tests.shared.nats import NatsServer
from tests.shared.server import PostgresServer

PROJECT: Final = "harbor"
ENGINES: Final = ("postgresql", "nats")
on_each_engine = pytest.mark.parametrize("engine", ENGINES, indirect=True)


class Server(Protocol):
    """What the tests do to a server."""

    def kill(self) -> None:
        """Kill it, as a crash does."""

    def start(self) -> object:
        """Start it and wait until it answers."""

    def frozen(self) -> AbstractContextManager[None]:
        """Let it stand still for as long as this lasts."""


class Engine(Protocol):
    """A server with the project on it."""

    server: Server
    durability: str  # the most that it can promise alone

    def url(self, machine: str) -> str:
        """Return the address for a machine."""

    def grant(self, machine: str, agent: str | None = None, *, read_only: bool = False) -> None:
        """Let a machine take part."""

    def revoke(self, machine: str) -> None:
        """Take a machine's rights away."""


def open_for(engine: Engine, machine: str) -> SharedLedger:
    """Return the ledger of the project for a machine."""
    return open_ledger(engine.url(machine), PROJECT, durable=engine.durability == "sync")


class OnPostgres:
    """The project in a database."""

    durability = "sync"

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server = server
        self.database = database

    def url(self, machine: str) -> str:
        """Return the address for a machine."""
        return self.server.url(self.database, machine)

    def grant(self, machine: str, agent: str | None = None, *, read_only: bool = False) -> None:
        """Let a machine take part."""
        what = MachineGrant(machine, PROJECT, agent, read_only)
        admin.grant(self.server.url(self.database), what, "owner")

    def revoke(self, machine: str) -> None:
        """Take a machine's rights away."""
        admin.revoke(self.server.url(self.database), machine, PROJECT)


class OnNats:
    """The project in a stream."""

    durability = "os"

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self._limits: dict[str, str] = {}
        for machine in ("anna", "bert"):
            if not server.has_user(PROJECT, machine):  # a test before took it away
                server.add_user(PROJECT, machine)
        server.forget(PROJECT)
        nats_ledger.prepare(server.url(), PROJECT)

    def url(self, machine: str) -> str:
        """Return the address for a machine."""
        return self.server.url(machine, self._limits.get(machine, ""))

    def grant(self, machine: str, agent: str | None = None, *, read_only: bool = False) -> None:
        """Let a machine take part."""
        self._limits[machine] = f"agent={agent}" if agent else ""
        self.server.add_user(PROJECT, machine, agent, read_only=read_only)

    def revoke(self, machine: str) -> None:
        """Take a machine's rights away."""
        self.server.remove_user(PROJECT, machine)
        nats_ledger.forget(self.server.url(), PROJECT, machine)
