"""Check whether plugins may be installed, without importing `importlib.metadata`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

COMMANDS_GROUP: Final = "memtier.commands"  # of plugins that only the terminal loads


def may_be_installed(group: str) -> bool:
    """Return whether an installed distribution may name a group of entry points; true in doubt."""
    heading = f"[{group}]".encode()
    try:
        for folder in filter(Path.exists, map(Path, sys.path)):
            if not folder.is_dir():
                return True  # an archive
            for pattern in ("*.dist-info/entry_points.txt", "*.egg-info/entry_points.txt"):
                if any(heading in file.read_bytes() for file in folder.glob(pattern)):
                    return True
    except OSError:
        return True
    return False
