"""Carrying out a purge: the ledgers first written anew, then the index, each step once more if cut.

What is to be done lies in `.purging.json` from before the first change until after the last one.
Whoever comes next completes what a process that was killed has left.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from memtier_plugin.core import fault_injection
from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import remove_private_file, write_private_file
from memtier_plugin.lifecycle.purge.plan import PlainFileEdit, PurgePlan, replace_spans
from memtier_plugin.storage.index.scrub import truncate_wal
from memtier_plugin.storage.index.writer import LedgerFile, ledger_files
from memtier_plugin.storage.store import LOCK_SECONDS, Store

PLAN_FILE: Final = ".purging.json"
LOCK_FILE: Final = ".purging.lock"
_LEDGER_ORDER: Final = (
    "journal",
    "semantic",
    "procedural",
    "episodic",
)  # the source of all goes last
_INDEX_SECONDS: Final = 10.0  # how long others may go on reading the old index

Progress = Callable[[str, int, int], None]


def is_in_progress(folder: Path) -> bool:
    """Tell whether a purge of a project is at work, or was cut off."""
    return (folder / PLAN_FILE).exists()


def save_plan(store: Store, plan: PurgePlan) -> None:
    """Keep what is to be done, before anything is.

    Raises:
        LedgerWriteError: it cannot be kept; nothing is to be done.
    """
    fault_injection.pass_point("before purge plan")
    write_private_file(store.folder / PLAN_FILE, json.dumps(plan.to_json()), durable=True)
    fault_injection.pass_point("after purge plan")


def load_plan(folder: Path) -> PurgePlan | None:
    """Return what was begun and not ended.

    Raises:
        LedgerError: it cannot be read.
    """
    path = folder / PLAN_FILE
    try:
        return PurgePlan.from_json(json.loads(path.read_text("ascii")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerError(
            f"{path} is not what was written ({error}); delete it and purge again"
        ) from error


def execute_plan(store: Store, plan: PurgePlan, progress: Progress | None = None) -> bool:
    """Do all of a plan that is not done yet; tell whether the index is clean, too.

    Raises:
        LedgerError, IndexProblem: do it again; what is done stays done.
    """
    files = sorted(ledger_files(store.folder), key=lambda file: _LEDGER_ORDER.index(file.ledger))
    for number, file in enumerate(files, 1):
        rewrite_ledger(file.path, plan)
        if progress:
            progress("rewriting the ledgers", number, len(files))
    for one in plan.plain:
        _edit_file(one)
    for path in plan.files:
        remove_private_file(Path(path), "purged file")
    fault_injection.pass_point("before purge index")
    store.reindex(
        lambda done, all_: progress("building the index", done, all_) if progress else None
    )
    fault_injection.pass_point("before purge cleaning")
    clean = truncate_wal(store.index, _INDEX_SECONDS)
    fault_injection.pass_point("after purge cleaning")
    return clean


def remove_plan(store: Store) -> None:
    """Let go of the plan: all of it is done.

    Raises:
        LedgerWriteError: it stays, and is done once more, which changes nothing.
    """
    remove_private_file(store.folder / PLAN_FILE, "purge plan")


def read_lines(file: LedgerFile) -> Iterator[bytes]:
    """Yield every line of a ledger file with its newline, and what a crash left without one.

    Raises:
        LedgerError: it cannot be read.
    """
    try:
        yield from _lines(file.path.read_bytes())
    except FileNotFoundError:
        return
    except OSError as error:
        raise LedgerError(f"cannot read {file.path}: {error}") from error


def _lines(data: bytes) -> list[bytes]:
    # Not splitlines: it also breaks at a carriage return, which is no end of a line here.
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1] + b"\n"] if parts[-1] else [])


def rewrite_ledger(path: Path, plan: PurgePlan) -> bool:
    """Write a ledger file anew as a plan has it, if that changes it.

    Under the lock of its writers; who waits for that goes on in the new file.

    Raises:
        LedgerError: it stays as it was.
    """
    if not path.exists():
        return False
    with hold_lock(path, LOCK_SECONDS):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise LedgerError(f"cannot read {path}: {error}") from error
        lines = _lines(data)
        fresh = [plan.rewrite_line(line) for line in lines]
        if fresh == lines:
            return False
        write_private_file(path, b"".join(fresh).decode("utf-8", "surrogateescape"), durable=True)
    return True


def _edit_file(one: PlainFileEdit) -> None:
    path = Path(one.path)
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return
    if text_digest(text, one.spans[-1][1]) == one.digest:
        write_private_file(path, replace_spans(text, one.spans), durable=True)


def text_digest(text: str, end: int) -> str:
    """Return by what the beginning of a file's text is known again."""
    data = text[:end].encode("utf-8", "surrogateescape")
    return hashlib.blake2b(data, digest_size=16).hexdigest()
