"""Name the command that runs this MemTier.  Uses the standard library alone: hooks import it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def launch_command() -> list[str]:
    """Return the command that runs this `memtier` from any working directory."""
    beside = Path(sys.executable).with_name("memtier")
    if beside.is_file() and os.access(beside, os.X_OK):
        return [str(beside)]
    return [sys.executable, "-m", "memtier_plugin"]
