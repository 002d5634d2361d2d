"""The Unix socket of `memtier serve`: who may connect, in what number, one thread a connection."""

from __future__ import annotations

import logging
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Final

from memtier_plugin.core.mutex import Mutex
from memtier_plugin.core.resident_socket import Claim

MAX_CONNECTIONS: Final = 256
MAX_SILENT: Final = 32  # connections without a line; the oldest ends for one more
SEND_SECONDS: Final = 10  # how long a client may read nothing before its connection ends
REQUEST_SECONDS: Final = 10.0  # how long one may take for its first line
_PEEK: Final = 65_536  # bytes that count as a line

_log = logging.getLogger("memtier")

ConnectionHandler = Callable[[IO[bytes], Callable[[bytes], object]], None]


def peer_uid(connection: socket.socket) -> int:
    """Return the user id of the peer of a Unix socket.

    Raises:
        OSError: the system does not know it.
    """
    if sys.platform == "darwin":
        # struct xucred by LOCAL_PEERCRED at SOL_LOCAL: version, uid, and groups.
        return int(struct.unpack_from("=II", connection.getsockopt(0, 1, 76))[1])
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])


class SocketListener:
    """Hands every connection of the same user on a home's socket to ``attend``."""

    def __init__(self, claim: Claim, attend: ConnectionHandler) -> None:
        self.path = claim.path
        self._claim = claim
        self._attend = attend
        claim.note(ready=True)  # before the first answer: who has one may count on it
        self._waker, self._woken = socket.socketpair()
        self._guard = Mutex()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._silent: dict[socket.socket, None] = {}  # without a line yet, the oldest first
        self._ended: set[socket.socket] = set()  # by us, and about to go
        self._thread = threading.Thread(target=self._accept, name="memtier-accept", daemon=True)
        self._thread.start()

    def count_clients(self) -> int:
        """Return how many connections are open."""
        with self._guard:
            return len(self._connections)

    def close(self) -> None:
        """Refuse new connections, answer running calls, and remove the socket."""
        self._waker.close()
        self._thread.join()
        self._claim.listening.close()
        self._woken.close()
        with self._guard:
            open_now = dict(self._connections)
        for connection, thread in open_now.items():
            with suppress(OSError):  # the client closed first
                connection.shutdown(socket.SHUT_RD)  # its reader sees the end of the input
            thread.join()
        self._claim.end()

    def _accept(self) -> None:
        listening = self._claim.listening
        while True:
            ready, _, _ = select.select([listening, self._woken], [], [])
            if self._woken in ready:
                return
            try:
                connection, _ = listening.accept()
            except OSError as error:  # it is gone already, or there are too many files
                _log.warning("a connection was not accepted: %s", error)
                select.select([self._woken], [], [], 0.1)
                continue
            if not (_is_same_user(connection) and self._admit(connection)):
                connection.close()

    def _admit(self, connection: socket.socket) -> bool:
        thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
        with self._guard:
            if len(self._silent) >= MAX_SILENT:
                oldest = next(iter(self._silent))
                del self._silent[oldest]
                self._ended.add(oldest)
                with suppress(OSError):  # it has just ended
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread sees the end of the input
            if len(self._connections) - len(self._ended) >= MAX_CONNECTIONS:
                _log.warning("a connection was refused: %d are open", MAX_CONNECTIONS)
                return False
            self._connections[connection] = thread
            self._silent[connection] = None
            thread.start()
        return True

    def _serve(self, connection: socket.socket) -> None:
        timeout = struct.pack("ll", SEND_SECONDS, 0)
        try:
            with connection, connection.makefile("rb") as reader:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
                in_time = _wait_for_request(connection)
                with self._guard:
                    self._silent.pop(connection, None)
                if in_time:
                    self._attend(reader, connection.sendall)
                else:
                    _log.warning("closed a connection without a request in %g s", REQUEST_SECONDS)
        except OSError as error:
            _log.info("a connection broke: %s", error)
        finally:
            with self._guard:
                self._silent.pop(connection, None)
                self._ended.discard(connection)
                del self._connections[connection]


def _is_same_user(connection: socket.socket) -> bool:
    """Tell whether a connection is of the user whose home this is."""
    try:
        user = peer_uid(connection)
    except OSError as error:
        _log.warning("a connection was refused: its user is unknown (%s)", error)
        return False
    if user != os.geteuid():
        _log.warning("a connection of user %d was refused", user)
        return False
    return True


def _wait_for_request(connection: socket.socket) -> bool:
    """Wait for a whole line or the end of the input; tell whether either came in time."""
    poll = select.poll()  # not select(), which knows descriptors up to 1,023 only
    poll.register(connection, select.POLLIN)
    end = time.monotonic() + REQUEST_SECONDS
    while (left := end - time.monotonic()) > 0:
        if not poll.poll(left * 1000):
            return False
        begun = connection.recv(_PEEK, socket.MSG_PEEK)
        if not begun or b"\n" in begun or len(begun) == _PEEK:
            return True
        time.sleep(0.05)  # half a line
    return False
