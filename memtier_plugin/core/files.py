"""Files that only this user may own: open, lock, write, flush and remove them.

A lock dies with its holder. The file of a lock stays, because removing it would let two holders in.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, ParamSpec, Protocol, TypeVar

from memtier_plugin.core.errors import LedgerError, LedgerWriteError, UnsafePath, Unsupported

try:
    import fcntl
except ImportError as missing:
    raise Unsupported(
        "MemTier needs POSIX file locks: it runs on Linux and macOS; on Windows use WSL"
    ) from missing

OF_OTHERS: Final = 0o077  # permissions
OPEN_FLAGS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_POLL: Final = 0.005  # seconds between two tries for a lock that another process holds
_NO_SYNC: Final = (errno.EINVAL, errno.ENOTSUP)  # of folders, on some file systems
_MOST_NAMES: Final = 10_000
_synced_names: set[tuple[str, int, int]] = set()  # path, device and inode of what was synced
_flushes = [0]
_P = ParamSpec("_P")
_T = TypeVar("_T")

# -- Points for fault injection: where the proofs of durability (`make faults`) let a step fail
#
# Every write, fsync, rename, truncation and removal that the promises rest on is an operation with
# a name, such as ``append episodic``. At points without an operation (`pass_point`) a process may
# die between two of them. In use nothing is injected: each costs one look at `injector`.


class Injector(Protocol):
    """Decides what fails; see `tests/faults/injection.py` of the sources."""

    def pass_point(self, name: str) -> None:
        """Pass a point between two operations."""

    def write(self, name: str, path: Path | None, put: Callable[[bytes], int], data: bytes) -> int:
        """Write bytes by ``put``, or a half of them; return the count."""

    def step(self, name: str, path: Path | None, do: Callable[[], _T]) -> _T:
        """Run an operation that happens or does not."""

    def index_vfs(self) -> str:
        """Return the name of the VFS by which SQLite writes the index."""


injector: Injector | None = None


def pass_point(name: str) -> None:
    """Mark a point between two operations, where a process may die or be slow."""
    if injector is not None:
        injector.pass_point(name)


def write_bytes(name: str, fd: int, data: bytes, path: Path | None = None) -> int:
    """Write as `os.write` does.

    Args:
        path: the file that is written, which then names the operation too.
    """
    if injector is None:
        return os.write(fd, data)
    return injector.write(name, path, lambda part: os.write(fd, part), data)


def run_step(
    name: str, path: Path | None, do: Callable[_P, _T], *given: _P.args, **more: _P.kwargs
) -> _T:
    """Run an atomic file operation (fsync, rename, unlink)."""
    if injector is None:
        return do(*given, **more)
    return injector.step(name, path, lambda: do(*given, **more))


def index_vfs() -> str | None:
    """Return the name of the VFS by which SQLite writes the index; None for its own."""
    return injector.index_vfs() if injector is not None else None


# -- Open files of this user, closed to others


def open_owned(path: Path, flags: int) -> int:
    """Open a plain file of this user, closed to others, and return its descriptor.

    Raises:
        UnsafePath: the file is a symlink, or belongs to another user.
        LedgerError: it cannot be opened; LedgerWriteError if it was to be created.
    """
    try:
        fd = os.open(path, flags | OPEN_FLAGS | os.O_NONBLOCK, 0o600)  # a pipe would wait
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
        UnsafePath: with what stands there instead.
    """
    if stat.S_ISLNK(status.st_mode):
        raise UnsafePath(f"{path} is a symlink; MemTier keeps its data in real files only")
    if stat.S_IFMT(status.st_mode) != kind:
        raise UnsafePath(f"{path} is not a {'folder' if kind == stat.S_IFDIR else 'plain file'}")
    if status.st_uid != os.geteuid():
        raise UnsafePath(f"{path} belongs to user {status.st_uid}, not to you ({os.geteuid()})")


def tighten_mode(path: Path | int, mode: int) -> bool:
    """Remove the permissions of other users; tell whether there were any."""
    loose = stat.S_IMODE(mode) & OF_OTHERS
    if loose:
        with suppress(OSError):  # a disk that nobody may write
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
                    # Closing is not enough: a child forked meanwhile has the descriptor too.
                    fcntl.flock(fd, fcntl.LOCK_UN)
                return
        finally:
            os.close(fd)


def wait_for_lock(fd: int, path: Path, deadline: float, *, shared: bool = False) -> None:
    """Lock an open file, trying until a moment of ``time.monotonic()``.

    Raises:
        LedgerWriteError: another process holds the lock for all that time.
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
    """Lock a file without waiting; return what `release_lock` needs, or None if it is locked.

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
    """Release a lock of `try_acquire_lock`."""
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
    """Remove a file, if it is there.

    Args:
        label: its name in `run_step`, where the file's own says nothing.

    Raises:
        LedgerWriteError: it stays, as what `check_replaceable` refuses does.
    """
    check_replaceable(path)
    name, named_by = (f"unlink {label}", None) if label else ("unlink", path)
    try:
        run_step(name, named_by, path.unlink, missing_ok=True)
    except OSError as error:
        raise LedgerWriteError(f"cannot remove {path}: {error}") from error


def check_replaceable(path: Path) -> None:
    """Refuse paths other than plain files, links to them, and links to nothing.

    Root could put a file in the place of /dev/null, and a pipe is read for ever.

    Raises:
        LedgerWriteError: a device, a pipe, a socket or a folder is there.
    """
    with suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise LedgerWriteError(f"{path} is no plain file; it is left as it is")


def flush_to_disk(fd: int) -> None:
    """Put what an open file holds on the disk, past the disk's own cache where that is separate.

    Raises:
        OSError: the disk failed.
    """
    _flushes[0] += 1
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync stops at the disk's cache
    if full is not None:
        with suppress(OSError):  # not every file system has it
            fcntl.fcntl(fd, full)
            return
    os.fsync(fd)


def count_flushes() -> int:
    """Return how often this process put a file on the disk."""
    return _flushes[0]


def sync_folders(path: Path, *, fresh: bool = False) -> None:
    """Make the name of a file survive a power cut, and the names of the folders above it.

    Each is synced once in the life of a process: whoever made it may have died before.

    Args:
        fresh: the file was made just now, perhaps with the inode of one that was there before.

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
    """Sync the folder that a file or folder stands in, and the full forms of long names in it."""
    operation: str = "fsync folder of"
    named_by: Path | None = path
    if path.is_dir():  # whose name may be anybody's, above the home
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
