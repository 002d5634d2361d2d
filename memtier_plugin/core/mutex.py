"""A lock between threads that a forked child finds free."""

from __future__ import annotations

import os
import threading
from typing import Final
from weakref import WeakSet


class Mutex:
    """A lock like that of ``threading``; in a forked child it is free.

    A thread that held it when the process forked does not exist in the child.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _mutexes.add(self)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; return whether it was taken (as `threading.Lock.acquire`)."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


_mutexes: Final[WeakSet[Mutex]] = WeakSet()


def _renew_all() -> None:
    for mutex in _mutexes:
        mutex._renew()


os.register_at_fork(after_in_child=_renew_all)
