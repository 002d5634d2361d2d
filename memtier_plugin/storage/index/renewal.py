"""Renew an index: which ledger files it still lacks, and scrubbing what was deleted."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.errors import IndexProblem, LedgerError
from memtier_plugin.storage.index.connection import Index, index_problem
from memtier_plugin.storage.index.sqlite import AS_OF_PREFIX, NEW_INDEX
from memtier_plugin.storage.index.writer import is_behind, set_metadata
from memtier_plugin.storage.ledger.log import ledger_files

if TYPE_CHECKING:
    import apsw


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
