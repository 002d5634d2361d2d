"""Count the runs that hosts could not deliver yet, which wait in files of the home."""

from __future__ import annotations

import os
from pathlib import Path


def count_queued_runs(home: Path) -> tuple[int, int]:
    """Return how many runs wait to be delivered by the hosts, and how many were refused."""
    try:
        names = os.listdir(home / "queue")
    except OSError:
        return 0, 0
    return (
        sum(name.endswith(".json") and not name.startswith(".") for name in names),
        sum(name.endswith(".refused") for name in names),
    )
