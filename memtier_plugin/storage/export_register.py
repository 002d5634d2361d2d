"""Register files written outside of the home, so that a purge can report copies there.

`exports.jsonl` in the project's folder has a line for each file: when, where, what kind, and a hash
by which it is known again.  It holds nothing of what was written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from memtier_plugin.core.times import from_iso, to_iso
from memtier_plugin.storage.ledger import jsonl

REGISTER_FILE: Final = "exports.jsonl"
_PIECE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Export:
    """One file (or folder) that was written: ``digest`` is "" for what was no plain file."""

    at: datetime
    path: Path
    kind: str
    digest: str = ""

    @property
    def exists(self) -> bool:
        """Whether something stands at the path now."""
        return os.path.lexists(self.path)

    @property
    def unchanged(self) -> bool:
        """Whether it is still what was written."""
        return bool(self.digest) and self.digest == file_digest(self.path)


def register_export(folder: Path, path: Path, kind: str) -> Export:
    """Keep that a file of this kind ("jsonl", "markdown", "backup") was written for a project.

    Args:
        folder: the project's.

    Raises:
        LedgerError: it cannot be kept.
    """
    whole = Path(os.path.abspath(path))
    made = Export(datetime.now(UTC), whole, kind, file_digest(whole))
    record = {
        "at": to_iso(made.at),
        "path": str(whole),
        "kind": kind,
        "digest": made.digest,
    }
    jsonl.append_records(folder / REGISTER_FILE, [record], durability="fsync")
    return made


def list_exports(folder: Path) -> list[Export]:
    """Return what was written for a project, oldest first; of one path only the newest.

    Raises:
        LedgerError: the register cannot be read.
    """
    found: dict[Path, Export] = {}
    for one in _noted(folder):
        found.pop(one.path, None)
        found[one.path] = one
    return [*found.values()]


def file_digest(path: Path) -> str:
    """Return a hash of a plain file, or "" where there is none."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest()


def _noted(folder: Path) -> Iterator[Export]:
    path = folder / REGISTER_FILE
    if not path.exists():
        return
    for line in jsonl.read_lines(path)[0]:
        with suppress(ValueError, TypeError, KeyError):  # torn, or somebody else's
            record = jsonl.parse_line(line)
            yield Export(
                from_iso(record["at"]),
                Path(record["path"]),
                str(record["kind"]),
                str(record["digest"]),
            )
