"""Append-only JSONL files: the source of truth.

A line is one JSON object and a newline.  Appends write complete lines in a single write under an
advisory lock; a partial write is truncated before the lock is released.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from memtier_plugin.core import formats
from memtier_plugin.core.errors import LedgerError, LedgerWriteError
from memtier_plugin.core.files import hold_lock, is_unlocked, open_owned, wait_for_lock, write_bytes
from memtier_plugin.core.paths import iter_ledger_folders
from memtier_plugin.storage.ledger.group_sync import Appended, take_back

Durability = Literal["sync", "os"]

TORN_MARK: Final = b" (cut off by a crash)"  # ends such a line when the next one is appended
TAIL_BYTES: Final = 4096  # bytes before the offset that identify a file as the one read
_STREAMED: Final = 256 * 1024  # bytes read at a time when streaming


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One complete line of a ledger: its number (from 1), where it starts, and its bytes."""

    number: int
    start: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ReadMark:
    """The position up to which a file was read; ``offset`` is just after a newline.

    ``size`` is the size examined: more than ``offset`` if the file's last line was torn.
    ``crc`` is the checksum of all that was read; None where an older MemTier did not keep it.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    offset: int
    lines: int
    tail: str
    crc: int | None = 0

    def same_as(self, status: os.stat_result) -> bool:
        """Return whether the file is unchanged since."""
        return (self.device, self.inode, self.size, self.mtime_ns) == (
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
        )


def day_file(folder: Path, moment: datetime) -> Path:
    """Return the ledger file of a moment's UTC day."""
    return folder / f"{moment.astimezone(UTC):%Y-%m-%d}.jsonl"


def list_day_files(folder: Path) -> list[Path]:
    """Return the ledger files of a folder, oldest first; other files are not ledgers."""
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if name.endswith(".jsonl") and name[0] != "."]


def to_line(record: Mapping[str, Any]) -> bytes:
    """Encode a record as one line, with its checksum."""
    return formats.seal(record) + b"\n"


def append_records(
    path: Path,
    records: Iterable[Mapping[str, Any]],
    *,
    durability: Durability = "os",
    timeout: float = 10.0,
) -> None:
    """Append records as complete lines; they are acknowledged on return.

    Args:
        durability: "sync" also puts them on the disk, as `write_records` and `Appended.sync` do.

    Raises:
        UnsafePath: the path is a symlink or another user's file.
        LedgerWriteError: nothing was written (full disk, read-only, locked by another process).
    """
    appended = write_records(path, records, durability=durability, timeout=timeout)
    if appended:
        appended.sync()


def write_records(
    path: Path,
    records: Iterable[Mapping[str, Any]],
    *,
    durability: Durability,
    timeout: float = 10.0,
) -> Appended | None:
    """Append records as complete lines; return what is still to be synced before an answer.

    None where there is nothing to write, or where the operating system may write it later. A lock
    that is held over several appends need not be held during the sync, so that others share it.

    Raises:
        UnsafePath: the path is a symlink or another user's file.
        LedgerWriteError: nothing was written (full disk, read-only, locked by another process).
    """
    data = b"".join([formats.seal(record) + b"\n" for record in records])
    if not data:
        return None
    with hold_lock(path, timeout) as fd:
        before = os.fstat(fd)
        size, times = before.st_size, (before.st_atime_ns, before.st_mtime_ns)
        if size and os.pread(fd, 1, size - 1) != b"\n":
            data = _line_end(fd) + data  # after a crash: end the torn line, start a new one
        try:
            written = write_bytes("append", fd, data, path)
            if written != len(data):
                raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes fitted")
        except OSError as error:
            try:
                take_back(path, fd, size, times)
            except OSError as worse:
                raise LedgerWriteError(
                    f"cannot append to {path}: {error}; nor take back what was written of it "
                    f"({worse}): a torn line is skipped, and `memtier doctor` names it"
                ) from error
            raise LedgerWriteError(f"cannot append to {path}: {error}") from error
        if durability == "os":
            return None
        return Appended.at_end(path, fd, size, times)


def end_last_line(path: Path, timeout: float = 10.0) -> None:
    """End a last line that lacks only its newline, so that it is read: a crash cut it off there.

    Raises:
        UnsafePath: the path is a symlink or another user's file.
        LedgerWriteError: it is locked by another process.
    """
    with hold_lock(path, timeout) as fd:
        size = os.fstat(fd).st_size
        if not size or os.pread(fd, 1, size - 1) == b"\n":
            return
        start = complete_size(fd)
        if is_record(_pread(fd, size - start, start)):
            os.write(fd, b"\n")


