"""A lock on a file that says: this process does it, no other needs to; it dies with its holder."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.paths import OPEN_FLAGS, check_ownership


def try_acquire_lock(path: Path) -> int | None:
    """Lock a file (made 0600 if new); return what `release_lock` needs, or None if it is locked.

    Raises:
        UnsafePath: a symlink or somebody else's file stands there.
        LedgerError: it cannot be opened.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            check_ownership(path, path.lstat(), stat.S_IFREG)
        raise LedgerError(f"cannot open the lock {path}: {error}") from error
    try:
        check_ownership(path, os.fstat(fd), stat.S_IFREG)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


def release_lock(fd: int) -> None:
    """Let go of a lock; the file stays, as removing it would let two holders in."""
    os.close(fd)


def is_process_alive(process: int) -> bool:
    """Tell whether there is a process of this number, be it somebody else's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return process > 0
