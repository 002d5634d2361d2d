"""The bytes of a shared project's files: written at their places, copied, taken from a spool."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from memtier_plugin.core import fault_injection
from memtier_plugin.core.errors import LedgerError, LedgerWriteError
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import OPEN_FLAGS, write_private_file
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.shared.patience import seconds_left
from memtier_plugin.storage.shared.protocol import Unreachable

LOCK_SECONDS: Final = 10.0
_COPIED: Final = 1024 * 1024  # bytes at a time
_EMPTIED_SECONDS: Final = 3600.0  # for which an emptied spool stays: who listed it may read it yet


class Damaged(LedgerError):
    """A file is not what its mark says: somebody changed it, or the power went."""


@contextmanager
def hold_in_time(path: Path, timeout: float) -> Iterator[None]:
    """Hold a lock under which the server is asked; give up when the caller's time is over.

    Raises:
        Unreachable: another process holds it, which waits for the server.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(path, seconds_left(timeout)))
        except LedgerWriteError as error:
            raise Unreachable(f"another process waits for the server: {error}") from error
        yield


def write_at(path: Path, fd: int, size: int, data: bytes) -> None:
    """Let a locked file have these bytes after its first ``size``, whatever stands there now."""
    status = os.fstat(fd)
    if status.st_size < size:
        raise Damaged(f"{path} was cut off")
    there = os.pread(fd, len(data), size)
    if there != data[: len(there)]:
        if b"\n" in there:
            raise Damaged(f"{path} has lines of somebody else")
        os.ftruncate(fd, size)  # of a process that was killed in the middle of a line
        there = b""
    rest = data[len(there) :]
    if rest and fault_injection.write_bytes("append", fd, rest, path) != len(rest):
        raise LedgerWriteError(f"cannot append to {path}: the disk is full")


def copy_start(path: Path, target: Path, size: int) -> None:
    """Copy the first bytes of a file into a new one."""
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o600)
    with path.open("rb") as source, os.fdopen(fd, "wb") as copy:
        while size and (data := source.read(min(size, _COPIED))):
            copy.write(data)
            size -= len(data)
    if size:
        raise LedgerError(f"{path} was cut off; `memtier shared drain` mends it")


def take_start(path: Path, size: int) -> bool:
    """Remove the first bytes of a spool; return whether lines are left.

    An emptied spool stays for a while: another process may be about to read it, or to sync it.
    """
    with hold_lock(path, LOCK_SECONDS) as fd:
        end = jsonl.complete_size(fd)
        if end <= size:
            os.ftruncate(fd, 0)
            return False
        rest = os.pread(fd, end - size, size)
        write_private_file(path, rest.decode("utf-8", "surrogateescape"), durable=True)
    return True


def put_before(path: Path, lines: bytes) -> None:
    """Put lines before those that a spool has, on the disk."""
    if lines:
        with hold_lock(path, LOCK_SECONDS) as fd:
            data = lines + os.pread(fd, jsonl.complete_size(fd), 0)
            write_private_file(path, data.decode("utf-8", "surrogateescape"), durable=True)


def has_lines(path: Path) -> bool:
    """Return whether a spool has lines; one that was emptied long ago is removed."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    if not status.st_size and status.st_mtime < time.time() - _EMPTIED_SECONDS:
        with hold_lock(path, LOCK_SECONDS) as fd:
            if not os.fstat(fd).st_size:
                path.unlink()
    return status.st_size > 0