def _line_end(fd: int) -> bytes:
    """Return what ends the last line of an open, locked file: a torn one is marked as such."""
    start = complete_size(fd)
    tail = _pread(fd, os.fstat(fd).st_size - start, start)
    return b"\n" if is_record(tail) else TORN_MARK + b"\n"


def is_record(data: bytes) -> bool:
    """Return whether a line, with or without its newline, holds a JSON object."""
    try:
        return bool(parse_line(LedgerLine(1, 0, data)))
    except ValueError:
        return False


def is_torn(line: LedgerLine) -> bool:
    """Return whether a crash cut off the write of a line; it was never acknowledged."""
    return line.data.rstrip(b"\n").endswith(TORN_MARK)


def read_lines(
    path: Path, mark: ReadMark | None = None, limit: int | None = None
) -> tuple[list[LedgerLine], ReadMark]:
    """Read the complete lines after a mark, at most ``limit`` bytes but at least one line.

    A last line without a newline is skipped: it is torn, or being written.

    Raises:
        UnsafePath: the path is a symlink or another user's file.
        LedgerError: the file cannot be read.
    """
    fd = open_owned(path, os.O_RDONLY)
    try:
        status = os.fstat(fd)
        start, number = (mark.offset, mark.lines) if mark else (0, 0)
        want = status.st_size - start
        data = _pread(fd, min(want, limit) if limit else want, start)
        while b"\n" not in data and len(data) < want:  # a line longer than the limit
            data += _pread(fd, min(max(len(data), TAIL_BYTES), want - len(data)), start + len(data))
        at_end = len(data) == want
        data = data[: data.rfind(b"\n") + 1]
        lines, position = [], start
        for raw in _split(data):
            number += 1
            lines.append(LedgerLine(number, position, raw))
            position += len(raw)
        return lines, ReadMark(
            device=status.st_dev,
            inode=status.st_ino,
            size=status.st_size if at_end else position,
            mtime_ns=status.st_mtime_ns,
            offset=position,
            lines=number,
            tail=_tail(fd, position),
            crc=_extend_crc(mark.crc if mark else 0, data),
        )
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error}") from error
    finally:
        os.close(fd)


def mark_end(path: Path, timeout: float = 10.0) -> ReadMark:
    """Return a mark just after the last complete line, waiting for writes in progress.

    Raises:
        UnsafePath: the path is a symlink or another user's file.
        LedgerError: the file cannot be read, or stayed locked for the whole timeout.
    """
    deadline = time.monotonic() + timeout
    fd = open_owned(path, os.O_RDONLY)
    try:
        wait_for_lock(fd, path, deadline, shared=True)
        status = os.fstat(fd)
        end = complete_size(fd)
        return ReadMark(
            device=status.st_dev,
            inode=status.st_ino,
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            offset=end,
            lines=0,
            tail=_tail(fd, end),
            crc=None,
        )
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error}") from error
    finally:
        os.close(fd)


def complete_size(fd: int) -> int:
    """Return the offset at which the last complete line of an open, locked file ends."""
    end = os.fstat(fd).st_size
    while end:
        start = max(0, end - TAIL_BYTES)
        data = _pread(fd, end - start, start)
        if b"\n" in data:
            return start + data.rfind(b"\n") + 1
        end = start
    return 0


def stream(path: Path, start: int) -> Iterator[list[LedgerLine]]:
    """Yield the complete lines after an offset in batches, numbered from there.

    An offset inside a line (the file was edited since) falls back to the beginning.

    Raises:
        UnsafePath: the path is a symlink or another user's file.
        LedgerError: the file cannot be read.
    """
    fd = open_owned(path, os.O_RDONLY)
    try:
        if start and os.pread(fd, 1, start - 1) != b"\n":
            start = 0
    finally:
        os.close(fd)
    mark = ReadMark(0, 0, 0, 0, start, 0, "", None)
    while True:
        lines, mark = read_lines(path, mark, _STREAMED)
        if not lines:
            return
        yield lines


def detect_change(path: Path, mark: ReadMark) -> str | None:
    """Classify the change of a file since it was read; None if unchanged or only appended to.

    A file is known by its content: a copy under another inode, or with another time, is the same.

    Raises:
        UnsafePath: the path is now a symlink or another user's file.
    """
    try:
        fd = open_owned(path, os.O_RDONLY)
    except FileNotFoundError:
        return "deleted"
    except LedgerError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return "deleted"
        raise
    try:
        status = os.fstat(fd)
        if status.st_size < mark.offset:
            return "truncated"
        if (status.st_dev, status.st_ino) != (mark.device, mark.inode):
            return None if _has_same_content(fd, mark) else "replaced"
        if _tail(fd, mark.offset) != mark.tail:
            return "edited"
        if status.st_size == mark.size and status.st_mtime_ns != mark.mtime_ns and is_unlocked(fd):
            # Same size, different time: an earlier line was edited, unless a write has just begun.
            same = os.fstat(fd).st_size == mark.size
            return "edited" if same and not _has_same_content(fd, mark) else None
        return None
    finally:
        os.close(fd)


