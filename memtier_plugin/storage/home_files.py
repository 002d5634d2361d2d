"""Other files of a home: exports, leftovers, copies, queued runs, snapshots."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.files import (
    OPEN_FLAGS,
    hold_lock,
    is_process_alive,
    release_lock,
    try_acquire_lock,
)
from memtier_plugin.core.formats import from_iso, to_iso
from memtier_plugin.core.paths import LEDGERS, PROJECT_JOURNAL, RESTORING
from memtier_plugin.storage.index.sqlite import AS_OF_PREFIX, BUILD_LOCK, NEW_INDEX
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.jsonl import ledger_files
from memtier_plugin.storage.sessions import index_files, unneeded_files
from memtier_plugin.storage.store import Store

# -- Register files written outside of the home, so that a purge can report copies there
#
# A file is registered before it can be seen, so that none is unknown whose writer was killed.
#
# `exports.jsonl` in the project's folder has a line for each file: time, path, kind, and a hash
# that identifies it.  It holds no exported content.

REGISTER_FILE: Final = "exports.jsonl"
PART: Final = "part"  # kind of a file that becomes an export once it is complete
_PIECE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Export:
    """One exported file or folder; ``digest`` is "" unless it was a plain file."""

    at: datetime
    path: Path
    kind: str
    digest: str = ""

    @property
    def exists(self) -> bool:
        """True if the path exists now."""
        return os.path.lexists(self.path)

    @property
    def unchanged(self) -> bool:
        """True if the file still has the exported content."""
        return bool(self.digest) and self.digest == file_digest(self.path)


def register_export(folder: Path, path: Path, kind: str, *, content: Path | None = None) -> Export:
    """Record an exported file of this kind ("jsonl", "markdown", "backup", "model", "part").

    Args:
        folder: the project's folder.
        content: the file that has become ``path``, or is about to; none before it is written.

    Raises:
        LedgerError: the register cannot be written.
    """
    absolute = Path(os.path.abspath(path))
    export = Export(datetime.now(UTC), absolute, kind, file_digest(content) if content else "")
    record = {
        "at": to_iso(export.at),
        "path": str(absolute),
        "kind": kind,
        "digest": export.digest,
    }
    jsonl.append_records(folder / REGISTER_FILE, [record], durability="sync")
    return export


def list_exports(folder: Path) -> list[Export]:
    """List a project's exports, oldest first; for each path only the newest.

    Raises:
        LedgerError: the register cannot be read.
    """
    exports: dict[Path, Export] = {}
    for export in _registered(folder):
        exports.pop(export.path, None)
        exports[export.path] = export
    return [*exports.values()]


def file_digest(path: Path) -> str:
    """Hash a plain file; return "" if it cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest()


def _registered(folder: Path) -> Iterator[Export]:
    path = folder / REGISTER_FILE
    if not path.exists():
        return
    for line in jsonl.read_lines(path)[0]:
        with suppress(ValueError, TypeError, KeyError):  # torn, or not ours
            record = jsonl.parse_line(line)
            yield Export(
                from_iso(record["at"]),
                Path(record["path"]),
                str(record["kind"]),
                str(record["digest"]),
            )


# -- Find and remove what dead processes left unfinished: temporary files, restores, indexes
#
# Nothing reads these files again, but they hold remembered content.

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
        building = try_acquire_lock(store.project_folder.path / BUILD_LOCK)
    try:
        half_built = [] if building is None else store.project_folder.path.glob(f"{NEW_INDEX}*")
        yield sorted({*_abandoned_files(store), *half_built})
    finally:
        if building is not None:
            release_lock(building)


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
    exports = list_exports(folder)
    registered = [export.path for export in exports if export.kind == PART]
    for path in {*registered, *more}:
        match = _PART.fullmatch(path.name)
        if match and path.is_file() and _is_abandoned(path, match[1], _MAKING):
            yield path


def _is_abandoned(path: Path, process: str, seconds: float) -> bool:
    if process.isdecimal() and not is_process_alive(int(process)):
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


# -- List the files of a home that may hold copies of records, for a purge


