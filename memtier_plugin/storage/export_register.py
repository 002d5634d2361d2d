"""Register files written outside of the home, so that a purge can report copies there.

A file is registered before it can be seen, so that none is unknown whose writer was killed.

`exports.jsonl` in the project's folder has a line for each file: time, path, kind, and a hash that
identifies it.  It holds no exported content.
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
PART: Final = "part"  # kind of a file that becomes an export once it is complete
_PIECE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Export:
    """One exported file or folder; ``digest`` is "" unless it was a plain file."""

    at: datetime
    path: Path
    kind: str
    digest: str = ""

    @property
    def exists(self) -> bool:
        """True if the path exists now."""
        return os.path.lexists(self.path)

    @property
    def unchanged(self) -> bool:
        """True if the file still has the exported content."""
        return bool(self.digest) and self.digest == file_digest(self.path)


def register_export(folder: Path, path: Path, kind: str, *, content: Path | None = None) -> Export:
    """Record an exported file of this kind ("jsonl", "markdown", "backup", "model", "part").

    Args:
        folder: the project's folder.
        content: the file that has become ``path``, or is about to; none before it is written.

    Raises:
        LedgerError: the register cannot be written.
    """
    absolute = Path(os.path.abspath(path))
    export = Export(datetime.now(UTC), absolute, kind, file_digest(content) if content else "")
    record = {
        "at": to_iso(export.at),
        "path": str(absolute),
        "kind": kind,
        "digest": export.digest,
    }
    jsonl.append_records(folder / REGISTER_FILE, [record], durability="sync")
    return export


def list_exports(folder: Path) -> list[Export]:
    """List a project's exports, oldest first; for each path only the newest.

    Raises:
        LedgerError: the register cannot be read.
    """
    exports: dict[Path, Export] = {}
    for export in _registered(folder):
        exports.pop(export.path, None)
        exports[export.path] = export
    return [*exports.values()]


def file_digest(path: Path) -> str:
    """Hash a plain file; return "" if it cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest()


def _registered(folder: Path) -> Iterator[Export]:
    path = folder / REGISTER_FILE
    if not path.exists():
        return
    for line in jsonl.read_lines(path)[0]:
        with suppress(ValueError, TypeError, KeyError):  # torn, or not ours
            record = jsonl.parse_line(line)
            yield Export(
                from_iso(record["at"]),
                Path(record["path"]),
                str(record["kind"]),
                str(record["digest"]),
            )
