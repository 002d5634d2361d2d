"""A connection over TCP that one thread reads and others write to, with TLS or without.

Python's own TLS socket must not be read and written by two threads at once (OpenSSL forbids it
for one connection), so the TLS state is kept in memory, behind a lock, and the socket carries its
bytes.
"""

from __future__ import annotations

import io
import select
import socket
import ssl
import struct
import time
from contextlib import suppress
from typing import IO, Any, Final, cast

from memtier_plugin.core.mutex import Mutex

SEND_SECONDS: Final = 10  # how long the other side may read nothing
FOREVER: Final = float("inf")
_CHUNK: Final = 65_536  # bytes


class Stream:
    """A connected socket; the TLS handshake is done when it is made.

    Args:
        context: of TLS; plain without.
        name: what the certificate of the other side must say, for a client.
        until: when the handshake must be over, by `time.monotonic`.

    Raises:
        OSError: no handshake, or not in time.
    """

    def __init__(
        self,
        connection: socket.socket,
        context: ssl.SSLContext | None = None,
        *,
        name: str | None = None,
        until: float = FOREVER,
    ) -> None:
        self._socket = connection
        connection.setblocking(True)
        timeout = struct.pack("ll", SEND_SECONDS, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._state = Mutex()  # of the TLS state
        self._order = Mutex()  # what is encrypted first is sent first
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if context is not None:
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_side=name is None, server_hostname=name
            )
            self._shake_hands(self._tls, until)

    def _shake_hands(self, tls: ssl.SSLObject, until: float) -> None:
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                if not (data := self._wait(until)):
                    raise ConnectionResetError("it ended during the TLS handshake") from None
                self._incoming.write(data)
            except ssl.SSLError:
                with suppress(OSError):
                    self._flush()  # the alert says why
                raise
            else:
                self._flush()
                return

    def receive(self, until: float = FOREVER) -> bytes:
        """Return what has come, at least a byte; nothing at the end of the input.

        Raises:
            TimeoutError: nothing came until then, by `time.monotonic`.
            OSError: the connection broke.
        """
        if self._tls is None:
            return self._wait(until)
        while True:
            try:
                with self._state:
                    return self._tls.read(_CHUNK)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                return b""
            if self._outgoing.pending:
                self._flush()  # an answer of TLS's own
            if not (data := self._wait(until)):
                return b""
            with self._state:
                self._incoming.write(data)

    def send(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            OSError: the connection broke, or the other side reads nothing.
        """
        if self._tls is None:
            with self._order:
                self._socket.sendall(data)
            return
        view = memoryview(data)
        with self._order:
            while view:
                with self._state:
                    view = view[self._tls.write(view) :]
                    encrypted = self._outgoing.read()
                self._socket.sendall(encrypted)

    def end(self) -> None:
        """End both directions; who reads sees the end of the input."""
        with suppress(OSError):  # not close(): a thread may be reading
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def reader(self) -> IO[bytes]:
        """Return what is received as a file; closing it closes the socket."""
        return io.BufferedReader(_Reader(self), _CHUNK)

    def writer(self) -> IO[bytes]:
        """Return a file that sends what is written to it at once."""
        return cast(IO[bytes], _Writer(self))

    def _wait(self, until: float) -> bytes:
        """Return bytes of the socket; nothing at its end."""
        left = None if until == FOREVER else max(0.0, until - time.monotonic()) * 1000
        if not self._poll.poll(left):
            raise TimeoutError("nothing came in time")
        return self._socket.recv(_CHUNK)

    def _flush(self) -> None:
        with self._order:
            with self._state:
                encrypted = self._outgoing.read()
            if encrypted:
                self._socket.sendall(encrypted)


class _File(io.RawIOBase):
    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def fileno(self) -> int:
        return self._stream.fileno()


class _Reader(_File):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        if not self._left:
            self._left = self._stream.receive()
        count = min(len(view), len(self._left))
        view[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

    _left = b""


class _Writer(_File):
    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._stream.send(data)
        return len(data)
