"""Connect to PostgreSQL by psycopg 3, set up the shared ledger there, and grant access."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote_from_bytes, unquote_to_bytes, urlsplit

from memtier_plugin.core.errors import LedgerError, Unsupported
from memtier_plugin.core.installation import install_command
from memtier_plugin.storage.shared.protocol import MachineGrant, Refused, Unreachable, Untrusted

if TYPE_CHECKING:
    import psycopg


# -- Connections to PostgreSQL, by psycopg 3: how they are opened, checked, and cut off

SCHEMA_VERSION: Final = 3  # the newest of `migrations/`
ANSWER_SECONDS: Final = 8.0  # for an answer, where nobody is held up
# How a dead peer is noticed within seconds; the address may say otherwise.
_DEFAULTS: Final[Mapping[str, str]] = {
    "sslmode": "verify-full",
    "connect_timeout": "3",
    "tcp_user_timeout": "8000",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "application_name": "memtier",
}
_REFUSED: Final = re.compile(
    "authentication failed|no password|"
    'role ".*" (does not exist|is not permitted)|permission denied for database'
)

_TRUST: Final = "nothing was sent to it: sslrootcert=FILE in the address names who signed for it"
_UNTRUSTED: Final = re.compile("certificate|does not support SSL|SSL error|SSL negotiation")


def connect(url: str) -> psycopg.Connection[Any]:
    """Open a connection; password and certificates come from libpq's own places.

    Raises:
        Unreachable: no server answers there.
        Untrusted: who answers does not prove to be it, or speaks without TLS.
        Refused: it does not let this user in.
        Unsupported: psycopg is not installed.
    """
    import_psycopg()
    import psycopg

    options = dict(parse_qsl(urlsplit(url).query))
    defaults: dict[str, Any] = {k: v for k, v in _DEFAULTS.items() if k not in options}
    try:
        return psycopg.connect(url, autocommit=True, prepare_threshold=None, **defaults)
    except psycopg.OperationalError as error:
        text = str(error).strip()
        text = f"the shared ledger at {address(url)} cannot be used: {text}"
        if _UNTRUSTED.search(text):
            raise Untrusted(f"{text}; {_TRUST}") from error
        raise (Refused if _REFUSED.search(text) else Unreachable)(text) from error


def import_psycopg() -> None:
    """Check that the driver is there.

    Raises:
        Unsupported: it is not installed.
    """
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise Unsupported(
            "a shared ledger in PostgreSQL needs psycopg, which is missing: "
            f"run `{install_command('memtier[postgres]')}`"
        ) from error


def address(url: str) -> str:
    """Return an address without its user and options, for messages."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2] or "this machine"  # one, or several with commas
    named = [host if re.search(r":\d+$", host) else f"{host}:5432" for host in hosts.split(",")]
    return ",".join(named) + parts.path


@contextmanager
def cut_off_after(connection: psycopg.Connection[Any], seconds: float) -> Iterator[threading.Event]:
    """Cut a connection off after some seconds; the event tells whether that happened."""
    was_cut = threading.Event()

    def cut_off() -> None:
        was_cut.set()
        with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut_off)
    timer.daemon = True
    timer.start()
    try:
        yield was_cut
    finally:
        timer.cancel()


def open_later(url: str) -> Future[psycopg.Connection[Any]]:
    """Open a connection in a separate thread, as name resolution has no time-out."""
    opening: Future[psycopg.Connection[Any]] = Future()

    def work() -> None:
        try:
            opening.set_result(_open(url))
        except BaseException as error:
            opening.set_exception(error)

    threading.Thread(target=work, name="memtier-connect", daemon=True).start()
    return opening


def _open(url: str) -> psycopg.Connection[Any]:
    """Open a connection to a server whose schema is known; raises as the two functions do."""
    import psycopg

    connection = connect(url)
    try:
        with cut_off_after(connection, ANSWER_SECONDS):
            check_version(connection)
    except psycopg.OperationalError as error:
        connection.close()
        raise Unreachable(f"the shared ledger at {address(url)}: {first_line(error)}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def close_late(opening: Future[psycopg.Connection[Any]]) -> None:
    """Close a connection that nobody waits for any more."""
    with suppress(Exception):
        opening.result().close()


def check_version(connection: psycopg.Connection[Any]) -> None:
    """Check that the server's schema is the one that this MemTier knows.

    Raises:
        Refused: there is none, or not for this user.
        Unreachable: it is older or newer: until both are of a version, what is said waits.
    """
    import psycopg

    try:
        row = connection.execute("SELECT max(version) FROM memtier.schema_version").fetchone()
    except psycopg.errors.UndefinedTable as error:
        raise Refused(
            "there is no shared ledger in this database: `memtier shared init`"
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise Refused("this user was granted nothing: `memtier shared grant`") from error
    version = row[0] if row else 0
    if version < SCHEMA_VERSION:
        raise Unreachable(
            f"the shared ledger has schema {version}, this MemTier needs {SCHEMA_VERSION}: "
            "run `memtier shared migrate` as its owner"
        )
    if version > SCHEMA_VERSION:
        raise Unreachable(
            f"the shared ledger has schema {version}, this MemTier knows {SCHEMA_VERSION}: "
            "install a newer MemTier"
        )


def first_line(error: Exception) -> str:
    """Return what a server's error says, without its details."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def encode_owner(owner: str | None) -> str:
    """Encode an owner's name as text that PostgreSQL can hold."""
    return quote_from_bytes((owner or "").encode("utf-8", "surrogatepass"), safe=" @:+,=")


def decode_owner(text: str) -> str | None:
    """Return the name that `encode_owner` encoded."""
    return unquote_to_bytes(text).decode("utf-8", "surrogatepass") or None


# -- Set up the shared ledger in a database, and say which machine may do what in it
#
# All of this needs the database's owner; machines get a role each, which owns nothing.

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


def grant(url: str, machine_grant: MachineGrant, password: str | None = None) -> bool:
    """Let a machine take part in a project; return whether its role is new.

    Args:
        password: of a new role, or a new one of an existing role.

    Raises:
        LedgerError: the database is unreachable, or this user may not.
    """
    with _owner(url) as connection, connection.transaction():
        from psycopg import sql

        role = sql.Identifier(machine_grant.machine)
        new = not _role_exists(connection, machine_grant.machine)
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
            (
                machine_grant.machine,
                encode_owner(machine_grant.project),
                _agent(machine_grant),
                not machine_grant.read_only,
            ),
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


def _agent(grant: MachineGrant) -> str:
    return "*" if grant.agent is None else encode_owner(grant.agent)


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
