"""Drop recalls from the journal when they are older than the retention."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import (
    iter_ledger_folders,
    write_private_file,
)
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.store import LOCK_SECONDS, Store


def expire_recalls(store: Store, now: datetime) -> int:
    """Remove recalls from journal files older than the retention; return how many."""
    oldest = now - timedelta(days=store.settings.journal.retention_days)
    dropped = 0
    for kind, _, folder in iter_ledger_folders(store.folder):
        for path in jsonl.list_day_files(folder) if kind == "journal" else ():
            if path.stem < f"{oldest:%Y-%m-%d}":
                dropped += _without_recalls(path)
                store.catch_up_file(path, ours=True)
    return dropped


def _without_recalls(path: Path) -> int:
    with hold_lock(path, LOCK_SECONDS):
        lines, _ = jsonl.read_lines(path)
        others = [line.data for line in lines if not _is_recall(line)]
        if len(others) < len(lines):
            # Replaced, not edited in place: the index notices.
            write_private_file(
                path, b"".join(others).decode("utf-8", "surrogateescape"), durable=True
            )
    return len(lines) - len(others)


def _is_recall(line: jsonl.LedgerLine) -> bool:
    try:
        return jsonl.parse_line(line).get("kind") == "recall"
    except ValueError:
        return False
