"""Open the derived index and create or migrate its schema; all DDL is here.

Everything in it can be rebuilt from the ledgers.  Never edit a released migration.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from memtier_plugin.core.errors import (
    ForeignFile,
    IndexProblem,
    LedgerError,
    SchemaTooNew,
    UnsafePath,
)
from memtier_plugin.core.files import (
    OPEN_FLAGS,
    check_ownership,
    hold_lock,
    index_vfs,
    inode_of,
    pass_point,
    tighten_mode,
)
from memtier_plugin.core.formats import to_iso
from memtier_plugin.storage.index import sqlite
from memtier_plugin.storage.index.sqlite import APPLICATION_ID, set_aside

if TYPE_CHECKING:
    import apsw

BUSY_MS: Final = 2000
# Of pages in memory: with SQLite's 2 MB, a recall from 10,000 entries reads 900 pages again.
CACHE_KIB: Final = 16_000
_RENEW_SECONDS: Final = 1.0
_log = logging.getLogger("memtier")
_PUNCTUATION: Final = "".join(
    chr(c) for c in range(33, 127) if not chr(c).isalnum() and chr(c) not in "'\""
)


def m001_first(connection: apsw.Connection) -> None:
    """Create the tables of ledger positions, items, postings, vectors, events and states."""
    for statement in (
        "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE files(
            id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, ledger TEXT NOT NULL, owner TEXT,
            device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL,
            mtime_ns INTEGER NOT NULL, offset INTEGER NOT NULL, lines INTEGER NOT NULL,
            tail TEXT NOT NULL)""",
        """CREATE TABLE bad_lines(
            file INTEGER NOT NULL, line INTEGER NOT NULL, reason TEXT NOT NULL,
            PRIMARY KEY(file, line)) WITHOUT ROWID""",
        "CREATE TABLE notices(at TEXT NOT NULL, path TEXT NOT NULL, what TEXT NOT NULL)",
        """CREATE TABLE scopes(
            id INTEGER PRIMARY KEY, agent TEXT NOT NULL, sender TEXT NOT NULL,
            entries INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL DEFAULT 0,
            shelf TEXT NOT NULL DEFAULT '', UNIQUE(agent, sender, shelf))""",
        """CREATE TABLE sessions(
            id INTEGER PRIMARY KEY, agent TEXT NOT NULL, name TEXT NOT NULL,
            UNIQUE(agent, name))""",
        """CREATE TABLE items(
            row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tier TEXT NOT NULL,
            scope INTEGER NOT NULL, session INTEGER, file INTEGER NOT NULL, line INTEGER NOT NULL,
            turn INTEGER NOT NULL, role TEXT NOT NULL, speaker TEXT, observed REAL NOT NULL,
            key TEXT, standing INTEGER NOT NULL, retrievable INTEGER NOT NULL,
            indexed INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL, data BLOB NOT NULL,
            quotable INTEGER NOT NULL DEFAULT 0)""",
        # A covering index: reading neighbours and due summaries touches no rows.
        """CREATE INDEX items_session
            ON items(session, observed, turn, id, scope, indexed, length, quotable)""",
        "CREATE INDEX items_turn ON items(session, turn)",
        "CREATE INDEX items_key ON items(key) WHERE key IS NOT NULL",
        "CREATE INDEX items_file ON items(file)",
        # One row per word and item, clustered by scope: reading one agent's postings of a term
        # never touches another agent's rows.  The item's length is repeated to save a join.
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
        # Our own tokenizer produces the n-grams, written as "scope.gram scope.gram ..."; with
        # these characters, FTS5's "ascii" tokenizer splits at white space only.
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
        "CREATE INDEX facts_subject ON facts(subject, relation, value)",
        """CREATE TABLE events(
            id TEXT PRIMARY KEY, stamp TEXT NOT NULL, kind TEXT NOT NULL, agent TEXT NOT NULL,
            run TEXT, file INTEGER NOT NULL, line INTEGER NOT NULL, data BLOB NOT NULL)
            WITHOUT ROWID""",
        "CREATE INDEX events_run ON events(run, agent, kind)",
        "CREATE INDEX events_kind ON events(kind, stamp)",
        "CREATE INDEX events_file ON events(file)",
        """CREATE TABLE touches(
            item TEXT NOT NULL, event TEXT NOT NULL, PRIMARY KEY(item, event)) WITHOUT ROWID""",
        """CREATE TABLE states(
            item TEXT PRIMARY KEY, weight REAL NOT NULL, promoted INTEGER NOT NULL,
            forgotten INTEGER NOT NULL, superseded_by TEXT, valid_to TEXT, reviewed TEXT,
            reverted INTEGER NOT NULL) WITHOUT ROWID""",
        """CREATE TABLE cursors(
            extractor TEXT NOT NULL, path TEXT NOT NULL, offset INTEGER NOT NULL,
            pass INTEGER NOT NULL, stamp TEXT NOT NULL, PRIMARY KEY(extractor, path))
            WITHOUT ROWID""",
        # One int8 vector for each piece of a text, and the packed signs of many vectors.
        # `embedded` counts the items with vectors, which shows how complete a model's are.
        """CREATE TABLE vectors(
            item INTEGER NOT NULL, model TEXT NOT NULL, piece INTEGER NOT NULL,
            vector BLOB NOT NULL, PRIMARY KEY(item, model, piece)) WITHOUT ROWID""",
        """CREATE TABLE vector_signs(
            model TEXT NOT NULL, scope INTEGER NOT NULL, first INTEGER NOT NULL,
            items BLOB NOT NULL, signs BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX vector_signs_first ON vector_signs(model, scope, first)",
        """CREATE TABLE embedded(
            model TEXT NOT NULL, scope INTEGER NOT NULL, items INTEGER NOT NULL,
            PRIMARY KEY(model, scope)) WITHOUT ROWID""",
    ):
        connection.execute(statement)


def m002_standing(connection: apsw.Connection) -> None:
    """Find the standing instructions of a scope without reading its other items."""
    connection.execute("CREATE INDEX items_standing ON items(scope, row) WHERE standing")


def m003_private(connection: apsw.Connection) -> None:
    """Keep which entries became confidences after they were written."""
    connection.execute("ALTER TABLE states ADD COLUMN private INTEGER NOT NULL DEFAULT 0")


def m004_content(connection: apsw.Connection) -> None:
    """Keep a checksum of what was read of each ledger, to recognise a copy of it."""
    connection.execute("ALTER TABLE files ADD COLUMN crc INTEGER")


def m005_priorities(connection: apsw.Connection) -> None:
    """Keep the importance of entries, and what their priority and their tier rest on."""
    connection.execute(
        """CREATE TABLE importance(
            item TEXT PRIMARY KEY, score INTEGER NOT NULL, stamp TEXT NOT NULL,
            event TEXT NOT NULL) WITHOUT ROWID"""
    )
    connection.execute(
        """CREATE TABLE headers(
            item TEXT PRIMARY KEY, agent TEXT NOT NULL, sender TEXT NOT NULL,
            tier INTEGER NOT NULL, alignment REAL NOT NULL, uses INTEGER NOT NULL, used TEXT,
            number INTEGER NOT NULL, stamp TEXT NOT NULL, event TEXT NOT NULL) WITHOUT ROWID"""
    )
    connection.execute("CREATE INDEX headers_tier ON headers(agent, sender, tier)")


def m006_gate(connection: apsw.Connection) -> None:
    """Keep the verdicts of the encoding gate, and which items are indexed by their words alone."""
    connection.execute("ALTER TABLE states ADD COLUMN gate TEXT")
    connection.execute("ALTER TABLE items ADD COLUMN words_only INTEGER NOT NULL DEFAULT 0")


def m007_times(connection: apsw.Connection) -> None:
    """Find what was said in a time without reading what was said at any other."""
    connection.execute("CREATE INDEX items_time ON items(scope, observed) WHERE indexed")


def m008_words_only(connection: apsw.Connection) -> None:
    """Keep of an item only whether it is found by its words alone; plugins know why."""
    for statement in (
        "ALTER TABLE states ADD COLUMN words_only INTEGER NOT NULL DEFAULT 0",
        "UPDATE states SET words_only = gate IS 'left_out'",
        "ALTER TABLE states DROP COLUMN gate",
    ):
        connection.execute(statement)


def m009_calls(connection: apsw.Connection) -> None:
    """Keep how the tool calls went that rested on an item."""
    connection.execute("ALTER TABLE states ADD COLUMN calls TEXT")
    connection.execute(
        "CREATE INDEX events_call ON events(data ->> 'call') WHERE kind IN ('credit', 'call')"
    )


_LOST: Final = ("no such table", "no such column")  # what a statement of ours needs

MIGRATIONS: Final[tuple[Callable[[apsw.Connection], None], ...]] = (
    m001_first,
    m002_standing,
    m003_private,
    m004_content,
    m005_priorities,
    m006_gate,
    m007_times,
    m008_words_only,
    m009_calls,
)


@dataclass(frozen=True, slots=True)
class _Held:
    """A connection with the process and the thread that own it.

    ``inode`` identifies the file it reads, which may have been set aside in the meantime.
    """

    process: int
    thread: threading.Thread
    connection: apsw.Connection
    inode: int | None


class Index:
    """The index file of one project: one connection per thread, reopened after a fork."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        # No lock, because a fork could copy it locked: single list operations are atomic.
        self._held: list[_Held] = []

    def connection(self) -> apsw.Connection:
        """Return this thread's connection to an index of the current schema.

        A damaged or foreign file is set aside and a new index started; see `replace_broken`.

        Raises:
            ForeignFile: the file is no index of ours and cannot be set aside.
            SchemaTooNew: a newer MemTier wrote it and it cannot be set aside.
            IndexProblem: SQLite cannot open it, for example because it is locked.  The message
                of each names the remedy.
        """
        held: _Held | None = getattr(self._local, "held", None)
        if held is not None and held.process == os.getpid() and held.inode != inode_of(self.path):
            self._close_held(held)
            held = None
        if held is None or held.process != os.getpid():
            self._close_of_dead_threads()
            try:
                connection = connect(self.path)
            except IndexProblem as problem:
                if not self.replace_broken(problem):
                    raise
                connection = connect(self.path)
            here = threading.current_thread()
            held = _Held(os.getpid(), here, connection, inode_of(self.path))
            self._local.held = held
            self._held.append(held)
        return held.connection

    def held(self) -> apsw.Connection | None:
        """Return this thread's open connection, if any, without checking the file."""
        held: _Held | None = getattr(self._local, "held", None)
        return held.connection if held is not None and held.process == os.getpid() else None

    def replace_broken(self, problem: Exception) -> bool:
        """Set aside an unusable index and start a new one; return whether that was done.

        Only a damaged or foreign database is set aside.  Links, folders, other users' files, and
        locked or read-only files are left where they are.
        """
        import apsw

        cause = problem.__cause__ or problem
        damaged = isinstance(cause, apsw.CorruptError | apsw.NotADBError) or (
            isinstance(cause, apsw.SQLError) and str(cause).startswith(_LOST)
        )
        other = isinstance(problem, ForeignFile | SchemaTooNew)
        if not (damaged or other) or isinstance(cause, UnsafePath):
            return False
        held: _Held | None = getattr(self._local, "held", None)
        mine = held.inode if held is not None and held.process == os.getpid() else None
        try:
            with hold_lock(self.path.with_name(".index.lock"), _RENEW_SECONDS):
                if held is not None and mine is not None:
                    self._close_held(held)
                    if inode_of(self.path) != mine:
                        return True  # another thread or process has replaced it
                elif _can_open(self.path):
                    return True
                aside = set_aside(self.path)
                with closing(connect(self.path)) as connection:
                    now = to_iso(datetime.now(UTC))
                    message = f"set aside as {aside.name} and rebuilt: {cause}"
                    connection.execute(
                        "INSERT INTO notices VALUES(?, ?, ?)", (now, self.path.name, message)
                    )
        except (apsw.Error, OSError, LedgerError, IndexProblem):
            return False
        return True

    def release(self) -> None:
        """Close this thread's connection; the next use opens another."""
        held: _Held | None = getattr(self._local, "held", None)
        if held is not None and held.process == os.getpid():
            self._close_held(held)

    def _close_held(self, held: _Held) -> None:
        self._local.held = None
        if held in self._held:
            self._held.remove(held)
            held.connection.close()

    def _close_of_dead_threads(self) -> None:
        for held in [*self._held]:
            if held.process == os.getpid() and not held.thread.is_alive():
                self._held.remove(held)
                close_connection(held.connection)

    def replace_with(self, fresh: apsw.Connection) -> None:
        """Replace this index with a freshly built one, in one transaction.

        Uses SQLite's backup rather than a rename: other processes have the file and its log
        open, keep reading the old rows, and see the new ones once the copy is committed.  A file
        that is not an index of ours is set aside under another name, never written to.

        Raises:
            IndexProblem: the index is locked, read-only or cannot be written; it is unchanged.
        """
        import apsw

        try:
            try:
                connection = self.connection()
            except IndexProblem as problem:
                if isinstance(problem.__cause__, apsw.BusyError | apsw.ReadOnlyError):
                    raise
                set_aside(self.path)
                connection = self.connection()
            connection.set_busy_timeout(30_000)
            pass_point("before swap index")
            with connection.backup("main", fresh, "main") as copy:
                while not copy.done:
                    copy.step(-1)
            pass_point("after swap index")
        except (apsw.Error, OSError) as error:
            raise IndexProblem(f"cannot replace the index {self.path}: {error}") from error

    def close(self) -> None:
        """Close every connection of this process.

        A connection inherited through a fork must be neither used nor closed, as its SQLite locks
        are the parent's.  It stays in the list so that no destructor closes it.
        """
        for held in [*self._held]:
            if held.process == os.getpid():
                self._held.remove(held)
                close_connection(held.connection)
        self._local = threading.local()


