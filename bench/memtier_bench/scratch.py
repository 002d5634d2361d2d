"""Temporary data on a server that a benchmark creates, measures and removes.

In PostgreSQL a database, with a role per machine; measurements come from the server's own views,
read by the owner.  In NATS a stream per project; all machines share the user of the address, who
has all permissions, as users are defined in the server's configuration.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self
from urllib.parse import urlsplit, urlunsplit

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.storage.shared.nats.ledger import NatsLedger, prepare
from memtier_plugin.storage.shared.nats.link import Link, ServerAddress
from memtier_plugin.storage.shared.nats.messages import Names
from memtier_plugin.storage.shared.postgres.server import (
    address,
    connect,
    grant,
    import_psycopg,
    migrate,
)
from memtier_plugin.storage.shared.protocol import MachineGrant, Refused
from memtier_plugin.storage.shared.sharing import is_nats

if TYPE_CHECKING:
    import psycopg

_PREFIX: Final = "memtier_bench_"


class StoredLines(NamedTuple):
    """The space that the lines of all streams use on the server, in bytes.

    ``payload`` is the lines alone, ``heap`` their table, ``indexes`` its indexes.
    """

    lines: int
    payload: int
    heap: int
    indexes: int


class ScratchDatabase:
    """A new database with the shared ledger's tables; use it in a ``with`` block."""

    durability: Literal["os", "sync"] = "sync"

    def __init__(self, url: str) -> None:
        self._server = url
        self.name = _PREFIX + secrets.token_hex(4)
        self.url = _with(url, path=f"/{self.name}")
        self._password = secrets.token_urlsafe(16)  # of every machine's role
        self.environment: Mapping[str, str] = {"PGPASSWORD": self._password}
        self._machines: list[str] = []
        self._owner: psycopg.Connection[Any] | None = None

    def __enter__(self) -> Self:
        """Create the database.

        Raises:
            LedgerError: the server is unreachable, or this user may not create databases.
        """
        with _connected(self._server) as connection:
            connection.execute(f"CREATE DATABASE {self.name}".encode())
        migrate(self.url)
        # Kept open: opening it for each query would be measured too
        self._owner = connect(self.url)
        with suppress(LedgerError):
            self._rows("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the database and the roles."""
        if self._owner is not None:
            self._owner.close()
        with _connected(self._server) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)".encode())
            for machine in self._machines:
                connection.execute(f"DROP ROLE IF EXISTS {machine}".encode())

    def project(self, name: str) -> str:
        """Return the name of a project of this run, the only one using the database."""
        return name

    def add_machine(self, *projects: str) -> str:
        """Create a role that may write projects; return its address."""
        name = f"{self.name}_{len(self._machines)}"
        self._machines.append(name)
        for project in projects:
            grant(self.url, MachineGrant(name, project), self._password)
        host = urlsplit(self.url).netloc.rpartition("@")[2]
        return _with(self.url, netloc=f"{name}@{host}")

    def count_lines(self) -> int:
        """Return the number of lines in all streams."""
        return int(self._value("SELECT coalesce(sum(head), 0) FROM memtier.streams"))

    def measure_lines(self) -> StoredLines:
        """Return the space that the lines use on disk."""
        [row] = self._rows(
            """SELECT count(*), coalesce(sum(octet_length(data)), 0)::bigint,
                 pg_table_size('memtier.lines'), pg_indexes_size('memtier.lines')
               FROM memtier.lines"""
        )
        return StoredLines(*row)

    def count_connections(self) -> dict[str, int]:
        """Return the number of open connections of each machine."""
        rows = self._rows(
            """SELECT usename::text, count(*) FROM pg_stat_activity
               WHERE usename = ANY(%s) GROUP BY 1""",
            self._machines,
        )
        return {machine: int(number) for machine, number in rows}

    def count_statements(self) -> int | None:
        """Return how many statements machines have sent; None if they are not counted."""
        try:
            return int(
                self._value(
                    """SELECT coalesce(sum(calls), 0) FROM pg_stat_statements
                       JOIN pg_roles ON pg_roles.oid = userid WHERE rolname LIKE %s""",
                    f"{self.name}%",
                )
            )
        except LedgerError:
            return None

    def process_id(self) -> int:
        """Return the process id of the owner's connection on the server."""
        return int(self._value("SELECT pg_backend_pid()"))

    def version(self) -> str:
        """Return the server's version and durability settings, for a report."""
        return str(
            self._value(
                """SELECT format('PostgreSQL %s, fsync %s, synchronous_commit %s, buffers %s',
                     current_setting('server_version'), current_setting('fsync'),
                     current_setting('synchronous_commit'), current_setting('shared_buffers'))"""
            )
        )

    def _value(self, query: str, *values: object) -> Any:
        return self._rows(query, *values)[0][0]

    def _rows(self, query: str, *values: object) -> list[Any]:
        import psycopg

        if self._owner is None:
            raise LedgerError("use the database in a with block")
        try:
            cursor = self._owner.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise LedgerError(f"{address(self.url)}: {error}") from error


