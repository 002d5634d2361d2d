"""Scrub deleted content from the index files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memtier_plugin.storage.index.connection import Index, index_problem
from memtier_plugin.storage.index.files import AS_OF_PREFIX, NEW_INDEX

if TYPE_CHECKING:
    import apsw

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
