"""Sortable ids (ULID)."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

ID_LENGTH: Final = 26  # characters of an id
MIN_ID_END: Final = 6  # of its last characters, by which it may be named


def new_id() -> str:
    """Return a ULID: 26 characters, sorted by time, and by order of making within a process."""
    from ulid import ULID  # here, so that importing the package loads no third party

    return str(ULID())


def _renew_after_fork() -> None:
    """Give a forked child its own generator: its parent's may be locked, and counts on from one."""
    library: Any = sys.modules.get("ulid")
    if library is not None and hasattr(library, "default_generator"):
        library.default_generator = library.ULIDGenerator()


os.register_at_fork(after_in_child=_renew_after_fork)
