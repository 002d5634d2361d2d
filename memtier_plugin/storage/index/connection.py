"""Open the derived index, and create or migrate its schema (`migrations`).

Everything in it can be rebuilt from the ledgers.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
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
from memtier_plugin.storage.index.migrations import MIGRATIONS
from memtier_plugin.storage.index.sqlite import APPLICATION_ID, set_aside

if TYPE_CHECKING:
    import apsw

BUSY_MS: Final = 2000
# Of pages in memory: with SQLite's 2 MB, a recall from 10,000 entries reads 900 pages again.
CACHE_KIB: Final = 16_000
_RENEW_SECONDS: Final = 1.0
_log = logging.getLogger("memtier")
_LOST: Final = ("no such table", "no such column")  # what a statement of ours needs


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
        raise ForeignFile(f"{error}; then run `memtier reindex`") from error
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
