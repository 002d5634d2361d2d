"""Repair what loses nothing by it, for `doctor --fix`; drop recalls beyond their retention."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from memtier_plugin.core import locks
from memtier_plugin.core.errors import IndexProblem, MemTierError
from memtier_plugin.core.events import DeliverEvent, RecallEvent
from memtier_plugin.core.paths import socket_path, tighten_mode
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.operations.background import HealthFinding
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.home_files import find_unfinished, remove_unfinished
from memtier_plugin.storage.protocol import format_bytes
from memtier_plugin.storage.store import Store

# -- Repair what loses nothing by it, for `doctor --fix`, and report each repair
#
# What a person has to decide (an unreadable line, a foreign file) stays, and `doctor` reports it.

Progress = Callable[[int, int], None]


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
    if pending := store.pending_commit():
        yield HealthFinding(
            "warn", "writing facts was cut off; the next consolidation completes it", pending, fix
        )
    if unreadable := store.unreadable_commit():
        yield HealthFinding(
            "warn",
            "facts that were being written could not be read again",
            unreadable,
            "look whether something of it is missing, then delete it",
        )
    for aside in store.list_set_aside():
        size = format_bytes(aside.size)
        yield HealthFinding(
            "warn",
            f"an index set aside earlier still exists ({size})",
            aside.where,
            fix if aside.ours else "check what it is, then delete it: it is not a MemTier index",
        )


def repair(actor: Actor, progress: Progress) -> Iterator[Repair]:
    """Repair what can be repaired, yielding each repair as it is made.

    Raises:
        LedgerError, IndexProblem: a repair failed, and the rest was not tried.
    """
    store = actor.store
    yield from _modes(store.project_folder.home)
    for mended in store.mend_log():
        aside_name = f"moved a torn last line to {mended.aside}"
        ended = "ended the last line, which lacked its newline"
        yield Repair(aside_name if mended.aside else ended, str(mended.path))
    for path in remove_unfinished(store):
        yield Repair("removed leftovers of a process that died", str(path))
    yield from _socket(store.project_folder.home)
    yield from _index(store, progress)
    if store.pending_commit():
        FactWriter(actor).recover()
        where = str(store.project_folder.path)
        yield Repair("completed the writing of facts that was cut off", where)
    for where in store.remove_set_aside():
        yield Repair("removed the broken index, which has been rebuilt", where)


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
    yield Repair("removed the socket of a server that no longer runs", str(path))


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
        yield Repair("rebuilt the index", why)
        return
    with suppress(MemTierError):  # the checks report what cannot be read
        behind = [file.name for file in store.files_behind()]
        if store.incomplete or behind:
            lines = store.catch_up_all()
            yield Repair(f"read {lines} lines that the index lacked", ", ".join(behind[:3]))


# -- Drop recalls from the journal when they are older than the retention


def expire_recalls(store: Store, now: datetime) -> int:
    """Remove recalls from the journal that are older than the retention; return how many."""
    days = timedelta(days=store.settings.journal.retention_days)
    dropped = store.expire_events(RecallEvent.KIND, now - days)
    store.expire_events(DeliverEvent.KIND, now - days)
    return dropped
