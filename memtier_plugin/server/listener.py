"""Connections of `memtier serve`: accepted, bounded in number, with a thread each."""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from memtier_plugin.core.mutex import Mutex

_log: Final = logging.getLogger("memtier")


class Listener:
    """Accepts connections, and attends to each in a thread until it ends.

    Args:
        listening: the socket, which listens already.
        attend: attends to a connection; it calls its second argument once the client is heard.
        most: connections at a time; more are refused.
        most_silent: those that were not heard yet; the oldest ends for one more.
        is_welcome: tells whether a connection is let in.
    """

    def __init__(
        self,
        listening: socket.socket,
        attend: Callable[[socket.socket, Callable[[], None]], None],
        *,
        most: int,
        most_silent: int,
        is_welcome: Callable[[socket.socket], bool] = lambda _connection: True,
    ) -> None:
        self._listener = listening
        self._talk = attend
        self._most, self._most_silent = most, most_silent
        self._is_welcome = is_welcome
        self._waker, self._woken = socket.socketpair()
        self._guard = Mutex()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._silent: dict[socket.socket, None] = {}  # not heard yet, the oldest first
        self._ended: set[socket.socket] = set()  # by us, and about to go
        self._thread = threading.Thread(target=self._accept, name="memtier-accept", daemon=True)
        self._thread.start()

    def count(self) -> int:
        """Return how many connections are open."""
        with self._guard:
            return len(self._connections)

    def close(self) -> None:
        """Refuse new connections, and answer running calls."""
        self._waker.close()
        self._thread.join()
        self._listener.close()
        self._woken.close()
        with self._guard:
            open_now = dict(self._connections)
        for connection, thread in open_now.items():
            with suppress(OSError):  # the client closed first
                connection.shutdown(socket.SHUT_RD)  # its reader sees the end of the input
            thread.join()

    def _accept(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener, self._woken], [], [])
            if self._woken in ready:
                return
            try:
                connection, _ = self._listener.accept()
            except OSError as error:  # it is gone already, or there are too many files
                _log.warning("a connection was not accepted: %s", error)
                self._woken_within(0.1)
                continue
            if not self._admit(connection):
                connection.close()

    def _woken_within(self, seconds: float) -> None:
        select.select([self._woken], [], [], seconds)

    def _admit(self, connection: socket.socket) -> bool:
        if not self._is_welcome(connection):
            return False
        thread = threading.Thread(target=self._attend, args=(connection,), daemon=True)
        with self._guard:
            if len(self._silent) >= self._most_silent:
                self._end_oldest_silent()
            if len(self._connections) - len(self._ended) >= self._most:
                _log.warning("a connection was refused: %d are open", self._most)
                return False
            self._connections[connection] = thread
            self._silent[connection] = None
            thread.start()
        return True

    def _end_oldest_silent(self) -> None:
        oldest = next(iter(self._silent))
        del self._silent[oldest]
        self._ended.add(oldest)
        with suppress(OSError):  # it has just ended
            oldest.shutdown(socket.SHUT_RDWR)  # its thread sees the end of the input

    def _attend(self, connection: socket.socket) -> None:
        def heard() -> None:
            with self._guard:
                self._silent.pop(connection, None)

        try:
            with connection:
                self._talk(connection, heard)
        except OSError as error:
            _log.info("a connection broke: %s", error)
        finally:
            with self._guard:
                self._silent.pop(connection, None)
                self._ended.discard(connection)
                del self._connections[connection]
