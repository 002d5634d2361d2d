"""Count the runs that hosts could not deliver yet, which wait in files of the home."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def count_queued_runs(home: Path) -> tuple[int, int]:
    """Return how many runs wait to be delivered by the hosts, and how many were refused."""
    names: list[str] = []
    for folder in (home / "queue", home / "queue" / "remote"):
        with suppress(OSError):
            names += os.listdir(folder)
    return (
        sum(name.endswith(".json") and not name.startswith(".") for name in names),
        sum(name.endswith(".refused") for name in names),
    )
