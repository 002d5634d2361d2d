"""Execute a purge plan: rewrite the ledgers, then the index; every step can be repeated.

The plan is in `.purging.json` from before the first change until after the last one.  The next
purge, or the daemon, completes a purge whose process was killed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from memtier_plugin.core import fault_injection
from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.core.paths import remove_private_file, write_private_file
from memtier_plugin.lifecycle.purge.plan import PlainFileEdit, PurgePlan, replace_spans
from memtier_plugin.storage.store import Store

PLAN_FILE: Final = ".purging.json"
LOCK: Final = "purging"
# The sources of all the others last.
_LEDGER_ORDER: Final = ("journal", "semantic", "procedural", "episodic")
_INDEX_SECONDS: Final = 10.0  # how long others may keep reading the old index

Progress = Callable[[str, int, int], None]


def is_in_progress(folder: Path) -> bool:
    """Return whether a purge of a project is in progress, or was interrupted."""
    return (folder / PLAN_FILE).exists()


def save_plan(store: Store, plan: PurgePlan) -> None:
    """Save a plan before its first step.

    Raises:
        LedgerWriteError: it cannot be saved; nothing may be done.
    """
    fault_injection.pass_point("before purge plan")
    write_private_file(
        store.project_folder.path / PLAN_FILE, json.dumps(plan.to_json()), durable=True
    )
    fault_injection.pass_point("after purge plan")


def load_plan(folder: Path) -> PurgePlan | None:
    """Return the plan of an unfinished purge, if there is one.

    Raises:
        LedgerError: it cannot be read.
    """
    path = folder / PLAN_FILE
    try:
        return PurgePlan.from_json(parse_json_text(path.read_text("ascii")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerError(
            f"{path} is not what was written ({error}); delete it and purge again"
        ) from error


def execute_plan(store: Store, plan: PurgePlan, progress: Progress | None = None) -> bool:
    """Execute the remaining steps of a plan; return whether the index is clean, too.

    Raises:
        LedgerError, IndexProblem: repeat it; finished steps change nothing.
    """
    segments = sorted(store.log.segments(), key=lambda s: _LEDGER_ORDER.index(s.ledger))
    for number, segment in enumerate(segments, 1):
        store.log.rewrite(segment, plan.rewrite_line)
        if progress:
            progress("rewriting the ledgers", number, len(segments))
    for edit in plan.plain:
        edit_file(edit)
    for path in plan.files:
        remove_private_file(Path(path), "purged file")
    fault_injection.pass_point("before purge index")
    store.reindex(
        lambda done, all_: progress("building the index", done, all_) if progress else None
    )
    fault_injection.pass_point("before purge cleaning")
    clean = store.scrub_index(_INDEX_SECONDS)
    fault_injection.pass_point("after purge cleaning")
    return clean


def remove_plan(store: Store) -> None:
    """Remove the plan of a finished purge.

    Raises:
        LedgerWriteError: it stays, and is executed once more, which changes nothing.
    """
    remove_private_file(store.project_folder.path / PLAN_FILE, "purge plan")


def edit_file(edit: PlainFileEdit) -> None:
    """Edit a file that is no ledger, unless it is another by now."""
    path = Path(edit.path)
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return
    if text_digest(text, edit.spans[-1][1]) == edit.digest:
        write_private_file(path, replace_spans(text, edit.spans), durable=True)


def text_digest(text: str, end: int) -> str:
    """Return a digest of the beginning of a file's text."""
    data = text[:end].encode("utf-8", "surrogateescape")
    return hashlib.blake2b(data, digest_size=16).hexdigest()