def read_appended(path: Path, mark: ReadMark, limit: int) -> bytes | None:
    """Return what was appended to a file since it was read; None if that may not be all.

    None, too, where it is more than ``limit`` bytes, or ends within a line.

    Raises:
        UnsafePath, LedgerError: the file cannot be read.
    """
    fd = open_owned(path, os.O_RDONLY)
    try:
        status = os.fstat(fd)
        added = status.st_size - mark.offset
        if (status.st_dev, status.st_ino) != (mark.device, mark.inode) or not 0 < added <= limit:
            return None
        data = _pread(fd, added, mark.offset)
        return data if data.endswith(b"\n") and _tail(fd, mark.offset) == mark.tail else None
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error}") from error
    finally:
        os.close(fd)


def _has_same_content(fd: int, mark: ReadMark) -> bool:
    """Return whether a file begins with all that was read of it, whichever file it is."""
    if mark.crc is None:
        return False
    crc, position = 0, 0
    while position < mark.offset and (
        data := os.pread(fd, min(_STREAMED, mark.offset - position), position)
    ):
        crc, position = zlib.crc32(data, crc), position + len(data)
    return position == mark.offset and crc == mark.crc and _tail(fd, position) == mark.tail


def _extend_crc(crc: int | None, data: bytes) -> int | None:
    return None if crc is None else zlib.crc32(data, crc)


def parse_line(line: LedgerLine) -> dict[str, Any]:
    """Parse the JSON object on a line; its checksum is left out.

    Raises:
        ValueError: the line is not a JSON object (torn, binary or foreign).
    """
    try:
        record = json.loads(line.data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError(f"a {type(record).__name__}, not an object")
    record.pop(formats.FIELD, None)
    return record


def has_torn_tail(path: Path, mark: ReadMark) -> bool:
    """Return whether bytes without a newline follow the mark."""
    return path.stat().st_size > mark.offset


def _pread(fd: int, size: int, start: int) -> bytes:
    parts = []
    while size > 0 and (part := os.pread(fd, size, start)):
        parts.append(part)
        size -= len(part)
        start += len(part)
    return b"".join(parts)


def _tail(fd: int, offset: int) -> str:
    begin = max(0, offset - TAIL_BYTES)
    return hashlib.blake2b(_pread(fd, offset - begin, begin), digest_size=16).hexdigest()


def _split(data: bytes) -> list[bytes]:
    # Not splitlines: it also breaks at a carriage return, which is no end of a line here.
    return [part + b"\n" for part in data.split(b"\n")[:-1]]


# -- List the files of a project's ledgers: one per ledger, owner and day

SPOOL: Final = "-spool"  # in the name after the day; sorts before the day's own file


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """One ledger file: its path, ledger and owner."""

    path: Path
    name: str  # relative to the project's folder
    ledger: str
    owner: str | None

    @property
    def day(self) -> str:
        """The UTC day of its records, as YYYY-MM-DD."""
        return self.path.stem.removesuffix(SPOOL)

    @property
    def provisional(self) -> bool:
        """Whether its records still wait for the server of a shared ledger."""
        return self.path.stem.endswith(SPOOL)

    @property
    def spool(self) -> LedgerFile:
        """The file of the same day with the records that wait for the server."""
        path = spool_file(self.path)
        name = self.name.removesuffix(self.path.name) + path.name
        return LedgerFile(path, name, self.ledger, self.owner)

    @property
    def settled(self) -> LedgerFile:
        """The file of the same day with the records that have their place in the log."""
        path = self.path.with_name(f"{self.day}.jsonl")
        name = self.name.removesuffix(self.path.name) + path.name
        return LedgerFile(path, name, self.ledger, self.owner)


def spool_file(path: Path) -> Path:
    """Return the file for the records of a ledger file that wait for the server."""
    return path if path.stem.endswith(SPOOL) else path.with_name(f"{path.stem}{SPOOL}.jsonl")


def ledger_files(
    folder: Path, *, newest: int | None = None, agent: str | None = None
) -> list[LedgerFile]:
    """Return a project's ledger files, or only the newest few of each ledger folder.

    Args:
        agent: restrict the episodic ledgers to this agent's.
    """
    files = []
    for kind, owner, where in iter_ledger_folders(folder, agent):
        paths = list_day_files(where)[-newest:] if newest else list_day_files(where)
        files += [LedgerFile(path, str(path.relative_to(folder)), kind, owner) for path in paths]
    return files
