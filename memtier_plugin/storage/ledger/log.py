"""A project's log as files, one per ledger, owner and day: list, read, verify, mend, rewrite."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import LedgerError, UnsafePath
from memtier_plugin.core.files import hold_lock, write_private_file
from memtier_plugin.core.formats import is_intact
from memtier_plugin.core.paths import decode_file_name, iter_ledger_folders
from memtier_plugin.core.records import Entry, JournalEvent, decode_entry, decode_event
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.jsonl import LedgerFile, ledger_files
from memtier_plugin.storage.protocol import (
    LOCK_SECONDS,
    LogFault,
    LoggedEntry,
    LogVerification,
    MendedFile,
)

# -- Read what is new in a segment of a project's log


def parse_entries(file: LedgerFile, lines: Iterable[jsonl.LedgerLine]) -> Iterator[Entry]:
    """Yield the entries on these lines; the index counts bad lines and `doctor` lists them."""
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):
            yield decode_entry(line.data, owner=file.owner)


# -- A project's log as files: list, read, verify, mend and rewrite its segments

_TORN: Final = ".torn-"


class FileLog:
    """The ledgers of one project, to be read past the index, verified and rewritten."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def segments(self, ledger: str | None = None, owner: str | None = None) -> list[LedgerFile]:
        """Return the ledger files, optionally of one ledger or owner.

        Raises:
            UnsafePath: a folder is a symlink, or belongs to somebody else.
        """
        return [
            file
            for file in ledger_files(self._folder)
            if ledger in (None, file.ledger) and owner in (None, file.owner)
        ]

    def recent(self, since: float) -> Iterator[LedgerFile]:
        """Yield the files that wait for the server, or were written here since a time."""
        for file in self.segments():
            with suppress(FileNotFoundError):
                if file.provisional or file.path.stat().st_mtime >= since:
                    yield file

    def entries(self, *, agent: str | None = None, day: str | None = None) -> Iterator[LoggedEntry]:
        """Yield entries in the order written.

        Raises:
            LedgerError: a file cannot be read.
        """
        for file in self.segments("episodic", agent):
            if day in (None, file.day):
                for line in jsonl.read_lines(file.path)[0]:
                    yield _logged(line, file)

    def entries_after(self, file: LedgerFile, start: int, end: int) -> Iterator[list[LoggedEntry]]:
        """Yield the entries of a segment that start within these bytes, a chunk at a time.

        Raises:
            LedgerError: the file cannot be read.
        """
        for lines in jsonl.stream(file.path, start):
            inside = [_logged(line, file) for line in lines if line.start < end]
            yield inside
            if len(inside) < len(lines):
                return

    def events(self, *, day: str | None = None) -> Iterator[JournalEvent]:
        """Yield the journal's events, each journal's in the order written.

        Raises:
            LedgerError: a file cannot be read.
        """
        for file in self.segments("journal"):
            if day not in (None, file.day):
                continue
            for line in jsonl.read_lines(file.path)[0]:
                try:
                    event = decode_event(line.data)
                except (ValueError, KeyError, TypeError):
                    continue  # `doctor` names it
                yield event

    def records(self, file: LedgerFile) -> Iterator[bytes]:
        """Yield every line with its newline, including a torn last one.

        Raises:
            LedgerError: the file cannot be read.
        """
        path = file.path
        try:
            yield from _split(path.read_bytes())
        except FileNotFoundError:
            return
        except OSError as error:
            raise LedgerError(f"cannot read {path}: {error}") from error

    def rewrite(self, file: LedgerFile, replace: Callable[[bytes], bytes]) -> bool:
        """Replace each line of a ledger file by another; return whether that changed it.

        Holds the lock of its writers; a writer that waits for it continues in the new file.

        Raises:
            LedgerError: the file is unchanged.
        """
        path = file.path
        if not path.exists():
            return False
        with hold_lock(path, LOCK_SECONDS):
            try:
                data = path.read_bytes()
            except OSError as error:
                raise LedgerError(f"cannot read {path}: {error}") from error
            lines = _split(data)
            rewritten = [replace(line) for line in lines]
            if rewritten == lines:
                return False
            _write(path, rewritten)
        return True

    def drop_events(self, kind: str, before: datetime) -> Iterator[tuple[LedgerFile, int]]:
        """Drop the events of a kind from the files of earlier days; yield each and the number.

        Raises:
            LedgerError: a file cannot be read or written.
        """
        for file in self.segments("journal"):
            if file.day < f"{before:%Y-%m-%d}":
                with hold_lock(file.path, LOCK_SECONDS):
                    lines, _ = jsonl.read_lines(file.path)
                    kept = [line.data for line in lines if _kind(line) != kind]
                    if len(kept) < len(lines):
                        _write(file.path, kept)  # not edited in place: the index notices
                yield file, len(lines) - len(kept)

    def verify(self) -> LogVerification:
        """Read every ledger file and return what is wrong with them."""
        faults: list[LogFault] = []
        try:
            files = self.segments()
        except UnsafePath as error:
            return LogVerification(0, [LogFault("unsafe folder", str(self._folder), str(error))])
        for file in files:
            try:
                lines, mark = jsonl.read_lines(file.path)
                faults += [
                    LogFault("altered", f"{file.path}:{line.number}")
                    for line in lines
                    if not (is_intact(line.data) or jsonl.is_torn(line))
                ]
                if jsonl.has_torn_tail(file.path, mark):
                    faults.append(LogFault("torn", f"{file.path}:{mark.lines + 1}"))
            except UnsafePath as error:
                faults.append(LogFault("unsafe", str(file.path), str(error)))
            except LedgerError as error:
                faults.append(LogFault("unreadable", str(file.path), str(error)))
        return LogVerification(len(files), faults)

    def mend(self) -> Iterator[MendedFile]:
        """End a last line that lacks only its newline; set aside one that a crash cut off.

        Raises:
            LedgerError: a file cannot be read or stayed locked; the rest was not tried.
        """
        for file in self.segments():
            path = file.path
            if jsonl.mark_end(path).offset == path.stat().st_size:
                continue
            with hold_lock(path, LOCK_SECONDS) as fd:
                start, size = jsonl.complete_size(fd), os.fstat(fd).st_size
                tail = os.pread(fd, size - start, start)
                if not tail:
                    continue
                if jsonl.is_record(tail):
                    os.write(fd, b"\n")
                    yield MendedFile(path)
                    continue
                aside = path.with_name(f".{path.name}{_TORN}{time.time_ns() // 1_000_000}")
                if not _write_new(aside, tail):
                    continue  # no room: the torn line stays, and readers skip it
                os.ftruncate(fd, start)
            yield MendedFile(path, aside.name)

    def owner_folders(self) -> Iterator[tuple[str, str]]:
        """Yield the name of every owner of a ledger, and the folder that bears it."""
        for folder in sorted(self._folder.glob("*/*/")):
            yield decode_file_name(folder.parent, folder.name), str(folder)

    def last_written(self) -> float:
        """Return the time at which an entry or a fact was last written, by the files' times.

        Raises:
            LedgerError, OSError: a folder or file cannot be looked at.
        """
        times = [
            days[-1].stat().st_mtime
            for ledger, _, folder in iter_ledger_folders(self._folder)
            if ledger != "journal" and (days := jsonl.list_day_files(folder))
        ]
        return max(times, default=0.0)


def _logged(line: jsonl.LedgerLine, file: LedgerFile) -> LoggedEntry:
    try:
        entry = decode_entry(line.data, owner=file.owner)
    except (ValueError, TypeError, KeyError):
        entry = None  # `doctor` names it
    return LoggedEntry(entry, line.start, len(line.data))


def _split(data: bytes) -> list[bytes]:
    # Not splitlines: it also breaks at a carriage return, which ends no ledger line.
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1] + b"\n"] if parts[-1] else [])


def _write(path: Path, lines: list[bytes]) -> None:
    write_private_file(path, b"".join(lines).decode("utf-8", "surrogateescape"), durable=True)


def _write_new(path: Path, data: bytes) -> bool:
    """Write a new file; return whether there was room for it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        written = os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    if written < len(data):
        path.unlink()
        return False
    return True


def _kind(line: jsonl.LedgerLine) -> object:
    try:
        return jsonl.parse_line(line).get("kind")
    except ValueError:
        return None
