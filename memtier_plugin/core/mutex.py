"""A lock between threads that a forked child finds free."""

from __future__ import annotations

import os
import threading


class Mutex:
    """A lock for a ``with`` statement; a thread that held it when the process forked is gone."""

    def __init__(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            self._process, self._lock = os.getpid(), threading.Lock()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
