"""How long a caller waits for the server, by a deadline that all calls within it share.

Writing needs no server: what it does not take in time waits in the spool.  So whoever holds up a
run sets a short deadline, whatever is called below; the daemon, which holds up nobody, sets none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


@contextmanager
def answer_within(seconds: float) -> Iterator[None]:
    """Give all calls to a server in here, together, so many seconds; an outer limit holds too."""
    before, until = _deadline.get(), time.monotonic() + seconds
    token = _deadline.set(until if before is None else min(before, until))
    try:
        yield
    finally:
        _deadline.reset(token)


def seconds_left(default: float) -> float:
    """Return how long a call may take, at most ``default`` seconds; 0.0 when the time is over."""
    until = _deadline.get()
    return default if until is None else max(0.0, min(default, until - time.monotonic()))
