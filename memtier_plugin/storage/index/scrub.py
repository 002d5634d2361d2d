"""Scrub deleted content from the index files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memtier_plugin.storage.index.connection import Index, index_problem
from memtier_plugin.storage.index.files import AS_OF_PREFIX, NEW_INDEX

if TYPE_CHECKING:
    import apsw

_PATIENT_MS: Final = 50  # for readers of an older state, in one go
_POLL: Final = 0.05  # seconds between tries while somebody reads


def truncate_wal(index: Index, seconds: float) -> bool:
    """Move all of the log into the index and cut the log off; tell whether that was possible.

    The index was built anew before, so that its free pages never held what is gone.  While
    another process reads an older state of it the log must stay: then it is tried again, for so
    many seconds.

    Raises:
        IndexProblem: the index cannot be used.
    """
    import apsw

    connection = index.connection()
    connection.set_busy_timeout(_PATIENT_MS)  # while it waits, nobody else can write
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
    """Tell whether the log still holds something after it was to be emptied."""
    [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return bool(busy)


def index_files(index: Index) -> list[Path]:
    """Return the files that an index consists of, and those that were set aside."""
    names = (f"{index.path.name}*", f"{NEW_INDEX}*")
    found = {path for name in names for path in index.path.parent.glob(name)}
    return sorted({*found, *index.path.parent.glob(f"{AS_OF_PREFIX}*.sqlite3*")})


def unneeded_files(index: Index) -> list[Path]:
    """Return those of these files that nobody needs: set aside, or of a process that ended."""
    kept = {f"{index.path.name}{end}" for end in ("", "-wal", "-shm", "-journal")}
    return [path for path in index_files(index) if path.name not in kept]
