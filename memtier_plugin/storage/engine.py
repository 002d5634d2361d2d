"""Name the SQLite that the index is kept in, and try what the index needs of it."""

from __future__ import annotations

from memtier_plugin.core.errors import IndexProblem


def describe_engine() -> dict[str, str]:
    """Return the versions of apsw, SQLite and its full-text search, which is tried.

    Raises:
        IndexProblem: the search is missing, or does not work.
    """
    import apsw

    connection = apsw.Connection(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
        connection.execute("INSERT INTO words VALUES ('a memory for agents')")
        [(hits,)] = connection.execute("SELECT count(*) FROM words WHERE words MATCH 'agents'")
        if hits != 1:
            raise IndexProblem("FTS5 does not find a word that it was given")
        [(source,)] = connection.execute("SELECT fts5_source_id()")
    except apsw.Error as error:
        raise IndexProblem(f"SQLite lacks what the index needs: {error}") from error
    finally:
        connection.close()
    return {
        "apsw": apsw.apsw_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "fts5": str(source).removeprefix("fts5: ").partition(" ")[0],
    }
