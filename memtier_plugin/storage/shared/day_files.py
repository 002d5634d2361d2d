"""Replace the day files of this machine's copy, and notice those that somebody else changed.

A file is known by the checksum of what it had when it was looked at last, so that one that was
edited, cut or deleted by somebody else is noticed, and one that was copied is not.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from memtier_plugin.core import fault_injection
from memtier_plugin.core.errors import LedgerWriteError
from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import OPEN_FLAGS, sync_folders, write_private_file
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.segments import spool_file
from memtier_plugin.storage.shared.files import LOCK_SECONDS, put_before
from memtier_plugin.storage.shared.protocol import NewLine, line_key

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
                fault_injection.run_step("fsync", path, os.fsync, fd)
                size = file.tell()
            fault_injection.run_step("rename", path, os.replace, fresh, path)
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
    """Forget what was seen of a day's file, or of all: this process writes them anew."""
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
