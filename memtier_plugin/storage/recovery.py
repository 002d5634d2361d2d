"""Find and remove what dead processes left unfinished: temporary files, restores, indexes.

Nothing reads these files again, but they hold remembered content.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from memtier_plugin.core import locks
from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.paths import RESTORING
from memtier_plugin.storage.index.files import AS_OF_PREFIX, BUILD_LOCK, NEW_INDEX
from memtier_plugin.storage.store import Store

# Seconds after which nobody is still at it, should another process have got the number since.
_WRITING: Final = 60.0
_MAKING: Final = 3600.0
_NEW: Final = re.compile(r"\..+\.(\d+)\.\d+\.new")  # `write_private_file`'s


def find_unfinished(store: Store) -> list[Path]:
    """Return what nobody goes on making, in a project and its home."""
    with _unfinished_files(store) as found:
        return found


def remove_unfinished(store: Store) -> list[Path]:
    """Remove it; returns what was removed.

    Raises:
        LedgerError: something cannot be removed.
    """
    with _unfinished_files(store) as found:
        for path in found:
            _remove(path)
        return found


@contextmanager
def _unfinished_files(store: Store) -> Iterator[list[Path]]:
    """Yield what is left; meanwhile nobody begins to build an index."""
    building = None
    with suppress(LedgerError):  # in a home that cannot be written nobody can tell
        building = locks.try_acquire_lock(store.folder / BUILD_LOCK)
    try:
        half_built = [] if building is None else store.folder.glob(f"{NEW_INDEX}*")
        yield sorted({*_abandoned_files(store), *half_built})
    finally:
        if building is not None:
            locks.release_lock(building)


def _abandoned_files(store: Store) -> Iterator[Path]:
    places = [store.home, store.home / "queue", store.home / "hosts"]  # runs, and notes, of hosts
    names = ".*.new"
    for path in (*store.folder.rglob(names), *(p for place in places for p in place.glob(names))):
        if (made := _NEW.fullmatch(path.name)) and _is_abandoned(path, made[1], _WRITING):
            yield path
    for path in store.home.glob(f"{RESTORING}*"):
        if _is_abandoned(path, path.name.removeprefix(RESTORING).partition("-")[0], _MAKING):
            yield path
    for path in store.folder.glob(f"{AS_OF_PREFIX}*.sqlite3*"):
        if _is_abandoned(path, "", _MAKING):
            yield path


def _is_abandoned(path: Path, process: str, seconds: float) -> bool:
    if process.isdecimal() and not locks.is_process_alive(int(process)):
        return True
    try:
        return time.time() - path.lstat().st_mtime > seconds
    except OSError:
        return False  # it is gone


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise LedgerError(f"cannot remove {path}: {error}") from error
