"""One daemon per project, of whatever process: `memtier daemon`, `memtier serve` or a host's."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from memtier_plugin import lock
from memtier_plugin.home import file_name, private_folder

NAME: Final = ".daemon.lock"


def take(home: Path, project: str) -> int | None:
    """Become the project's daemon; return what `release` needs, or None if there is one.

    Raises:
        LedgerError: the project's folder cannot be used.
    """
    return lock.take(private_folder(home, "projects", file_name(project)) / NAME)


def held(home: Path, project: str) -> bool:
    """Tell whether some process is the project's daemon now."""
    fd = take(home, project)
    if fd is not None:
        release(fd)
    return fd is None


release = lock.release
