"""A fair semaphore: threads are let in in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from typing import Self

from memtier_plugin.core.mutex import Mutex


class Turns:
    """A semaphore that lets in whoever has waited longest.

    The standard library's lets a thread that has just left in again before those that wait, so
    under load some wait ever longer.
    """

    def __init__(self, places: int) -> None:
        self._lock = Mutex()
        self._free = places
        self._waiting: deque[threading.Event] = deque()

    def __enter__(self) -> Self:
        with self._lock:
            if self._free and not self._waiting:
                self._free -= 1
                return self
            turn = threading.Event()
            self._waiting.append(turn)
        try:
            turn.wait()
        except BaseException:  # an interrupt: the place goes to the next
            with self._lock:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    raise
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1
