"""A network that fails on demand: a TCP proxy in front of a server."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Final, Literal

Mode = Literal["open", "cut", "drops", "slow", "halves", "black", "no answers", "no questions"]
_HELD: Final[dict[str, tuple[str, ...]]] = {  # the directions in which nothing gets through
    "black": ("up", "down"),
    "no answers": ("down",),
    "no questions": ("up",),
}


class Proxy:
    """Pass connections on to a port of this machine, as ``mode`` says, until it is closed.

    Modes: `cut` resets what is open and refuses what comes; `drops` resets every twentieth
    connection's message; `slow` takes 0.2 s a message; `halves` passes half a message and then
    nothing more of that connection, ever; `black` and the two of one direction hold everything
    back without a word, and let it through when the mode changes.
    """

    def __init__(self, target: int, seed: int = 1) -> None:
        self.target = target
        self.mode: Mode = "open"
        self._draw = random.Random(seed)
        self._open: set[socket.socket] = set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def turn(self, mode: Mode) -> None:
        """Change what the network does."""
        self.mode = mode
        if mode == "cut":
            for line in [*self._open]:
                _reset(line)

    def close(self) -> None:
        """Refuse and end all connections."""
        _close(self._server)
        for line in [*self._open]:
            _reset(line)

    def _accept(self) -> None:
        while True:
            try:
                client = self._server.accept()[0]
            except OSError:
                return
            if self.mode == "cut":
                _reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                _reset(client)
                continue
            self._open |= {client, server}
            for pump in ((client, server, "up"), (server, client, "down")):
                threading.Thread(target=self._pump, args=pump, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        stuck = False
        with suppress(OSError):
            while data := source.recv(65536):
                while direction in _HELD.get(self.mode, ()) and sink in self._open:
                    time.sleep(0.01)
                if self.mode == "slow":
                    time.sleep(0.2)
                if self.mode == "drops" and self._draw.random() < 0.05:
                    break
                if self.mode == "halves" and not stuck:
                    sink.sendall(data[: len(data) // 2])
                    stuck = True
                if not stuck:
                    sink.sendall(data)
        for line in (source, sink):
            self._open.discard(line)
            _reset(line)


def _reset(line: socket.socket) -> None:
    with suppress(OSError):
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    _close(line)


def _close(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
    line.close()
