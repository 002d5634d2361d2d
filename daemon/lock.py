"""Lock a project for its daemon: `memtier daemon`, `memtier serve` or one started by a host."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from memtier_plugin.core import locks
from memtier_plugin.core.paths import encode_file_name, make_private_folder
from memtier_plugin.operations.job_state import LOCK_NAME

_TRIES: Final = 5  # a process that only checks for a daemon holds the lock briefly, too
_PAUSE: Final = 0.02  # seconds


def acquire(home: Path, project: str) -> int | None:
    """Lock the project; return the descriptor for `release`, or None if another daemon runs.

    Raises:
        LedgerError: the project's folder cannot be used.
    """
    path = make_private_folder(home, "projects", encode_file_name(project)) / LOCK_NAME
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE)
        if (fd := locks.try_acquire_lock(path)) is not None:
            return fd
    return None


def is_held(home: Path, project: str) -> bool:
    """Return whether any process is the project's daemon now."""
    fd = acquire(home, project)
    if fd is not None:
        release(fd)
    return fd is None


def is_still_ours(fd: int, home: Path, project: str) -> bool:
    """Return whether the lock is on the current file: the folder may have been replaced."""
    path = home / "projects" / encode_file_name(project) / LOCK_NAME
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except OSError:
        return False


release = locks.release_lock
