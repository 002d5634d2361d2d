"""Files private to this user: open, lock, write, flush and remove them.

A lock dies with its holder. The lock file is never removed, because that would let two holders in.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, ParamSpec, Protocol, TypeVar

from memtier_plugin.core.errors import LedgerError, LedgerWriteError, UnsafePath

OF_OTHERS: Final = 0o077  # permission bits of other users
OPEN_FLAGS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_POLL: Final = 0.005  # seconds between attempts to get a lock that another process holds
_NO_SYNC: Final = (errno.EINVAL, errno.ENOTSUP)  # raised for folders on some file systems
_MOST_NAMES: Final = 10_000
_REMEDY: Final = "move it away, or name another home with `memtier --home PATH`"
_synced_names: set[tuple[str, int, int]] = set()  # (path, device, inode) of what was synced
_flushes = [0]
_P = ParamSpec("_P")
_T = TypeVar("_T")

# -- Injection points where the durability tests make a step fail or the process die (`make faults`)
#
# Every write, fsync, rename, truncation and removal that durability depends on is a named
# operation, such as ``append episodic``. `pass_point` marks the places between two operations where
# a process may die. In production nothing is injected: each point costs one look at `injector`.


class Injector(Protocol):
    """Decides which operations fail; implemented in `tests/faults/injection.py`."""

    def pass_point(self, name: str) -> None:
        """Pass a point between two operations."""

    def write(self, name: str, path: Path | None, put: Callable[[bytes], int], data: bytes) -> int:
        """Write all or half of the bytes by ``put``; return how many were written."""

    def step(self, name: str, path: Path | None, do: Callable[[], _T]) -> _T:
        """Run an operation, or fail without running it."""

    def index_vfs(self) -> str:
        """Return the name of the VFS with which SQLite writes the index."""


injector: Injector | None = None


def pass_point(name: str) -> None:
    """Mark a point between two operations where a process may die or stall."""
    if injector is not None:
        injector.pass_point(name)


def write_bytes(name: str, fd: int, data: bytes, path: Path | None = None) -> int:
    """Write as `os.write` does.

    Args:
        path: the file written, if the operation's name is to include it.
    """
    if injector is None:
        return os.write(fd, data)
    return injector.write(name, path, lambda part: os.write(fd, part), data)


def run_step(
    name: str, path: Path | None, do: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Run an atomic file operation (fsync, rename, unlink)."""
    if injector is None:
        return do(*args, **kwargs)
    return injector.step(name, path, lambda: do(*args, **kwargs))


def index_vfs() -> str | None:
    """Return the name of the VFS with which SQLite writes the index; None for its own."""
    return injector.index_vfs() if injector is not None else None


# -- Open files of this user, closed to others


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


def check_ownership(path: Path, status: os.stat_result, kind: int) -> None:
    """Refuse a path of another kind, or of another user.

    Raises:
        UnsafePath: says what is there instead.
    """
    if stat.S_ISLNK(status.st_mode):
        raise UnsafePath(f"{path} is a symlink; MemTier keeps its data in real files: {_REMEDY}")
    if stat.S_IFMT(status.st_mode) != kind:
        expected = "folder" if kind == stat.S_IFDIR else "plain file"
        raise UnsafePath(f"{path} is not a {expected}: {_REMEDY}")
    if status.st_uid != os.geteuid():
        raise UnsafePath(
            f"{path} belongs to user {status.st_uid}, not to you ({os.geteuid()}): {_REMEDY}"
        )


def tighten_mode(path: Path | int, mode: int) -> bool:
    """Remove the permissions of other users; return whether there were any."""
    loose = stat.S_IMODE(mode) & OF_OTHERS
    if loose:
        with suppress(OSError):  # a read-only disk
            os.chmod(path, stat.S_IMODE(mode) & ~OF_OTHERS)
    return bool(loose)


# -- Lock files


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


def is_process_alive(process: int) -> bool:
    """Return whether a process with this id exists, of any user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return process > 0


# -- Replace and remove files, and put them on the disk


def write_private_file(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace a file atomically (mode 0600): readers see the old text or the new one.

    Args:
        durable: survive a power cut, at the cost of two fsyncs.

    Raises:
        LedgerWriteError: it cannot be written, or is a device, a pipe or a folder.
    """
    check_replaceable(path)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.new")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | OPEN_FLAGS, 0o600)
        try:
            data = text.encode("utf-8", "surrogateescape")
            while data:
                written = write_bytes("write", fd, data, path)
                if not written:
                    raise OSError(errno.ENOSPC, f"{len(data)} bytes did not fit")
                data = data[written:]
            if durable:
                run_step("fsync", path, os.fsync, fd)
        finally:
            os.close(fd)
        run_step("rename", path, os.replace, fresh, path)
        if durable:
            sync_folders(path, fresh=True)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise LedgerWriteError(f"cannot write {path}: {error}") from error


def remove_private_file(path: Path, label: str = "") -> None:
    """Remove a file if it exists.

    Args:
        label: its name in `run_step`, if the file's own name says too little.

    Raises:
        LedgerWriteError: it cannot be removed, or `check_replaceable` refuses it.
    """
    check_replaceable(path)
    name, named_by = (f"unlink {label}", None) if label else ("unlink", path)
    try:
        run_step(name, named_by, path.unlink, missing_ok=True)
    except OSError as error:
        raise LedgerWriteError(f"cannot remove {path}: {error}") from error


def check_replaceable(path: Path) -> None:
    """Refuse paths other than regular files, links to them, and dangling links.

    As root we could replace /dev/null by a file, and reading a pipe never ends.

    Raises:
        LedgerWriteError: the path is a device, a pipe, a socket or a folder.
    """
    with suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise LedgerWriteError(f"{path} is not a plain file; it was left alone")


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


def count_flushes() -> int:
    """Return how many files this process has flushed to disk."""
    return _flushes[0]


def sync_folders(path: Path, *, fresh: bool = False) -> None:
    """Make the directory entries of a file and of the folders above it survive a power cut.

    Each folder is synced once per process: whoever created it may have died before syncing it.

    Args:
        fresh: the file was just created, perhaps with the inode of a removed one.

    Raises:
        OSError: the disk failed.
    """
    status = path.lstat()
    name = (os.fspath(path), status.st_dev, status.st_ino)
    if (name in _synced_names and not fresh) or path == path.parent:
        return
    sync_folders(path.parent)
    _sync_folder(path)
    if len(_synced_names) > _MOST_NAMES:
        _synced_names.clear()
    _synced_names.add(name)


def _sync_folder(path: Path) -> None:
    """Sync the folder that contains a path, and the ``.names`` file in it."""
    operation: str = "fsync folder of"
    named_by: Path | None = path
    if path.is_dir():  # a file name above the home is not ours to judge
        operation, named_by = "fsync upper folder", None
    for folder in (path.parent / ".names", path.parent):
        try:
            fd = os.open(folder, os.O_RDONLY | OPEN_FLAGS)
        except (FileNotFoundError, PermissionError):
            continue  # a folder above the home that only its owner may read
        try:
            run_step(operation, named_by, os.fsync, fd)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise
        finally:
            os.close(fd)


def inode_of(path: Path) -> int | None:
    """Return the inode at a path, or None if there is no file."""
    try:
        return path.stat().st_ino
    except OSError:
        return None
