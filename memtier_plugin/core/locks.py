"""Advisory file locks, and safe opening of files private to this user.

A lock dies with its holder. The lock file is never removed, because that would let two holders in.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import LedgerError, LedgerWriteError, Unsupported
from memtier_plugin.core.paths import OF_OTHERS, OPEN_FLAGS, check_ownership, tighten_mode

try:
    import fcntl
except ImportError as missing:
    raise Unsupported(
        "MemTier needs POSIX file locks: it runs on Linux and macOS; on Windows use WSL"
    ) from missing

_flushes = [0]
_POLL: Final = 0.005  # seconds between attempts to get a lock that another process holds


@contextmanager
def hold_lock(path: Path, timeout: float) -> Iterator[int]:
    """Hold the exclusive lock on a file (created with mode 0600) and yield its descriptor.

    Args:
        timeout: seconds to wait for another holder.

    Raises:
        UnsafePath: the file is a symlink, or belongs to another user.
        LedgerWriteError: it cannot be opened, or stayed locked for the whole timeout.
    """
    deadline = time.monotonic() + timeout
    while True:
        fd = open_owned(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            wait_for_lock(fd, path, deadline)
            # The file may have been replaced meanwhile: the lock must be on the current one.
            current = os.stat(path, follow_symlinks=False) if path.exists() else None
            if current and current.st_ino == os.fstat(fd).st_ino:
                try:
                    yield fd
                finally:
                    # Closing is not enough: a child forked meanwhile holds the descriptor too.
                    fcntl.flock(fd, fcntl.LOCK_UN)
                return
        finally:
            os.close(fd)


def wait_for_lock(fd: int, path: Path, deadline: float, *, shared: bool = False) -> None:
    """Lock an open file, retrying until a ``time.monotonic()`` deadline.

    Raises:
        LedgerWriteError: another process held the lock all that time.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LedgerWriteError(f"{path} stayed locked by another process") from None
            time.sleep(_POLL)


def is_unlocked(fd: int) -> bool:
    """Return whether no process holds the exclusive lock on an open file."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def try_acquire_lock(path: Path) -> int | None:
    """Lock a file without waiting; return a handle for `release_lock`, or None if it is locked.

    Raises:
        UnsafePath: the file is a symlink, or belongs to another user.
        LedgerError: it cannot be opened.
    """
    fd = open_owned(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


def release_lock(fd: int) -> None:
    """Release a lock taken by `try_acquire_lock`."""
    os.close(fd)


def open_owned(path: Path, flags: int) -> int:
    """Open a regular file of this user with mode 0600, and return its descriptor.

    Raises:
        UnsafePath: the file is a symlink, or belongs to another user.
        LedgerError: it cannot be opened; LedgerWriteError if it was to be created.
    """
    try:
        # non-blocking, since opening a pipe would wait
        fd = os.open(path, flags | OPEN_FLAGS | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            check_ownership(path, path.lstat(), stat.S_IFREG)
        kind = LedgerWriteError if flags & os.O_CREAT else LedgerError
        raise kind(f"cannot open {path}: {error}") from error
    status = os.fstat(fd)
    try:
        if not (stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()):
            check_ownership(path, status, stat.S_IFREG)
    except LedgerError:
        os.close(fd)
        raise
    if status.st_mode & OF_OTHERS:
        tighten_mode(fd, status.st_mode)
    return fd


def count_flushes() -> int:
    """Return how many files this process has flushed to disk."""
    return _flushes[0]


def flush_to_disk(fd: int) -> None:
    """Flush an open file to the disk, past a separate drive cache if there is one.

    Raises:
        OSError: the disk failed.
    """
    _flushes[0] += 1
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync stops at the drive's cache
    if full is not None:
        with suppress(OSError):  # not every file system supports it
            fcntl.fcntl(fd, full)
            return
    os.fsync(fd)


def is_process_alive(process: int) -> bool:
    """Return whether a process with this id exists, of any user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return process > 0
