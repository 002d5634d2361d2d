"""The derived index: opening it, and the only DDL (design 4.5).

Everything in it can be rebuilt from the ledgers.  A released migration is never edited.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memtier_plugin.errors import ForeignFile, IndexProblem, SchemaTooNew

if TYPE_CHECKING:
    import apsw

APPLICATION_ID: Final = 0x4D54_4952  # "MTIR", so that a foreign database is known as such
BUSY_MS: Final = 2000
_PUNCTUATION: Final = "".join(
    chr(c) for c in range(33, 127) if not chr(c).isalnum() and chr(c) not in "'\""
)


def m001_first(connection: apsw.Connection) -> None:
    """Ledger positions, items with their postings and statistics, events and their fold."""
    for statement in (
        "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE files(
            id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, ledger TEXT NOT NULL, owner TEXT,
            device INTEGER NOT NULL, inode INTEGER NOT NULL, offset INTEGER NOT NULL,
            lines INTEGER NOT NULL, tail TEXT NOT NULL, mtime_ns INTEGER NOT NULL)""",
        """CREATE TABLE bad_lines(
            file INTEGER NOT NULL, line INTEGER NOT NULL, reason TEXT NOT NULL,
            PRIMARY KEY(file, line)) WITHOUT ROWID""",
        "CREATE TABLE notices(at TEXT NOT NULL, path TEXT NOT NULL, what TEXT NOT NULL)",
        """CREATE TABLE scopes(
            id INTEGER PRIMARY KEY, agent TEXT NOT NULL, sender TEXT NOT NULL,
            entries INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL DEFAULT 0,
            UNIQUE(agent, sender))""",
        """CREATE TABLE sessions(
            id INTEGER PRIMARY KEY, agent TEXT NOT NULL, name TEXT NOT NULL,
            UNIQUE(agent, name))""",
        """CREATE TABLE items(
            row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tier TEXT NOT NULL,
            scope INTEGER NOT NULL, session INTEGER, file INTEGER NOT NULL, line INTEGER NOT NULL,
            turn INTEGER NOT NULL, role TEXT NOT NULL, speaker TEXT, observed REAL NOT NULL,
            key TEXT, retrievable INTEGER NOT NULL,
            indexed INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL, data BLOB NOT NULL)""",
        "CREATE INDEX items_session ON items(session, observed, turn, id)",
        "CREATE INDEX items_turn ON items(session, turn)",
        "CREATE INDEX items_key ON items(key) WHERE key IS NOT NULL",
        "CREATE INDEX items_file ON items(file)",
        # One row a word and item, clustered by scope: reading a term of one agent never
        # touches another's rows, and the length spares a join.
        """CREATE TABLE postings(
            scope INTEGER NOT NULL, term TEXT NOT NULL, item INTEGER NOT NULL,
            tf INTEGER NOT NULL, length INTEGER NOT NULL,
            PRIMARY KEY(scope, term, item)) WITHOUT ROWID""",
        """CREATE TABLE terms(
            scope INTEGER NOT NULL, term TEXT NOT NULL, df INTEGER NOT NULL,
            PRIMARY KEY(scope, term)) WITHOUT ROWID""",
        """CREATE TABLE gram_terms(
            scope INTEGER NOT NULL, term TEXT NOT NULL, df INTEGER NOT NULL,
            PRIMARY KEY(scope, term)) WITHOUT ROWID""",
        # The n-grams are made by our tokenizer and arrive as "scope.gram scope.gram ...";
        # "ascii" splits them at white space only and leaves everything else alone.
        f"""CREATE VIRTUAL TABLE grams USING fts5(
            text, content='', contentless_delete=1, detail=none,
            tokenize="ascii tokenchars '{_PUNCTUATION}'")""",
        "CREATE VIRTUAL TABLE gram_postings USING fts5vocab(grams, instance)",
        """CREATE TABLE sources(
            fact TEXT NOT NULL, entry TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
            via TEXT NOT NULL, place INTEGER NOT NULL,
            PRIMARY KEY(fact, entry, via)) WITHOUT ROWID""",
        "CREATE INDEX sources_entry ON sources(entry)",
        "CREATE INDEX sources_via ON sources(via)",
        """CREATE TABLE facts(
            id TEXT PRIMARY KEY, row INTEGER NOT NULL, subject TEXT NOT NULL,
            relation TEXT NOT NULL, value TEXT NOT NULL) WITHOUT ROWID""",
        "CREATE INDEX facts_subject ON facts(subject, relation)",
        """CREATE TABLE events(
            id TEXT PRIMARY KEY, stamp TEXT NOT NULL, kind TEXT NOT NULL, agent TEXT NOT NULL,
            run TEXT, file INTEGER NOT NULL, line INTEGER NOT NULL, data BLOB NOT NULL)
            WITHOUT ROWID""",
        "CREATE INDEX events_run ON events(agent, run, kind)",
        "CREATE INDEX events_kind ON events(kind, stamp)",
        "CREATE INDEX events_file ON events(file)",
        """CREATE TABLE touches(
            item TEXT NOT NULL, event TEXT NOT NULL, PRIMARY KEY(item, event)) WITHOUT ROWID""",
        """CREATE TABLE states(
            item TEXT PRIMARY KEY, weight REAL NOT NULL, promoted INTEGER NOT NULL,
            forgotten INTEGER NOT NULL, superseded_by TEXT, valid_to TEXT) WITHOUT ROWID""",
        """CREATE TABLE cursors(
            path TEXT PRIMARY KEY, offset INTEGER NOT NULL, stamp TEXT NOT NULL) WITHOUT ROWID""",
        """CREATE TABLE vectors(
            item INTEGER NOT NULL, model TEXT NOT NULL, vector BLOB NOT NULL,
            PRIMARY KEY(item, model)) WITHOUT ROWID""",
    ):
        connection.execute(statement)