def list_all_files(store: Store) -> set[Path]:
    """Return every file of the home, and of the index wherever it is."""
    files = {path for path in store.project_folder.home.rglob("*") if path.is_file()}
    return files | {*index_files(store.index)}


def list_obsolete_files(store: Store) -> list[Path]:
    """List the files that nothing reads again: of former indexes and of dead processes."""
    unfinished = [path for path in find_unfinished(store) if path.is_file()]
    return sorted({*unneeded_files(store.index), *unfinished})


def iter_other_files(store: Store) -> Iterator[Path]:
    """Yield the home's files that belong neither to this project's log nor to an index."""
    segments = {file.path for file in store.log.segments()}
    for path in sorted(store.project_folder.home.rglob("*")):
        if path in segments or path.is_symlink() or not path.is_file():
            continue
        if ".sqlite3" in path.name or path.name == REGISTER_FILE:
            continue
        yield path


# -- Count the runs that hosts could not deliver yet, which wait in files of the home


def count_queued_runs(home: Path) -> tuple[int, int]:
    """Return how many runs wait to be delivered by the hosts, and how many were refused."""
    names: list[str] = []
    for folder in (home / "queue", home / "queue" / "remote"):
        with suppress(OSError):
            names += os.listdir(folder)
    return (
        sum(name.endswith(".json") and not name.startswith(".") for name in names),
        sum(name.endswith(".refused") for name in names),
    )


# -- Freeze a consistent snapshot of a project's files while others write, for a backup

# State of this machine, or derived from other files.
_EXCLUDED: Final = ("background.json", "review.json", "share.json", "hooks", "index.")
_INCLUDED_HIDDEN: Final = (
    ".names",
    ".settling.json",
    ".settling.unreadable",
)  # other hidden files are private to processes
_LOCK_SECONDS: Final = 30.0
_MAX_IN_MEMORY: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FrozenFile:
    """One file of a snapshot: its path, and how much of it belongs to the snapshot."""

    path: Path
    name: str
    size: int
    inode: int
    data: bytes | None = None  # of small files, which may be overwritten in place


def freeze_parts(folder: Path) -> list[FrozenFile]:
    """Return the files of a consistent snapshot of a project, taken now.

    Raises:
        LedgerError: a ledger cannot be read, or stayed locked.
    """
    writable = os.access(folder, os.W_OK)  # a read-only project has no writers
    lock = folder / ".facts.lock"
    with hold_lock(lock, _LOCK_SECONDS) if writable else nullcontext():
        parts = [_freeze_file(path, folder) for path in _other_files(folder)]
        segments = sorted(ledger_files(folder), key=lambda file: _order(file.ledger, file.owner))
        parts += [_freeze_file(file.path, folder) for file in segments]
    return parts


def _order(kind: str, owner: str | None) -> int:
    if owner == PROJECT_JOURNAL:
        return 3
    return {"journal": 0, "episodic": 2}.get(kind, 1)


def _other_files(folder: Path) -> Iterator[Path]:
    """Yield the files besides the ledgers: settings, names and write-ahead files."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.is_symlink() and belongs_to_backup(path.name):
            yield path
    for kind in LEDGERS:
        if (names := folder / kind / ".names").is_file():
            yield names


def belongs_to_backup(name: str) -> bool:
    """Return whether a file outside of the ledgers belongs to a backup."""
    return name in _INCLUDED_HIDDEN or not (name[0] == "." or name.startswith(_EXCLUDED))


def _freeze_file(path: Path, folder: Path) -> FrozenFile:
    name = path.relative_to(folder).as_posix()
    if path.suffix == ".jsonl":
        mark = jsonl.mark_end(path, _LOCK_SECONDS)
        return FrozenFile(path, name, mark.offset, mark.inode)
    with open(os.open(path, os.O_RDONLY | OPEN_FLAGS), "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size > _MAX_IN_MEMORY:
            return FrozenFile(path, name, status.st_size, status.st_ino)
        data = file.read()
    return FrozenFile(path, name, len(data), status.st_ino, data)
