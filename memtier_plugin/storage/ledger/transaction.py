"""Atomic transactions across ledgers, by a write-ahead file.

The next writer completes the transaction of a killed process, so facts, their superseding and
promotion events and the cursors are written all or nothing, and exactly once.  Callers hold the
lock on the project's facts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.core.events import (
    AcceptEvent,
    ConsolidateEvent,
    PromoteEvent,
    ProposeEvent,
    RetractEvent,
    SupersedeEvent,
)
from memtier_plugin.core.files import pass_point, run_step, write_private_file
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.records import SCHEMA, Fact, JournalEvent
from memtier_plugin.storage.ledger import jsonl

if TYPE_CHECKING:
    from memtier_plugin.storage.protocol import Log

TRANSACTION_FILE: Final = ".settling.json"

_KINDS: Final = (  # in this order
    AcceptEvent.KIND,
    SupersedeEvent.KIND,
    RetractEvent.KIND,
    PromoteEvent.KIND,
    ProposeEvent.KIND,
    ConsolidateEvent.KIND,
)

_log = logging.getLogger("memtier")


def commit_transaction(
    log: Log,
    folder: Path,
    facts: Sequence[Fact],
    events: Sequence[JournalEvent],
    *,
    durable: bool,
) -> None:
    """Write facts and events, all or nothing; the write-ahead file lies in the project's folder.

    Raises:
        LedgerError: nothing was written; or only a part, which the next writer completes.
    """
    parts = len({fact.tier for fact in facts}) + len({event.kind for event in events})
    path = folder / TRANSACTION_FILE
    if parts > 1:
        plan = {
            "facts": [fact.to_json() for fact in facts],
            "events": [event.to_json() for event in events],
        }
        pass_point("before plan")
        write_private_file(path, jsonl.to_line(plan).decode("utf-8"), durable=durable)
        pass_point("after plan")
    begun = [False]
    try:
        _apply(log, facts, events, begun)
    except LedgerError:
        if not begun[0]:
            _remove_file(path)  # nothing was written, so there is nothing to complete
        raise
    if parts > 1:
        pass_point("before done")
        _remove_file(path)


def pending_file(folder: Path) -> Path | None:
    """Return the write-ahead file of an interrupted transaction that awaits completion."""
    path = folder / TRANSACTION_FILE
    return path if path.exists() else None


def unreadable_file(folder: Path) -> Path | None:
    """Return the write-ahead file that was set aside because it could not be read."""
    path = (folder / TRANSACTION_FILE).with_suffix(".unreadable")
    return path if path.exists() else None


def complete_transaction(
    log: Log, folder: Path, facts: Sequence[Fact], events: Sequence[JournalEvent]
) -> None:
    """Write the records of the write-ahead file that the ledgers lack.

    Raises:
        LedgerError: the completion failed; the file stays for the next attempt.
    """
    _apply(log, facts, events, [False])
    pass_point("before done")
    _remove_file(folder / TRANSACTION_FILE)


def _apply(
    log: Log, facts: Sequence[Fact], events: Sequence[JournalEvent], begun: list[bool]
) -> None:
    """Append the records, facts first and cursors last."""
    days: dict[datetime, list[Fact]] = {}
    for fact in facts:
        days.setdefault(fact.timestamp, []).append(fact)
    for moment, together in days.items():
        pass_point("before facts")
        log.append_facts(together, moment)
        begun[0] = True
        pass_point("after facts")
    for kind in sorted({event.kind for event in events}, key=kind_order):
        pass_point(f"before {kind}")
        log.append_events([event for event in events if event.kind == kind], shared=True)
        begun[0] = True
        pass_point(f"after {kind}")


def _remove_file(path: Path) -> None:
    """Remove the write-ahead file; if it stays, the next writer finds nothing left to write."""
    try:
        run_step("unlink", path, path.unlink, missing_ok=True)
    except OSError as error:
        _log.warning("%s stays until the next writing of facts: %s", path, error)


def kind_order(kind: str) -> tuple[int, str]:
    """Return by what the kinds of events of a transaction are sorted: cursors last."""
    return (_KINDS.index(kind) if kind in _KINDS else -1), kind


def read_plan(folder: Path) -> tuple[list[Fact], list[JournalEvent]] | None:
    """Read the write-ahead file, if any; an unreadable one is set aside.

    Raises:
        LedgerError: it cannot be read, or a newer MemTier wrote more in it than this one knows.
    """
    path = folder / TRANSACTION_FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error}") from error
    try:
        plan = parse_json_text(text)
        newest = max((r.get("schema", 0) for r in (*plan["facts"], *plan["events"])), default=0)
        if newest > SCHEMA:
            raise LedgerError(
                f"{path} was begun by a newer MemTier: upgrade this one to complete it"
            )
        facts = [Fact.from_json(record) for record in plan["facts"]]
        return facts, [JournalEvent.from_json(record) for record in plan["events"]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        aside = path.with_suffix(".unreadable")
        run_step("rename", path, path.replace, aside)
        _log.warning("%s is not what was written (%s); moved to %s", path, error, aside)
        return None
