"""Follow the servers of shared projects, each in a thread of its own."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.project_folder import ProjectFolder
from memtier_plugin.storage.shared.store import shared_name

_PAUSE_SECONDS: Final = 5.0  # after a failure: the server is away, or refuses

_log = logging.getLogger("memtier")


class Followers:
    """The threads that follow, one a project, until ``stop`` is set."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._threads: dict[tuple[Path, str], threading.Thread] = {}

    def start(self, home: Path, project: str) -> None:
        """Follow a project, if it is shared and not followed yet.

        Raises:
            LedgerError: the note of where it is shared cannot be read.
        """
        running = self._threads.get((home, project))
        if (running and running.is_alive()) or self._stop.is_set():
            return
        if shared_name(ProjectFolder.of(home, project).path) is None:
            return
        thread = threading.Thread(
            target=self._follow, args=(home, project), name="memtier-follower", daemon=True
        )
        self._threads[home, project] = thread
        thread.start()

    def wait(self, patience: float) -> None:
        """Wait for the threads after ``stop``, for some seconds each."""
        for thread in self._threads.values():
            thread.join(patience)

    def _follow(self, home: Path, project: str) -> None:
        reported = ""
        while not self._stop.is_set():
            try:
                with MemTier.open(home, project, create=False) as memory:
                    memory.follow(self._stop)
                reported = ""
            except MemTierError as error:
                if str(error) != reported:
                    reported = str(error)
                    _log.warning("project %r is not followed: %s", project, error)
                self._stop.wait(_PAUSE_SECONDS)
