"""Find, set aside and remove index files together with their logs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from memtier_plugin.core import fault_injection
from memtier_plugin.core.errors import IndexProblem

APPLICATION_ID: Final = 0x4D54_4952  # "MTIR", to tell our index from a foreign database
NEW_INDEX: Final = "index.new.sqlite3"  # next to the index, while a new one is built
BUILD_LOCK: Final = ".reindex.lock"  # held during a build
AS_OF_PREFIX: Final = "as-of-"  # prefix of a temporary index of a past state


def remove_index(path: Path) -> int:
    """Remove a SQLite file and its logs; return the number of files removed.

    Raises:
        IndexProblem: a file cannot be removed.
    """
    parts = [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm", "-journal")]
    existing = [part for part in parts if part.exists()]
    for part in existing:
        try:
            fault_injection.run_step("unlink", part, part.unlink, missing_ok=True)
        except OSError as error:
            raise IndexProblem(f"cannot remove {part}: {error}") from error
    return len(existing)


def broken_indexes(path: Path) -> list[Path]:
    """List the indexes set aside from a path, oldest first, without their logs."""
    candidates = path.parent.glob(f"{path.name}.broken-*")
    return sorted(file for file in candidates if file.name.rpartition("-")[2].isdigit())


def is_own_index(path: Path) -> bool:
    """Tell by its header whether a file is, or was, an index of ours."""
    try:
        with path.open("rb") as file:
            head = file.read(72)
    except OSError:
        return False
    return not path.is_symlink() and head[68:] == APPLICATION_ID.to_bytes(4, "big")


def set_aside(path: Path) -> Path:
    """Rename a file and its logs; of indexes set aside earlier only the last is kept."""
    for old in [file for file in broken_indexes(path) if is_own_index(file)][:-1]:
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
    """Return the inode at a path, or None if there is no file."""
    try:
        return path.stat().st_ino
    except OSError:
        return None
