"""Listen on a port of this machine alone, for what is served over HTTP."""

from __future__ import annotations

import socket
from typing import Final

from memtier_plugin.core.errors import Unsupported

LOOPBACK: Final = "127.0.0.1"


def listen_on_loopback(port: int) -> socket.socket:
    """Return a socket that listens already, so that its address can be announced.

    Args:
        port: 0 for any that is free.

    Raises:
        Unsupported: the port cannot be opened.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise Unsupported(f"port {port} of {LOOPBACK} cannot be opened: {error}") from error
    return listener
