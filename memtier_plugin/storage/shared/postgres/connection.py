"""Connections to PostgreSQL, by psycopg 3: how they are opened, checked, and cut off."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote_from_bytes, unquote_to_bytes, urlsplit

from memtier_plugin.core.errors import Unsupported
from memtier_plugin.storage.shared.protocol import Refused, Unreachable, Untrusted

if TYPE_CHECKING:
    import psycopg

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

    given = dict(parse_qsl(urlsplit(url).query))
    defaults: dict[str, Any] = {k: v for k, v in _DEFAULTS.items() if k not in given}
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
            "a shared ledger needs psycopg: pip install 'memtier[postgres]'"
        ) from error


def address(url: str) -> str:
    """Return an address without what it says of users and options, for messages."""
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
    """Open a connection in a thread of its own: to look a name up knows no deadline."""
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
