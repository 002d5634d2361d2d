"""Set up the shared ledger in a database, and say which machine may do what in it.

All of this needs the database's owner; machines get a role each, which owns nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.storage.shared.postgres.connection import (
    address,
    connect,
    encode_owner,
    import_psycopg,
)
from memtier_plugin.storage.shared.protocol import MachineGrant, Refused

if TYPE_CHECKING:
    import psycopg

_GROUP: Final = "memtier_machine"  # the role that all machines are members of


def migrate(url: str) -> list[int]:
    """Apply the migrations that the database lacks, all or none; return their numbers.

    Raises:
        LedgerError: it is unreachable, or this user may not.
    """
    with _owner(url) as connection, connection.transaction():
        connection.execute("CREATE SCHEMA IF NOT EXISTS memtier")
        connection.execute(
            """CREATE TABLE IF NOT EXISTS memtier.schema_version(
                 version int PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"""
        )
        # One at a time, by a lock that no machine can take to hold it up.
        connection.execute("LOCK TABLE memtier.schema_version IN SHARE ROW EXCLUSIVE MODE")
        if not _role_exists(connection, _GROUP):
            connection.execute(f"CREATE ROLE {_GROUP} NOLOGIN")
        rows = connection.execute("SELECT version FROM memtier.schema_version").fetchall()
        missing = [item for item in _migrations() if (item[0],) not in rows]
        connection.execute("SET LOCAL search_path = memtier")
        for number, script in missing:
            connection.execute(script.encode())
            connection.execute("INSERT INTO schema_version VALUES(%s)", (number,))
    return [number for number, _ in missing]


def grant(url: str, given: MachineGrant, password: str | None = None) -> bool:
    """Let a machine take part in a project; return whether its role is new.

    Args:
        password: of a new role, or a new one of an existing role.

    Raises:
        LedgerError: the database is unreachable, or this user may not.
    """
    with _owner(url) as connection, connection.transaction():
        from psycopg import sql

        role = sql.Identifier(given.machine)
        new = not _role_exists(connection, given.machine)
        if new:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        if password is not None:
            statement = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}")
            connection.execute(statement.format(role, sql.Literal(password)))
        connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(_GROUP), role))
        connection.execute(
            """INSERT INTO memtier.grants VALUES(%s, %s, %s, %s)
               ON CONFLICT (machine, project, agent)
               DO UPDATE SET can_write = excluded.can_write""",
            (given.machine, encode_owner(given.project), _agent(given), not given.read_only),
        )
    return new


def revoke(url: str, machine: str, project: str, agent: str | None = None) -> int:
    """Take a machine's rights in a project away; return how many grants that were.

    Without any left it is no longer waited for: what it has copied stays on it.

    Raises:
        LedgerError: the database is unreachable, or this user may not.
    """
    with _owner(url) as connection, connection.transaction():
        which = (machine, encode_owner(project))
        removed = connection.execute(
            """DELETE FROM memtier.grants WHERE machine = %s AND project = %s
               AND (%s::text IS NULL OR agent = %s)""",
            (*which, agent, encode_owner(agent)),
        ).rowcount
        connection.execute(
            """DELETE FROM memtier.followers f USING memtier.streams s
               WHERE s.id = f.stream AND f.machine = %s AND s.project = %s AND NOT EXISTS(
                 SELECT 1 FROM memtier.grants g WHERE (g.machine, g.project) = (%s, %s))""",
            (*which, *which),
        )
        connection.execute(
            """UPDATE memtier.leases SET until = '-infinity', fence = fence + 1
               WHERE (machine, project) = (%s, %s) AND NOT EXISTS(
                 SELECT 1 FROM memtier.grants g
                 WHERE (g.machine, g.project) = (%s, %s) AND g.can_write)""",
            (*which, *which),
        )
    return removed


def _agent(given: MachineGrant) -> str:
    return "*" if given.agent is None else encode_owner(given.agent)


def _role_exists(connection: psycopg.Connection[Any], name: str) -> bool:
    query = "SELECT 1 FROM pg_roles WHERE rolname = %s"
    return connection.execute(query, (name,)).fetchone() is not None


def _migrations() -> list[tuple[int, str]]:
    folder = files("memtier_plugin.storage.shared.postgres") / "migrations"
    scripts = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [(int(name[:4]), (folder / name).read_text("utf-8")) for name in scripts]


@contextmanager
def _owner(url: str) -> Iterator[psycopg.Connection[Any]]:
    import_psycopg()
    import psycopg

    try:
        with connect(url) as connection:
            yield connection
    except psycopg.errors.InsufficientPrivilege as error:
        raise Refused(f"only the owner of {address(url)} may do this: {error}") from error
    except psycopg.Error as error:
        raise LedgerError(f"{address(url)}: {error}") from error