def connect(path: Path) -> apsw.Connection:
    """Open an index, creating or migrating it; in an unwritable home, open it read-only.

    Raises:
        ForeignFile: the file is not an index of ours, or not safe to open.
        SchemaTooNew: a newer MemTier wrote it.
        IndexProblem: SQLite cannot open it, for example because it is locked.  The message of
            each names the remedy.
    """
    import apsw

    sqlite.note_use()
    try:
        connection = _open(path)
        try:
            _check_schema(connection, path)
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            if not connection.readonly("main"):
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
            migrate(connection)
        except BaseException:
            close_connection(connection)
            raise
    except (apsw.Error, OSError) as error:
        raise index_problem(path, error) from error
    return connection


def close_connection(connection: apsw.Connection) -> None:
    """Close a connection; log a failure only, as everything of value is committed."""
    import apsw

    path = connection.filename
    try:
        connection.close()
    except apsw.Error as error:
        _log.warning("closing the index %s: %s", path, error)


def index_problem(path: Path, error: Exception) -> IndexProblem:
    """Build the error to raise when SQLite cannot use the index, with the remedy."""
    import apsw

    if isinstance(error, apsw.BusyError):
        return IndexProblem(f"another process keeps the index {path} locked; try again")
    if isinstance(error, apsw.NotADBError):
        return ForeignFile(f"{path} is not a SQLite file; move it away and run `memtier reindex`")
    return IndexProblem(
        f"cannot use the index {path}: {error}; the ledgers are untouched, "
        "`memtier reindex` builds a new one"
    )


