"""Sessions on a project's index: one connection, checked once, serves every read; its renewal."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

from memtier_plugin.core.errors import IndexProblem, IndexReplaced, LedgerError
from memtier_plugin.core.paths import index_path
from memtier_plugin.storage.index.connection import (
    Index,
    close_connection,
    connect,
    index_problem,
)
from memtier_plugin.storage.index.postings import follow_plugins
from memtier_plugin.storage.index.sqlite import (
    AS_OF_PREFIX,
    NEW_INDEX,
    broken_indexes,
    is_own_index,
)
from memtier_plugin.storage.index.writer import is_behind, read_metadata, set_metadata
from memtier_plugin.storage.ledger.jsonl import ledger_files
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import apsw


# -- Track whether a new index still lacks lines, and scrub what was deleted from its files

# -- Track whether a new index still lacks lines of older ledger files
#
# A recall reads only the newest files first, so recalls report the gap until every file was read.

INCOMPLETE: Final = "unread"  # metadata key of the index while it is incomplete
_FEW: Final = 100  # ledger files that may be examined before a recall


def mark_incomplete(connection: apsw.Connection, folder: Path, at_once: int) -> bool:
    """Mark a new index incomplete if the ledgers exceed one recall's reading; return whether.

    Args:
        at_once: the bytes read before a recall.
    """
    try:
        files, newest = ledger_files(folder), ledger_files(folder, newest=2)
        more = len(files) > len(newest) or sum(f.path.stat().st_size for f in newest) > at_once
    except (LedgerError, OSError):
        more = True  # reading them will report the error
    if more:
        set_metadata(connection, INCOMPLETE, "yes")
    return more


def is_incomplete(index: Index, folder: Path) -> bool:
    """Return whether older files are still unread; a few are checked directly."""
    import apsw

    with suppress(apsw.Error, IndexProblem, LedgerError):  # reported where the index is used
        connection = index.connection()
        files = ledger_files(folder)
        if len(files) <= _FEW and not any(is_behind(connection, file) for file in files):
            set_metadata(connection, INCOMPLETE, None)
            return False
    return True


# -- Scrub deleted content from the index files

_PATIENT_MS: Final = 50  # wait per attempt for readers of an older state
_POLL: Final = 0.05  # seconds between attempts while others read


def truncate_wal(index: Index, seconds: float) -> bool:
    """Checkpoint the log into the index and truncate it; return whether that succeeded.

    The index was rebuilt before, so its free pages never held the deleted content.  The log must
    stay while another process reads an older state: the attempt is then repeated until the timeout.

    Raises:
        IndexProblem: the index cannot be used.
    """
    import apsw

    connection = index.connection()
    connection.set_busy_timeout(_PATIENT_MS)  # other writers are blocked during the wait
    until = time.monotonic() + seconds
    while True:
        try:
            if not _logged(connection):
                return True
        except apsw.BusyError:
            pass
        except apsw.Error as error:
            raise index_problem(index.path, error) from error
        if time.monotonic() > until:
            return False
        time.sleep(_POLL)


def _logged(connection: apsw.Connection) -> bool:
    """Checkpoint; return whether the log could not be emptied."""
    [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return bool(busy)


def index_files(index: Index) -> list[Path]:
    """List the files of an index, including those set aside."""
    names = (f"{index.path.name}*", f"{NEW_INDEX}*")
    files = {path for name in names for path in index.path.parent.glob(name)}
    return sorted({*files, *index.path.parent.glob(f"{AS_OF_PREFIX}*.sqlite3*")})


def unneeded_files(index: Index) -> list[Path]:
    """List the index files no longer needed: set aside, or left by an ended process."""
    current = {f"{index.path.name}{end}" for end in ("", "-wal", "-shm", "-journal")}
    return [path for path in index_files(index) if path.name not in current]


_log = logging.getLogger("memtier")
_P = ParamSpec("_P")
_T = TypeVar("_T")

REFRESH_BYTES: Final = 512 * 1024  # of ledger indexed before a recall; the rest comes later
_STEPS: Final = 20_000  # SQLite steps between two checks of the clock


class DeadlineExceeded(Exception):
    """The deadline of a read has passed; the caller returns its partial result."""


def from_new_index(read: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let what only reads go on with the new index when the old one breaks under it."""

    @wraps(read)
    def again(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return read(*args, **kwargs)
        except IndexReplaced:
            return read(*args, **kwargs)

    return again


class SetAside(NamedTuple):
    """An index that was replaced: where it is, its bytes, and whether MemTier made it."""

    where: str
    size: int
    ours: bool


class _OpenSessions(threading.local):
    """The number of sessions that this thread has open."""

    count = 0


class IndexSessions:
    """The index of one project, read by one thread at a time through each connection."""

    def __init__(self, folder: Path, language: str) -> None:
        self._folder = folder
        self.index = Index(index_path(folder))  # for this package only
        self.tokenizer = Tokenizer(language)
        self._fingerprint = self.tokenizer.fingerprint  # compared at every read of the index
        self._open = _OpenSessions()
        self.stale_tokenizer: str | None = None  # the index's, if it differs from the settings'
        self._last_warning = ""
        self._renewed = False  # whether the index was begun anew and has taken in nothing yet
        self.incomplete = False  # whether the index is new and may lack older ledger files

    def reader(self) -> Reader:
        """Return a reader on this thread's connection.

        Raises:
            IndexProblem: the index cannot be used; the message names the remedy.
        """
        return Reader(self._connection())

    def release(self) -> None:
        """Close what this thread has open of the index, unless it is in a session."""
        if not self._open.count:
            self.index.release()

    def _connection(self) -> apsw.Connection:
        """Return this thread's connection; file and tokenizer are checked once per session."""
        held = self.index.held() if self._open.count else None
        if held is not None:
            return held
        connection = self.index.connection()
        self._check_tokenizer(connection)
        return connection

    def set_busy_timeout(self, milliseconds: int) -> None:
        """Set how long this thread's writes wait for other writers."""
        self._connection().set_busy_timeout(milliseconds)

    def check_index(self) -> str:
        """Return "ok", or the first damage that SQLite finds in the index.

        Uses a connection of its own: one that has searched compares the text index with the
        structure that it cached, and reports as damage what others have written since.
        """
        self._connection()  # made or mended first, if need be
        fresh = connect(self.index.path)
        try:
            [(result,)] = fresh.execute("PRAGMA quick_check(1)").fetchall()
        finally:
            close_connection(fresh)
        return str(result)

    @property
    def index_location(self) -> str:
        """Where the index is, for messages."""
        return str(self.index.path)

    def is_index(self, name: str) -> bool:
        """Return whether a notice is about the index rather than a segment of the log."""
        return name == self.index.path.name

    def index_size(self) -> int:
        """Return the bytes of the index, its write-ahead log included."""
        paths = [Path(f"{self.index.path}{suffix}") for suffix in ("", "-wal")]
        return sum(path.stat().st_size for path in paths if path.exists())

    def scrub_index(self, seconds: float) -> bool:
        """Remove what was deleted from the index's files; return whether that succeeded.

        Args:
            seconds: how long to wait for readers of an older state.

        Raises:
            IndexProblem: the index cannot be used.
        """
        return truncate_wal(self.index, seconds)

    def list_set_aside(self) -> list[SetAside]:
        """List the broken indexes that were set aside, oldest first."""
        return [
            SetAside(str(path), path.lstat().st_size, is_own_index(path))
            for path in broken_indexes(self.index.path)
        ]

    def remove_set_aside(self) -> Iterator[str]:
        """Remove the broken indexes that were set aside and are ours; yield where each was."""
        for path in broken_indexes(self.index.path):
            if is_own_index(path):
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{path}{suffix}").unlink(missing_ok=True)
                yield str(path)

    @contextmanager
    def _session(self) -> Iterator[apsw.Connection]:
        connection = self._connection()
        self._open.count += 1
        try:
            yield connection
        finally:
            self._open.count -= 1

    def _handle_error(self, error: apsw.Error) -> IndexProblem:
        """Return the problem to report; a damaged index is set aside, to be rebuilt."""
        import apsw

        problem = index_problem(self.index.path, error)
        # A connection is closed under its reader when the index is set aside.
        if isinstance(error, apsw.ConnectionClosedError) or self.index.replace_broken(error):
            return IndexReplaced(f"{problem}; it was set aside and is being rebuilt: try again")
        return problem

    def _begins_anew(self, error: Exception) -> bool:
        """Log what keeps the index behind; return whether a new one is begun, and to be tried."""
        if str(error) != self._last_warning:  # once, not at every recall
            self._last_warning = str(error)
            _log.warning("the index in %s is behind: %s", self._folder, error)
        # A new one that breaks at once is no remedy.
        self._renewed = not self._renewed and self.index.replace_broken(error)
        return self._renewed

    def _check_tokenizer(self, connection: apsw.Connection) -> None:
        """Use the tokenizer that built the index; changing it takes a reindex."""
        metadata = read_metadata(connection)
        if not connection.readonly("main"):
            follow_plugins(connection, metadata)
        built_with, self.incomplete = metadata.get("tokenizer"), INCOMPLETE in metadata
        if built_with is None and not connection.readonly("main"):
            set_metadata(connection, "tokenizer", self._fingerprint)
            built_with = self._fingerprint
            self.incomplete = mark_incomplete(connection, self._folder, REFRESH_BYTES)
        current = built_with in (None, self._fingerprint)
        self.stale_tokenizer = None if current else str(built_with)
        if built_with and built_with != self.tokenizer.fingerprint:
            self.tokenizer = Tokenizer(str(built_with).partition(":")[2])

    @contextmanager
    def deadline(self, until: float | None) -> Iterator[Reader]:
        """Open a session whose queries are interrupted at ``until`` (``time.monotonic()``).

        Raises:
            DeadlineExceeded: the deadline passed while a query ran.
            IndexProblem: the index cannot be used.
        """
        import apsw

        try:
            with self._session() as connection:
                if until is not None:
                    left = max(0, int((until - time.monotonic()) * 1000))
                    connection.set_busy_timeout(left)
                    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
                try:
                    yield Reader(connection)
                finally:
                    if until is not None:
                        with suppress(apsw.Error):  # closed when the index was set aside
                            connection.set_progress_handler(None)
        except (apsw.InterruptError, apsw.BusyError) as error:
            raise DeadlineExceeded(str(error)) from error
        except apsw.Error as error:
            raise self._handle_error(error) from error

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        """Yield a reader that sees one state of the index, regardless of concurrent writes.

        Raises:
            IndexProblem: the index cannot be used.
        """
        with self._session() as connection:
            self._check_tokenizer(connection)
            connection.execute("BEGIN")
            try:
                yield Reader(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def shared_connection(self) -> Iterator[None]:
        """Check the index once for all sessions that this thread opens until this ends.

        If it cannot be used, every session checks it, and reports the problem, for itself.
        """
        import apsw

        with ExitStack() as stack:
            with suppress(IndexProblem, apsw.Error):
                stack.enter_context(self._session())
            yield

    @contextmanager
    def session(self) -> Iterator[Reader]:
        """Open a session: one reader for everything this thread reads until it ends.

        Nested sessions share its connection.

        Raises:
            IndexProblem: the index cannot be used, or not now; the message names the remedy.
        """
        import apsw

        try:
            with self._session() as connection:
                yield Reader(connection)
        except apsw.Error as error:
            raise self._handle_error(error) from error
