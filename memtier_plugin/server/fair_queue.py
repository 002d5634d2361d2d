"""Run the calls of many clients on a few threads, so that none is held up by another.

The next call is one of the client that has used the least processor time lately.  A client that has
used much gets one thread at a time while others are there; the rest of its calls wait.  What a call
may be expected to take counts from its start, or many that start at once would take all threads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

HALF_LIFE: Final = 10.0  # seconds after which processor time that was taken counts half
HEAVY: Final = 1.0  # processor seconds, so counted, that make a client a heavy one
PRESENT: Final = 10.0  # seconds after its last call for which a client counts as there
_MOST_CLIENTS: Final = 1024  # that are remembered

T = TypeVar("T")


@dataclass(slots=True)
class _Client(Generic[T]):
    waiting: deque[tuple[Callable[[], T], Future[T], float]] = field(default_factory=deque)
    running: int = 0
    spent: float = 0.0
    seen: float = 0.0  # when it was last looked at, by `time.monotonic`

    def age(self, now: float) -> None:
        """Let what it took count for less."""
        self.spent *= 0.5 ** ((now - self.seen) / HALF_LIFE)
        self.seen = now


class FairQueue(Generic[T]):
    """Runs the calls of clients.

    Args:
        threads: calls that run at a time.
        waiting: calls of one client that wait; who submits more waits until there is room.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._most, self._room = threads, waiting
        self._clients: dict[Hashable, _Client[T]] = {}
        self._changed = threading.Condition()
        self._threads = self._idle = 0
        self._closed = False

    def submit(self, who: Hashable, call: Callable[[], T], expected: float = 0.0) -> Future[T]:
        """Have a call run in its turn; a call that is cancelled before never runs.

        Args:
            expected: processor seconds that it is likely to take.
        """
        future: Future[T] = Future()
        with self._changed:
            client = self._clients.setdefault(who, _Client())
            client.age(time.monotonic())
            self._changed.wait_for(lambda: len(client.waiting) < self._room or self._closed)
            if self._closed:
                future.cancel()
                return future
            self._clients[who] = self._clients.pop(who, client)  # the one seen last comes last
            client.waiting.append((call, future, expected))
            waiting = sum(len(each.waiting) for each in self._clients.values())
            if self._idle < waiting and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name="memtier-rpc", daemon=True).start()
            self._changed.notify_all()
        return future

    def close(self) -> None:
        """Take no more calls, and drop those that wait."""
        with self._changed:
            self._closed = True
            for client in self._clients.values():
                for _, future, _ in client.waiting:
                    future.cancel()
                client.waiting.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._closed or self._next() is not None)
                self._idle -= 1
                client = self._next()
                if client is None:
                    return
                call, future, expected = client.waiting.popleft()
                client.running += 1
                client.spent += expected
                self._changed.notify_all()  # there is room for one more
            start = time.thread_time()
            try:
                if future.set_running_or_notify_cancel():
                    future.set_result(call())
            except BaseException as error:  # it is the caller's
                future.set_exception(error)
            finally:
                with self._changed:
                    client.running -= 1
                    client.age(time.monotonic())
                    taken = time.thread_time() - start
                    client.spent = max(0.0, client.spent - expected) + taken
                    self._forget()
                    self._changed.notify_all()

    def _next(self) -> _Client[T] | None:
        """Return the client whose turn it is; None if nobody's call may run now."""
        now = time.monotonic()
        present = sum(
            bool(c.running or c.waiting) or now - c.seen < PRESENT for c in self._clients.values()
        )

        def may_run(client: _Client[T]) -> bool:
            heavy = client.spent > HEAVY and present > 1
            return bool(client.waiting) and client.running < (1 if heavy else self._most)

        able = [client for client in self._clients.values() if may_run(client)]
        return min(able, key=lambda client: (client.spent, client.running), default=None)

    def _forget(self) -> None:
        for who, client in list(self._clients.items())[: len(self._clients) - _MOST_CLIENTS]:
            if not (client.running or client.waiting):
                del self._clients[who]
