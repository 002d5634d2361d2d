"""The processor time that a request may still take, and whether its answer is still wanted.

Checked where work can be dropped without harm: before a text is read, and before a search.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memtier_plugin.core.errors import Exhausted


class _Allowance(threading.local):
    until: float | None = None  # processor seconds of this thread
    is_wanted: Callable[[], bool] | None = None


_allowance = _Allowance()


@contextmanager
def allow(seconds: float, is_wanted: Callable[[], bool] | None = None) -> Iterator[None]:
    """Bound the work of this thread within the block; see `require`."""
    _allowance.until, _allowance.is_wanted = time.thread_time() + seconds, is_wanted
    try:
        yield
    finally:
        _allowance.until = _allowance.is_wanted = None


def require() -> None:
    """Raise unless the request may take more time and its answer is still wanted.

    Raises:
        Exhausted: the request is over.
    """
    if _allowance.until is not None and time.thread_time() > _allowance.until:
        raise Exhausted("the request took too much processor time: send less text at a time")
    if _allowance.is_wanted is not None and not _allowance.is_wanted():
        raise Exhausted("nobody waits for the answer any more")
