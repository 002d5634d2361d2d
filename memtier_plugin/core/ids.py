"""Sortable ids (ULID)."""

from __future__ import annotations


def new_id() -> str:
    """Return a ULID: 26 characters, sorted by time, and by order of making within a process."""
    from ulid import ULID  # here, so that importing the package loads no third party

    return str(ULID())