class ScratchStreams:
    """New streams, one per project; use it in a ``with`` block."""

    durability: Literal["os", "sync"] = "os"  # the most that a single server guarantees
    environment: Mapping[str, str] = MappingProxyType({})

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = f"bench-{secrets.token_hex(4)}-"
        self._ledgers: dict[str, NatsLedger] = {}

    def __enter__(self) -> Self:
        """Create nothing yet: a stream is created for its first machine."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the streams."""
        for project, ledger in self._ledgers.items():
            ledger.close()
            link = Link(ServerAddress.of(self._url), Names(project).stream)
            with suppress(LedgerError):
                link.ask("STREAM.DELETE")
            link.close()

    def project(self, name: str) -> str:
        """Return the name of a project of this run."""
        return self._prefix + name

    def add_machine(self, project: str) -> str:
        """Return a machine's address; the first machine creates the project.

        Raises:
            LedgerError: the server is unreachable, or this user lacks permission.
        """
        if project not in self._ledgers:
            prepare(self._url, project)
            self._ledgers[project] = NatsLedger(self._url, project, durable=False)
        return self._url

    def count_lines(self) -> int:
        """Return the number of lines in all projects."""
        heads = (head for ledger in self._ledgers.values() for head in ledger.heads().values())
        return sum(head.offset for head in heads)

    def measure_lines(self) -> StoredLines:
        """Return the streams' space on disk: lines, keys and subjects together."""
        size = 0
        for project in self._ledgers:
            link = Link(ServerAddress.of(self._url), Names(project).stream)
            size += int(link.ask("STREAM.INFO")["state"]["bytes"])
            link.close()
        return StoredLines(self.count_lines(), size, size, 0)

    def count_connections(self) -> dict[str, int]:
        """Return nothing: the server reports connections only to its operator."""
        return {}

    def count_statements(self) -> None:
        """Return None: the server does not count requests."""

    def process_id(self) -> None:
        """Return None: the server does not report its process id."""

    def version(self) -> str:
        """Return the server's version, for a report."""
        return "NATS JetStream, one server"


Scratch = ScratchDatabase | ScratchStreams


def open_scratch(url: str) -> Scratch:
    """Return temporary projects on the server at an address.

    Raises:
        Unsupported: the engine's driver is not installed.
    """
    return ScratchStreams(url) if is_nats(url) else ScratchDatabase(url)


def _with(url: str, **changed: str) -> str:
    return urlunsplit(urlsplit(url)._replace(**changed))


@contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection[Any]]:
    import_psycopg()
    import psycopg

    try:
        with connect(url) as connection:
            yield connection
    except psycopg.errors.InsufficientPrivilege as error:
        raise Refused(
            f"measuring {address(url)} needs a user that may create databases and roles: {error}"
        ) from error
    except psycopg.Error as error:
        raise LedgerError(f"{address(url)}: {error}") from error
