"""The files of an index: found, set aside and removed, each with the logs that lie beside it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from memtier_plugin.core import fault_injection
from memtier_plugin.core.errors import IndexProblem

APPLICATION_ID: Final = 0x4D54_4952  # "MTIR", so that a foreign database is known as such
NEW_INDEX: Final = "index.new.sqlite3"  # beside the index, while another is built
BUILD_LOCK: Final = ".reindex.lock"  # held meanwhile
AS_OF_PREFIX: Final = "as-of-"  # begins the name of one of the past, which is asked once


def remove_index(path: Path) -> int:
    """Remove a file of SQLite's and what lies beside it; returns how many there were.

    Raises:
        IndexProblem: one cannot be removed.
    """
    parts = [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm", "-journal")]
    there = [part for part in parts if part.exists()]
    for part in there:
        try:
            fault_injection.run_step("unlink", part, part.unlink, missing_ok=True)
        except OSError as error:
            raise IndexProblem(f"cannot remove {part}: {error}") from error
    return len(there)


def broken_indexes(path: Path) -> list[Path]:
    """Return what was set aside of an index at a path, oldest first, without the logs."""
    found = path.parent.glob(f"{path.name}.broken-*")
    return sorted(one for one in found if one.name.rpartition("-")[2].isdigit())


def is_own_index(path: Path) -> bool:
    """Tell by its head whether a file once was an index of ours, and no other program's."""
    try:
        with path.open("rb") as file:
            head = file.read(72)
    except OSError:
        return False
    return not path.is_symlink() and head[68:] == APPLICATION_ID.to_bytes(4, "big")


def set_aside(path: Path) -> Path:
    """Move a file and its logs out of the way; of indexes moved earlier only the last stays."""
    for old in [one for one in broken_indexes(path) if is_own_index(one)][:-1]:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{old}{suffix}").unlink(missing_ok=True)
    aside = path.with_name(f"{path.name}.broken-{time.time_ns() // 1_000_000}")
    for suffix in ("", "-wal", "-shm"):
        if os.path.lexists(f"{path}{suffix}"):
            fault_injection.run_step(
                "rename", path, os.rename, f"{path}{suffix}", f"{aside}{suffix}"
            )
    return aside


def inode_of(path: Path) -> int | None:
    """Return what file stands at a path, if one does."""
    try:
        return path.stat().st_ino
    except OSError:
        return None