def _check_schema(connection: apsw.Connection, path: Path) -> None:
    # Read in this order: another process may be creating the schema and the id right now.
    has_schema = next(iter(connection.execute("SELECT 1 FROM sqlite_schema")), None)
    if has_schema and _pragma(connection, "application_id") != APPLICATION_ID:
        raise ForeignFile(
            f"{path} is another program's database; move it away and run `memtier reindex`"
        )
    version = _pragma(connection, "user_version")
    if version > len(MIGRATIONS):
        raise SchemaTooNew(
            f"{path} has schema {version}, this MemTier knows {len(MIGRATIONS)}: upgrade MemTier, "
            "or move the index away and run `memtier reindex` (nothing is lost)"
        )


def migrate(connection: apsw.Connection) -> None:
    """Bring the schema up to date, each migration in a separate transaction."""
    version = _pragma(connection, "user_version")
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


def _open(path: Path) -> apsw.Connection:
    import apsw

    try:
        status = path.lstat()
        check_ownership(path, status, stat.S_IFREG)
        tighten_mode(path, status.st_mode)
    except UnsafePath as error:
        raise ForeignFile(f"{error}; move it away and run `memtier reindex`") from error
    except FileNotFoundError:
        # Created here with its mode, as SQLite would apply the umask.  An existing file must not
        # be opened alongside SQLite: closing it would release this process's POSIX locks on it.
        with suppress(FileExistsError):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS
            os.close(os.open(path, flags, 0o600))
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return _open_to_read(path)
    connection = apsw.Connection(str(path), vfs=index_vfs())
    connection.set_busy_timeout(BUSY_MS)
    return connection


def _open_to_read(path: Path) -> apsw.Connection:
    """Open the index of an unwritable home read-only."""
    import apsw

    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    name = f"file:{quote(str(path))}?mode=ro"
    try:
        connection = apsw.Connection(name, flags=flags)
        _pragma(connection, "user_version")
        return connection
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        # No write-ahead log can be created here, so the file itself is complete.
        return apsw.Connection(f"{name}&immutable=1", flags=flags)


def _can_open(path: Path) -> bool:
    try:
        connect(path).close()
    except IndexProblem:
        return False
    return True


def _pragma(connection: apsw.Connection, name: str) -> int:
    for row in connection.execute(f"PRAGMA {name}"):
        return int(row[0])
    return 0
