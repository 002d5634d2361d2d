"""Track whether a newly begun index still lacks what older ledger files hold.

Before a recall only the newest files are read, so until everything was read once recalls say so.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.errors import IndexProblem, LedgerError
from memtier_plugin.storage.index.connection import Index
from memtier_plugin.storage.index.writer import is_behind, ledger_files, set_metadata

if TYPE_CHECKING:
    import apsw

INCOMPLETE: Final = "unread"  # what the index says of itself meanwhile
_FEW: Final = 100  # ledger files that may be looked at before a recall


def mark_incomplete(connection: apsw.Connection, folder: Path, at_once: int) -> bool:
    """Note in a new index, and tell, whether the ledgers hold more than is read before a recall.

    Args:
        at_once: how many bytes that are.
    """
    try:
        files, newest = ledger_files(folder), ledger_files(folder, newest=2)
        more = len(files) > len(newest) or sum(f.path.stat().st_size for f in newest) > at_once
    except (LedgerError, OSError):
        more = True  # who reads them says what is wrong with them
    if more:
        set_metadata(connection, INCOMPLETE, "yes")
    return more


def is_incomplete(index: Index, folder: Path) -> bool:
    """Tell whether older files are still to be read; where they are few, look at them."""
    import apsw

    with suppress(apsw.Error, IndexProblem, LedgerError):  # told where it is used
        connection = index.connection()
        files = ledger_files(folder)
        if len(files) <= _FEW and not any(is_behind(connection, file) for file in files):
            set_metadata(connection, INCOMPLETE, None)
            return False
    return True
