"""Look into archives that MemTier wrote for a text that is purged."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path
from typing import Final

from memtier_plugin.lifecycle.purge.plan import SpanFinder

_ERRORS: Final = (tarfile.TarError, OSError, EOFError, zlib.error)
_PIECE: Final = 8 * 1024 * 1024  # bytes of a file that are read at once
_OVERLAP: Final = 64 * 1024


def archive_holds(path: Path, finder: SpanFinder) -> bool:
    """Return whether an archive has what is purged, or cannot be read."""
    try:
        with tarfile.open(path, mode="r|gz") as archive:
            for member in archive:
                source = archive.extractfile(member) if member.isreg() else None
                rest = b""
                while source and (data := source.read(_PIECE)):
                    if finder((rest + data).decode("utf-8", "surrogateescape")):
                        return True
                    rest = data[-_OVERLAP:]
    except _ERRORS:
        return True
    return False
