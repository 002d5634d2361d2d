"""Which copies MemTier made of a project outside of it, so that a person can find them again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin import ledger
from memtier_plugin.home import is_ours
from memtier_plugin.records import to_iso

_FILE: Final = "exports.jsonl"


def note(folder: Path, path: Path | str, kind: str) -> None:
    """Keep that a copy of the project in a folder was written to a path; kind says what it is.

    Raises:
        LedgerError: it cannot be kept.
    """
    record = {"at": to_iso(datetime.now(UTC)), "path": str(path), "kind": kind}
    ledger.append(folder / _FILE, [record])


def known(folder: Path) -> list[dict[str, Any]]:
    """Return what was noted, oldest first.

    Raises:
        LedgerError: it cannot be read.
    """
    path = folder / _FILE
    if not is_ours(folder) or not path.exists():
        return []
    found = []
    for line in ledger.read(path)[0]:
        try:
            found.append(ledger.parse(line))
        except ValueError:
            continue  # torn
    return found
