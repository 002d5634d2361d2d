"""Hold back Python's cyclic garbage collector where a pause would be felt."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def delayed_collection() -> Iterator[None]:
    """Let no cyclic collection start inside, unless another thread wants one.

    A recall makes thousands of small containers, none of them part of a cycle, that are gone when
    it ends.  Each few hundred of them would start a collection, which now and then walks through
    all that the host holds: a tenth of a recall's time, for nothing.
    """
    if not gc.isenabled():  # by the host's wish, or by another recall that enables it at its end
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
