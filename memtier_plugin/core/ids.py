"""Sortable ids (ULID)."""

from __future__ import annotations

from typing import Final

ID_LENGTH: Final = 26  # characters of an id
MIN_ID_END: Final = 6  # of its last characters, by which it may be named


def new_id() -> str:
    """Return a ULID: 26 characters, sorted by time, and by order of making within a process."""
    from ulid import ULID  # here, so that importing the package loads no third party

    return str(ULID())
