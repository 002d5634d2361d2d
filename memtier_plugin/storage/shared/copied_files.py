"""This machine's copy of a shared project: files, day files, marks, changes of others."""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from memtier_plugin.core.errors import LedgerError, LedgerWriteError
from memtier_plugin.core.files import (
    OPEN_FLAGS,
    hold_lock,
    run_step,
    sync_folders,
    write_bytes,
    write_private_file,
)
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.paths import SHARED_FOLDER, decode_file_name, owner_folder_name
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.jsonl import LedgerFile, spool_file
from memtier_plugin.storage.shared.protocol import (
    NewLine,
    Stream,
    Unreachable,
    line_key,
    seconds_left,
)

# -- The bytes of a shared project's files: written at their places, copied, taken from a spool

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
    if rest and write_bytes("append", fd, rest, path) != len(rest):
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


# -- Replace the day files of this machine's copy, and notice those that somebody else changed
#
# A file is known by the checksum of what it had when it was looked at last, so that one that was
# edited, cut or deleted by somebody else is noticed, and one that was copied is not.

_CHUNK: Final = 1024 * 1024  # bytes


class Seal(NamedTuple):
    """What a file had when it was looked at: its size and time, and the checksum of its bytes."""

    size: int
    mtime_ns: int
    crc: int


def replace_file(path: Path, lines: Iterable[bytes]) -> int:
    """Replace a file by these lines, durably and at once; return its size.

    Raises:
        LedgerError: the file is unchanged.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{id(lines)}.new")
    try:
        with hold_lock(path, LOCK_SECONDS):
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | OPEN_FLAGS, 0o600)
            with os.fdopen(fd, "wb") as file:
                for line in lines:
                    file.write(line)
                file.flush()
                run_step("fsync", path, os.fsync, fd)
                size = file.tell()
            run_step("rename", path, os.replace, fresh, path)
            sync_folders(path, fresh=True)
    except OSError as error:
        raise LedgerWriteError(f"cannot write {path}: {error}") from error
    finally:
        fresh.unlink(missing_ok=True)
    return size


def new_lines(lines: Iterable[jsonl.LedgerLine], day: str) -> dict[bytes, NewLine]:
    """Return the lines of a spool that are to be sent, by the keys that they are to have."""
    new: dict[bytes, NewLine] = {}
    for line in lines:
        if line.data.strip() and not jsonl.is_torn(line):
            new.setdefault(line_key(line.data), NewLine(day, b"", line.data))
    return new


def lost_records(
    path: Path, delivered: Callable[[list[bytes]], Collection[bytes]]
) -> Iterator[list[dict[str, Any]]]:
    """Yield the records of a file that the server does not have, some at a time.

    What a purge has left of a record is none that was lost.

    Args:
        delivered: returns those of the keys of lines that the server has.
    """
    for lines in jsonl.stream(path, 0) if path.exists() else ():
        batch: dict[bytes, dict[str, Any]] = {}
        for line in lines:
            with suppress(ValueError):
                record = jsonl.parse_line(line)
                if "purged" not in record:
                    batch[line_key(line.data)] = record
        known = delivered([*batch])
        if lost := [record for key, record in batch.items() if key not in known]:
            yield lost


def set_aside(folder: Path, delivered: Callable[[list[bytes]], Collection[bytes]]) -> None:
    """Empty the day files of a folder; what the server does not have waits for it again.

    Args:
        delivered: as of `lost_records`.
    """
    for path in jsonl.list_day_files(folder):
        if path == spool_file(path):
            continue
        lost = lost_records(path, delivered)
        lines = b"".join(jsonl.to_line(record) for records in lost for record in records)
        put_before(spool_file(path), lines)  # what waits was said after it
        with hold_lock(path, LOCK_SECONDS) as fd:
            os.ftruncate(fd, 0)


# -- noticing changes --------------------------------------------------------------------------


def read_seals(path: Path) -> dict[str, Seal]:
    """Return what the files had, by day; what cannot be read counts as never looked at."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return {
            day: Seal(*map(int, seal)) for day, seal in parse_json_text(path.read_text()).items()
        }
    return {}


