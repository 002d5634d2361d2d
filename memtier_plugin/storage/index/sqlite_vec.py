"""Load the sqlite-vec extension, which computes vector distances inside SQLite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memtier_plugin.core.errors import IndexProblem

if TYPE_CHECKING:
    import apsw


def execute_with_vec(
    connection: apsw.Connection, sql: str, values: Sequence[Any]
) -> Iterator[tuple[Any, ...]]:
    """Run a query that calls sqlite-vec functions, loading the extension on first use.

    Raises:
        IndexProblem: sqlite-vec is not installed; the message names the remedy.
    """
    import apsw

    try:
        return connection.execute(sql, tuple(values))
    except apsw.SQLError as error:
        if "no such function" not in str(error):
            raise
    _load(connection)
    return connection.execute(sql, tuple(values))


def _load(connection: apsw.Connection) -> None:
    # Only locate the Python package: importing it pulls in numpy and the standard library's
    # sqlite3, a quarter of a second.
    spec = find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        raise IndexProblem(
            "sqlite-vec is missing: install memtier again, or `pip install sqlite-vec`"
        )
    connection.enable_load_extension(True)
    try:
        connection.load_extension(str(Path(spec.origin).with_name("vec0")))
    finally:
        connection.enable_load_extension(False)
