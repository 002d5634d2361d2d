"""Freeze a consistent snapshot of a project's files while others write, for a backup."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import LEDGERS, OPEN_FLAGS, PROJECT_JOURNAL
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.segments import ledger_files

# State of this machine, or derived from other files.
_EXCLUDED: Final = ("background.json", "review.json", "hooks", "index.")
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
