"""Lines out of a stream of bytes, within limits of length and of time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from memtier_plugin.core.stream import FOREVER

IDLE_SECONDS: Final = 900.0  # without a request; the client connects again for its next
REQUEST_SECONDS: Final = 10.0  # for a request, and one more for each `BYTES_A_SECOND`
BYTES_A_SECOND: Final = 100_000

_log = logging.getLogger("memtier")


class LineReader:
    """Reads lines as a file does, and ends with the first that is too long or too slow.

    Args:
        receive: returns the bytes that come until a time by `time.monotonic`, none at the end.
            Raises TimeoutError, or another OSError.
    """

    def __init__(
        self,
        receive: Callable[[float], bytes],
        *,
        idle: float = IDLE_SECONDS,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._receive = receive
        self._idle, self._seconds = idle, seconds
        self._buffer = bytearray()
        self._over = False

    def readline(self, limit: int, until: float = FOREVER) -> bytes:
        """Return the next line with its end, or the first ``limit`` bytes of one that is longer.

        Args:
            until: when it must be here, by `time.monotonic`, if that is sooner.

        Returns nothing at the end: after a line that was too long or too slow, and where the input
        ends, even within a line, which may lack its end.
        """
        searched, started = 0, time.monotonic()
        while not self._over:
            if (end := self._buffer.find(b"\n", searched, limit)) >= 0:
                return self._take(end + 1)
            if len(self._buffer) >= limit:
                self._over = True
                return self._take(limit)
            searched = len(self._buffer)
            wait = self._seconds + searched / BYTES_A_SECOND if searched else self._idle
            try:
                data = self._receive(min(until, started + wait))
            except TimeoutError:
                _log.info("ended a connection that sent no whole request in time")
                data = b""
            if not searched:
                started = time.monotonic()
            self._over = not data
            self._buffer += data
        return b""

    def _take(self, count: int) -> bytes:
        line = bytes(self._buffer[:count])
        del self._buffer[:count]
        return line
