"""Track whether a new index still lacks lines of older ledger files.

A recall reads only the newest files first, so recalls report the gap until every file was read.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.errors import IndexProblem, LedgerError
from memtier_plugin.storage.index.connection import Index
from memtier_plugin.storage.index.writer import is_behind, set_metadata
from memtier_plugin.storage.ledger.segments import ledger_files

if TYPE_CHECKING:
    import apsw

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
