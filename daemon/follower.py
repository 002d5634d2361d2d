"""Follow the servers of shared projects, each in a thread of its own."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.project_folder import ProjectFolder
from memtier_plugin.storage.shared.marker import shared_name

_PAUSE_SECONDS: Final = 5.0  # after a failure: the server is away, or refuses

_log = logging.getLogger("memtier")


class Followers:
    """The threads that follow, one a project, each until it is told to stop."""

    def __init__(self) -> None:
        self._threads: dict[tuple[Path, str], threading.Thread] = {}
        self._stops: dict[tuple[Path, str], threading.Event] = {}
        self._ended = False

    def start(self, home: Path, project: str) -> None:
        """Follow a project, if it is shared and not followed yet.

        Raises:
            LedgerError: the note of where it is shared cannot be read.
        """
        running = self._threads.get((home, project))
        if (running and running.is_alive()) or self._ended:
            return
        if shared_name(ProjectFolder.of(home, project).path) is None:
            return
        stop = threading.Event()
        thread = threading.Thread(
            target=self._follow, args=(home, project, stop), name="memtier-follower", daemon=True
        )
        self._threads[home, project], self._stops[home, project] = thread, stop
        thread.start()

    def stop(self, home: Path, project: str) -> None:
        """Tell the thread of a project to stop, if there is one."""
        self._threads.pop((home, project), None)
        if stop := self._stops.pop((home, project), None):
            stop.set()

    def stop_all(self) -> None:
        """Tell all threads to stop, and start no more."""
        self._ended = True
        for stop in [*self._stops.values()]:
            stop.set()

    def wait(self, patience: float) -> None:
        """Wait for the threads after `stop_all`, for some seconds each."""
        for thread in [*self._threads.values()]:
            thread.join(patience)

    def _follow(self, home: Path, project: str, stop: threading.Event) -> None:
        reported = ""
        while not stop.is_set():
            try:
                with MemTier.open(home, project, create=False) as memory:
                    memory.follow(stop)
                reported = ""
            except MemTierError as error:
                if str(error) != reported:
                    reported = str(error)
                    _log.warning("project %r is not followed: %s", project, error)
                stop.wait(_PAUSE_SECONDS)
