"""Repair what loses nothing by it, for `doctor --fix`, and report each repair.

What a person has to decide (an unreadable line, a foreign file) stays, and `doctor` reports it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memtier_plugin.core import locks
from memtier_plugin.core.errors import IndexProblem, MemTierError
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import iter_ledger_folders, socket_path, tighten_mode
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.operations.health.finding import HealthFinding
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.index.files import broken_indexes, is_own_index
from memtier_plugin.storage.ledger import jsonl, transaction
from memtier_plugin.storage.quota import format_bytes
from memtier_plugin.storage.recovery import find_unfinished, remove_unfinished
from memtier_plugin.storage.store import LOCK_SECONDS, Store

Progress = Callable[[int, int], None]

_TORN: Final = ".torn-"


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair, and where it was made."""

    what: str
    where: str = ""


def find_leftovers(store: Store) -> Iterator[HealthFinding]:
    """Yield leftovers that `repair` would remove, or that a person has to judge."""
    fix = "memtier doctor --fix"
    for path in find_unfinished(store):
        yield HealthFinding("warn", "a process that died left this behind", str(path), fix)
    if transaction.is_pending(store):
        yield HealthFinding(
            "warn",
            "writing facts was cut off; the next consolidation completes it",
            str(store.folder / transaction.TRANSACTION_FILE),
            fix,
        )
    unreadable = (store.folder / transaction.TRANSACTION_FILE).with_suffix(".unreadable")
    if unreadable.exists():
        yield HealthFinding(
            "warn",
            "facts that were being written could not be read again",
            str(unreadable),
            "look whether something of it is missing, then delete it",
        )
    for path in broken_indexes(store.index.path):
        size = format_bytes(path.lstat().st_size)
        yield HealthFinding(
            "warn",
            f"what was set aside for a new index is still there ({size})",
            str(path),
            fix if is_own_index(path) else "look what it is, then delete it: no index of MemTier's",
        )


def repair(actor: Actor, progress: Progress) -> Iterator[Repair]:
    """Repair what can be repaired, yielding each repair as it is made.

    Raises:
        LedgerError, IndexProblem: a repair failed, and the rest was not tried.
    """
    store = actor.store
    yield from _modes(store.home)
    yield from _torn(store)
    for path in remove_unfinished(store):
        yield Repair("removed what a process that died had left", str(path))
    yield from _socket(store.home)
    yield from _index(store, progress)
    if transaction.is_pending(store):
        FactWriter(actor).recover()
        yield Repair("completed the writing of facts that was cut off", str(store.folder))
    for path in broken_indexes(store.index.path):
        if is_own_index(path):
            for suffix in ("", "-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            yield Repair("removed the broken index, which was made anew", str(path))


def _modes(home: Path) -> Iterator[Repair]:
    for top, folders, files in os.walk(home):
        for name in ["", *folders, *files] if top == str(home) else [*folders, *files]:
            path = Path(top, name)
            with suppress(OSError):
                status = path.lstat()
                if path.is_symlink() or status.st_uid != os.geteuid():
                    continue  # the checks report it
                if tighten_mode(path, status.st_mode):
                    modes = f"{status.st_mode & 0o777:o} → {path.lstat().st_mode & 0o777:o}"
                    yield Repair(f"closed to others ({modes})", str(path))


def _torn(store: Store) -> Iterator[Repair]:
    """End a last line that lacks only its newline; set aside one that a crash cut off."""
    for _, _, folder in iter_ledger_folders(store.folder):
        for path in jsonl.list_day_files(folder):
            if jsonl.mark_end(path).offset == path.stat().st_size:
                continue
            with hold_lock(path, LOCK_SECONDS) as fd:
                start, size = jsonl.complete_size(fd), os.fstat(fd).st_size
                tail = os.pread(fd, size - start, start)
                if not tail:
                    continue
                if _is_record(tail):
                    os.write(fd, b"\n")
                    yield Repair("ended the last line, which lacked its newline", str(path))
                    continue
                aside = path.with_name(f".{path.name}{_TORN}{time.time_ns() // 1_000_000}")
                aside_fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                try:
                    written = os.write(aside_fd, tail)
                    os.fsync(aside_fd)
                finally:
                    os.close(aside_fd)
                if written < len(tail):
                    aside.unlink()
                    continue  # no room: the torn line stays, and readers skip it
                os.ftruncate(fd, start)
            store.catch_up_file(path, ours=True)  # it became shorter by our doing
            yield Repair(f"moved a torn last line to {aside.name}", str(path))


def _is_record(tail: bytes) -> bool:
    try:
        return bool(jsonl.parse_line(jsonl.LedgerLine(1, 0, tail)))
    except ValueError:
        return False


def _socket(home: Path) -> Iterator[Repair]:
    """Remove the socket of a dead server."""
    path = socket_path(home)
    if not path.is_socket():
        return
    held = locks.try_acquire_lock(path.with_suffix(".lock"))
    if held is None:
        return  # the server is alive
    try:
        path.unlink(missing_ok=True)
    finally:
        locks.release_lock(held)
    yield Repair("removed the socket of a server that is gone", str(path))


def _index(store: Store, progress: Progress) -> Iterator[Repair]:
    try:
        with store.session():
            check = store.check_index()
            why = "" if check == "ok" else f"the index was damaged: {check}"
        if store.stale_tokenizer:
            why = f"the index was made for {store.stale_tokenizer!r}"
    except IndexProblem as problem:
        why = str(problem)
    if why:
        store.reindex(progress)
        yield Repair("built the index anew", why)
        return
    with suppress(MemTierError):  # the checks report what cannot be read
        behind = [file.name for file in store.files_behind()]
        if store.incomplete or behind:
            lines = store.catch_up_all()
            yield Repair(f"read {lines} lines that the index lacked", ", ".join(behind[:3]))
