"""What a process that died has left half made: files not yet renamed, a restored project, an index.

Nobody reads them again, but they hold what was remembered.
"""

from __future__ import annotations

import shutil
from contextlib import suppress

from memtier_plugin import lock
from memtier_plugin.backup import RESTORING
from memtier_plugin.index_files import FRESH, remove_index
from memtier_plugin.store import Store


def clear(store: Store) -> int:
    """Remove them from a project and its home; returns how many files and folders there were.

    Raises:
        LedgerError: the lock on the building of an index cannot be looked at.
        IndexProblem: what was left of an index cannot be removed.
    """
    cleared = 0
    waiting = store.home / "queue"  # of runs that a host could not deliver
    for path in (*store.folder.rglob(".*.new"), *waiting.glob(".*.new")):  # `write_private`'s
        parts = path.name.split(".")
        process = parts[-3] if len(parts) > 4 else ""
        if process.isdecimal() and not lock.is_alive(int(process)):
            with suppress(OSError):
                path.unlink()
                cleared += 1
    for folder in store.home.glob(f"{RESTORING}*"):
        process = folder.name.removeprefix(RESTORING).partition("-")[0]
        if process.isdecimal() and not lock.is_alive(int(process)):
            shutil.rmtree(folder, ignore_errors=True)
            cleared += 1
    held = lock.take(store.folder / ".reindex.lock")
    if held is not None:  # nobody builds one now
        try:
            cleared += remove_index(store.index.path.with_name(FRESH))
        finally:
            lock.release(held)
    return cleared