MIGRATIONS: Final[tuple[Callable[[apsw.Connection], None], ...]] = (m001_first,)


class Index:
    """The index file of one project: one connection a thread, opened anew after a fork."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: list[apsw.Connection] = []
        self._orphans: list[apsw.Connection] = []
        self._pid = os.getpid()

    def connection(self) -> apsw.Connection:
        """Return this thread's connection to an index of the current schema.

        Raises:
            ForeignFile, SchemaTooNew, IndexProblem: with the remedy.
        """
        with self._lock:
            if self._pid != os.getpid():
                # A child must neither use nor close what it inherited: SQLite's locks are the
                # parent's.  Kept alive so that no destructor closes it.
                self._orphans += self._open
                self._open = []
                self._local = threading.local()
                self._pid = os.getpid()
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(self.path)
            with self._lock:
                self._open.append(connection)
        return connection

    def replace_with(self, fresh: apsw.Connection) -> None:
        """Put a freshly built index in the place of this one, in one transaction.

        SQLite's backup, not a rename: other processes hold the file and its log open, go on
        reading what was there, and see the new rows when the copy is committed.  A file that is
        no index of ours is set aside under another name, never written to.
        """
        try:
            connection = self.connection()
        except IndexProblem:
            _set_aside(self.path)
            connection = self.connection()
        connection.set_busy_timeout(30_000)
        with connection.backup("main", fresh, "main") as copy:
            while not copy.done:
                copy.step(-1)

    def close(self) -> None:
        """Close every connection of this process."""
        with self._lock:
            if self._pid == os.getpid():
                for connection in self._open:
                    connection.close()
            self._open = []
            self._local = threading.local()


def connect(path: Path, *, busy_ms: int = BUSY_MS) -> apsw.Connection:
    """Open an index, making or migrating it; a home that cannot be written is opened to read.

    Raises:
        ForeignFile, SchemaTooNew, IndexProblem: with the remedy.
    """
    import apsw

    try:
        connection = _open(path, busy_ms)
        migrate(connection, path)
    except apsw.NotADBError as error:
        raise ForeignFile(
            f"{path} is not a SQLite file; move it away and run `memtier reindex`"
        ) from error
    except apsw.Error as error:
        raise IndexProblem(
            f"cannot open the index {path}: {error}; the ledgers are untouched, "
            "`memtier reindex` builds a new one"
        ) from error
    return connection


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring the schema up to date, each migration in a transaction of its own.

    Raises:
        SchemaTooNew: a newer MemTier made it.
        ForeignFile: it is some other program's database.
    """
    version = _pragma(connection, "user_version")
    if version > len(MIGRATIONS):
        raise SchemaTooNew(
            f"{path} has schema {version}, this MemTier knows {len(MIGRATIONS)}: upgrade MemTier, "
            "or move the index away and run `memtier reindex` (nothing is lost)"
        )
    foreign = _pragma(connection, "application_id") != APPLICATION_ID
    if foreign and next(iter(connection.execute("SELECT 1 FROM sqlite_schema")), None):
        raise ForeignFile(
            f"{path} is another program's database; move it away and run `memtier reindex`"
        )
    while version < len(MIGRATIONS):
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = _pragma(connection, "user_version")  # another process may have done it
            if version < len(MIGRATIONS):
                MIGRATIONS[version](connection)
                version += 1
                connection.execute(f"PRAGMA user_version = {version}")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _open(path: Path, busy_ms: int) -> apsw.Connection:
    import apsw

    try:
        # Made here with its mode, not by SQLite with the umask's.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
    except OSError:
        # A read-only home is served as it is; without a write there is no log to follow.
        name = f"file:{path}?immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return apsw.Connection(name, flags=flags)
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(busy_ms)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _set_aside(path: Path) -> None:
    stamp = f"{time.time_ns() // 1_000_000}"
    for suffix in ("", "-wal", "-shm"):
        if os.path.lexists(f"{path}{suffix}"):
            os.rename(f"{path}{suffix}", path.with_name(f"set-aside-{stamp}-{path.name}{suffix}"))


def _pragma(connection: apsw.Connection, name: str) -> int:
    for row in connection.execute(f"PRAGMA {name}"):
        return int(row[0])
    return 0
