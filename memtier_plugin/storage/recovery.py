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
from memtier_plugin.storage import export_register
from memtier_plugin.storage.index.files import AS_OF_PREFIX, BUILD_LOCK, NEW_INDEX
from memtier_plugin.storage.store import Store

# Seconds after which a file is abandoned even if its process id is in use (it may be reused).
_WRITING: Final = 60.0
_MAKING: Final = 3600.0
_NEW: Final = re.compile(r"\..+\.(\d+)\.\d+\.new")  # `write_private_file`'s
_PART: Final = re.compile(r"\..+\.(\d+)\.part")  # of a backup


def find_unfinished(store: Store) -> list[Path]:
    """List the files that dead processes left unfinished, in a project and its home."""
    with _unfinished_files(store) as paths:
        return paths


def remove_unfinished(store: Store) -> list[Path]:
    """Remove the unfinished files and return their paths.

    Raises:
        LedgerError: a file cannot be removed.
    """
    with _unfinished_files(store) as paths:
        for path in paths:
            _remove(path)
        return paths


@contextmanager
def _unfinished_files(store: Store) -> Iterator[list[Path]]:
    """Yield the unfinished files; holding the build lock keeps new index builds out."""
    building = None
    with suppress(LedgerError):  # in a read-only home it cannot be determined
        building = locks.try_acquire_lock(store.project_folder.path / BUILD_LOCK)
    try:
        half_built = [] if building is None else store.project_folder.path.glob(f"{NEW_INDEX}*")
        yield sorted({*_abandoned_files(store), *half_built})
    finally:
        if building is not None:
            locks.release_lock(building)


def _abandoned_files(store: Store) -> Iterator[Path]:
    home = store.project_folder.home
    folders = [home, home / "queue", home / "hosts"]  # queued runs, host notes
    names = ".*.new"
    in_home = (path for folder in folders for path in folder.glob(names))
    for path in (*store.project_folder.path.rglob(names), *in_home):
        if (match := _NEW.fullmatch(path.name)) and _is_abandoned(path, match[1], _WRITING):
            yield path
    yield from abandoned_parts(store.project_folder.path)
    yield from _abandoned_restores(home)
    for path in store.project_folder.path.glob(f"{AS_OF_PREFIX}*.sqlite3*"):
        if _is_abandoned(path, "", _MAKING):
            yield path


def _abandoned_restores(home: Path) -> Iterator[Path]:
    for path in home.glob(f"{RESTORING}*"):
        if _is_abandoned(path, path.name.removeprefix(RESTORING).partition("-")[0], _MAKING):
            yield path


def remove_abandoned_restores(home: Path) -> None:
    """Remove the folders in which dead processes unpacked something.

    Raises:
        LedgerError: one cannot be removed.
    """
    for path in _abandoned_restores(home):
        _remove(path)


def abandoned_parts(folder: Path, *more: Path) -> Iterator[Path]:
    """Yield the parts of backups that dead processes left, wherever they were written.

    Args:
        folder: the project's folder, whose register knows them.
        more: other files that may be such parts.
    """
    exports = export_register.list_exports(folder)
    registered = [export.path for export in exports if export.kind == export_register.PART]
    for path in {*registered, *more}:
        match = _PART.fullmatch(path.name)
        if match and path.is_file() and _is_abandoned(path, match[1], _MAKING):
            yield path


def _is_abandoned(path: Path, process: str, seconds: float) -> bool:
    if process.isdecimal() and not locks.is_process_alive(int(process)):
        return True
    try:
        return time.time() - path.lstat().st_mtime > seconds
    except OSError:
        return False  # removed in the meantime


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise LedgerError(f"cannot remove {path}: {error}") from error