def check_files(
    folder: Path, sizes: Mapping[str, int], seals: Path, mend: Callable[[str], None]
) -> None:
    """Let those files be mended that somebody else changed since the last look at them.

    Costs a stat of each file, and a read of those that were written to.

    Args:
        sizes: the bytes that each day's file has at least.
        seals: the file of what was seen at the last look.
        mend: called with the day of such a file.
    """
    before, now = read_seals(seals), dict[str, Seal]()
    for day, size in sizes.items():
        path = folder / f"{day}.jsonl"
        seal = _look(path, before.get(day))
        if seal is None or seal.size < size:
            mend(day)
            seal = _look(path, None)
        if seal is not None:
            now[day] = seal
    if now != before:
        write_private_file(seals, json.dumps(now))


def forget_seals(seals: Path, day: str | None = None) -> None:
    """Forget what was read of a day's file, or of all, as this process rewrites them."""
    seen = read_seals(seals)
    if day is None:
        seals.unlink(missing_ok=True)
    elif seen.pop(day, None):
        write_private_file(seals, json.dumps(seen))


def _look(path: Path, before: Seal | None) -> Seal | None:
    """Return what a file has now; None if it lacks what it had, or has it otherwise."""
    try:
        file = path.open("rb")
    except OSError:
        return None
    with closing(file):
        status = os.fstat(file.fileno())
        size = status.st_size
        if before and before[:2] == (size, status.st_mtime_ns):
            return before
        crc, left = 0, before.size if before else size
        while left and (data := file.read(min(left, _CHUNK))):
            crc, left = zlib.crc32(data, crc), left - len(data)
        if before and (left or crc != before.crc):
            return None
        left = size - before.size if before else 0
        while left and (data := file.read(min(left, _CHUNK))):
            crc, left = zlib.crc32(data, crc), left - len(data)
    return Seal(size, status.st_mtime_ns, crc)


# -- How far this machine has copied each stream of a shared ledger, kept in the project's folder


@dataclass(frozen=True, slots=True)
class Mark:
    """A position by content: the epoch, the offset and the digest of the line there.

    ``sizes`` has the bytes of each day's file up to there.  A file may have more, from a process
    that was killed: what is there is compared with what comes, not trusted.
    """

    epoch: int = 0
    offset: int = 0
    tail: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)


def digest(data: bytes) -> str:
    """Return the digest of a line that a mark keeps."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def mark_path(folder: Path, stream: Stream) -> Path:
    """Return the file of a stream's mark."""
    owner = "" if stream.owner is None else f".{owner_folder_name(stream.owner)}"
    return folder / SHARED_FOLDER / f"{stream.ledger}{owner}.json"


def read_mark(folder: Path, stream: Stream) -> Mark:
    """Return a stream's mark; one that cannot be read counts as none, and all is compared again."""
    try:
        return Mark(**parse_json_text(mark_path(folder, stream).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return Mark()


def write_mark(folder: Path, stream: Stream, mark: Mark) -> None:
    """Save a stream's mark.

    Raises:
        LedgerWriteError: it cannot be written.
    """
    write_private_file(mark_path(folder, stream), json.dumps(asdict(mark)))


def marked_streams(folder: Path) -> dict[Stream, Mark]:
    """Return every stream that has a mark."""
    streams = {}
    for path in sorted((folder / SHARED_FOLDER).glob("*.json")):
        ledger, _, owner = path.stem.partition(".")
        name = decode_file_name(folder / ledger, owner) if owner else None
        stream = Stream(ledger, name)
        if ledger in ("episodic", "journal", "semantic", "procedural"):
            streams[stream] = read_mark(folder, stream)
    return streams


def copied_streams(folder: Path) -> list[Stream]:
    """Return the streams of which this machine has lines."""
    return [stream for stream, mark in marked_streams(folder).items() if mark.offset]


# -- What a synchronisation with the server of a shared ledger did


@dataclass(slots=True)
class Synced:
    """What a synchronisation did.

    ``files`` are those with new lines, by name; ``refused`` says why what waits was not delivered.
    """

    pulled: int = 0
    delivered: int = 0
    purged: bool = False
    refused: str | None = None
    files: dict[str, LedgerFile] = field(default_factory=dict)
