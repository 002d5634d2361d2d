"""Group commit: what was appended reaches the disk, and who waits for one file shares a sync.

A writer appends under the file's lock, lets go of it, and then waits here.  The first to come syncs
the file for all threads that have appended by then; who appends meanwhile waits for the next sync.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from memtier_plugin.core.errors import LedgerError, LedgerWriteError
from memtier_plugin.core.files import flush_to_disk, hold_lock, open_owned, run_step, sync_folders

_TAKE_BACK_SECONDS: Final = 2.0  # to wait for the lock of a file whose sync failed


@dataclass(eq=False, slots=True)
class _Batch:
    """Those whose bytes the same sync puts on the disk, and how it went."""

    members: list[Appended] = field(default_factory=list)
    taken_back: set[int] = field(default_factory=set)  # ends of what is no longer in the file
    error: OSError | None = None
    done: bool = False


@dataclass(eq=False, slots=True)
class _SyncGroup:
    """Those who wait for one file."""

    turn: threading.Lock = field(default_factory=threading.Lock)  # of who syncs
    batch: _Batch = field(default_factory=_Batch)
    waiting: int = 0


@dataclass(eq=False, slots=True)
class Appended:
    """Bytes that stand in a file but perhaps not on the disk; `sync` must be called once.

    Made under the file's lock: whatever sync comes next covers them, and its failure is theirs.
    """

    path: Path
    start: int
    end: int
    times: tuple[int, int]  # of the file before, in nanoseconds: last read, last written
    fd: int
    _group: _SyncGroup
    _batch: _Batch

    @classmethod
    def at_end(cls, path: Path, fd: int, start: int, times: tuple[int, int]) -> Self:
        """Note what was appended to an open, locked file that ended at ``start`` before."""
        status = os.fstat(fd)
        with _guard:
            group = _groups.setdefault((status.st_dev, status.st_ino), _SyncGroup())
            group.waiting += 1
            end = status.st_size
            appended = cls(path, start, end, times, os.dup(fd), group, group.batch)
            group.batch.members.append(appended)
        return appended

    def sync(self) -> None:
        """Put the bytes on the disk, together with those of others who wait.

        Raises:
            LedgerWriteError: the disk failed; the message says if the bytes were not taken back.
        """
        batch = self._batch
        try:
            with self._group.turn:
                if not batch.done:
                    self._sync_all()
            if batch.error is not None:
                kept = (
                    "" if self.end in batch.taken_back else "; it is there, perhaps not on the disk"
                )
                raise LedgerWriteError(f"cannot append to {self.path}: {batch.error}{kept}")
        finally:
            self._leave()

    def _sync_all(self) -> None:
        """Sync for all of the batch; a failure is also that of who appended meanwhile.

        The system reports an error once, and counts what it could not write as written.
        """
        group, batch = self._group, self._batch
        with _guard:
            group.batch = _Batch()  # who appends from now on waits for the next sync
        try:
            fresh = any(member.start == 0 for member in batch.members)
            _flush(self.path, self.fd, fresh=fresh)
        except OSError as error:
            with _guard:
                later, group.batch = group.batch, _Batch()
            batch.error = later.error = error
            batch.taken_back = later.taken_back = _take_back([*batch.members, *later.members])
            later.done = True
        batch.done = True

    def _leave(self) -> None:
        status = os.fstat(self.fd)
        os.close(self.fd)
        with _guard:
            self._group.waiting -= 1
            if not self._group.waiting:
                _groups.pop((status.st_dev, status.st_ino), None)


_groups: dict[tuple[int, int], _SyncGroup] = {}
_guard = threading.Lock()


def _renew_after_fork() -> None:
    """Forget who waited in the parent: none of those threads is in the child."""
    global _guard
    _groups.clear()
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_renew_after_fork)


def sync_file(path: Path) -> None:
    """Flush a file to disk, whoever appended to it.

    Raises:
        LedgerError: the file cannot be opened, or the disk failed.
    """
    fd = open_owned(path, os.O_RDONLY)
    try:
        _flush(path, fd)
    except OSError as error:
        raise LedgerWriteError(f"cannot sync {path}: {error}") from error
    finally:
        os.close(fd)


def _flush(path: Path, fd: int, *, fresh: bool = False) -> None:
    run_step("fsync", path, flush_to_disk, fd)
    sync_folders(path, fresh=fresh)


def _take_back(appended: list[Appended]) -> set[int]:
    """Truncate what a failed sync leaves at the end of the file; return the ends of what is gone.

    Another process may have appended since.
    """
    gone: set[int] = set()
    members = sorted(appended, key=lambda member: member.end, reverse=True)
    path = members[0].path
    with suppress(OSError, LedgerError), hold_lock(path, _TAKE_BACK_SECONDS) as fd:
        for member in members:
            if os.fstat(fd).st_ino != os.fstat(member.fd).st_ino:
                break
            if os.fstat(fd).st_size != member.end:
                break
            take_back(path, fd, member.start, member.times)
            gone.add(member.end)
    return gone


def take_back(path: Path, fd: int, size: int, times: tuple[int, int]) -> None:
    """Truncate an open, locked file to the size that it had, and restore its times.

    Raises:
        OSError: it was not truncated.
    """
    run_step("truncate", path, os.ftruncate, fd, size)
    os.utime(fd, ns=times)  # the same size with another time counts as edited
