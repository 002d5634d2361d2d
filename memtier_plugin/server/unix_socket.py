"""The Unix socket of `memtier serve`: who may speak there, one thread a connection."""

from __future__ import annotations

import logging
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import IO, Final

from memtier_plugin.core.resident_socket import Claim
from memtier_plugin.server.listener import Listener

MAX_CONNECTIONS: Final = 256
SEND_SECONDS: Final = 10  # how long a client may read nothing before its connection ends
REQUEST_SECONDS: Final = 10.0  # how long one may take for its first line
MAX_SILENT: Final = 32  # connections without a line
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
    """Hands every connection of the same user on a home's socket to ``talk``."""

    def __init__(self, claim: Claim, talk: ConnectionHandler) -> None:
        self.path = claim.path
        self._claim = claim
        self._talk = talk
        claim.note(ready=True)  # before the first answer: who has one may count on it
        self._listener = Listener(
            claim.listening,
            self._attend,
            most=MAX_CONNECTIONS,
            most_silent=MAX_SILENT,
            is_welcome=_is_own,
        )

    def count_clients(self) -> int:
        """Return how many connections are open."""
        return self._listener.count()

    def close(self) -> None:
        """Refuse new connections, answer running calls, and remove the socket."""
        self._listener.close()
        self._claim.end()

    def _attend(self, connection: socket.socket, heard: Callable[[], None]) -> None:
        timeout = struct.pack("ll", SEND_SECONDS, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        with connection.makefile("rb") as reader:
            asked = _wait_for_request(connection)
            heard()
            if asked:
                self._talk(reader, connection.sendall)
            else:
                _log.warning(
                    "closed a connection that sent no request within %g s", REQUEST_SECONDS
                )


def _is_own(connection: socket.socket) -> bool:
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
        time.sleep(0.05)  # a part of a line
    return False
