"""Dying on purpose, for the proofs: a process ends by SIGKILL at the point that it is told.

``MEMTIER_FAULT`` names the point, and which time it is passed (``append semantic:2``); without it
nothing here does anything.  A point is reached before and after each write that must survive a
crash; one that begins with ``part of`` lets half of the bytes out first.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Final

VARIABLE: Final = "MEMTIER_FAULT"

_passed: Counter[str] = Counter()


def point(name: str) -> None:
    """End this process here if that is what it is told."""
    if VARIABLE in os.environ and _is_here(name):
        os.kill(os.getpid(), signal.SIGKILL)


def write(name: str, fd: int, data: bytes) -> int:
    """Write as `os.write` does; if told so, only a half, and end."""
    if VARIABLE in os.environ and _is_here(f"part of {name}"):
        os.write(fd, data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return os.write(fd, data)


def _is_here(name: str) -> bool:
    told, _, time = os.environ[VARIABLE].partition(":")
    if told != name:
        return False
    _passed[name] += 1
    return _passed[name] == int(time or 1)
