"""Injection points where the durability tests make a step fail or the process die (`make faults`).

Every write, fsync, rename, truncation and removal that durability depends on is a named operation,
such as ``append episodic``. `pass_point` marks the places between two operations where a process
may die. In production nothing is injected: each point costs one look at `injector`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Injector(Protocol):
    """Decides which operations fail; implemented in `tests/faults/injection.py`."""

    def pass_point(self, name: str) -> None:
        """Pass a point between two operations."""

    def write(self, name: str, path: Path | None, put: Callable[[bytes], int], data: bytes) -> int:
        """Write all or half of the bytes by ``put``; return how many were written."""

    def step(self, name: str, path: Path | None, do: Callable[[], _T]) -> _T:
        """Run an operation, or fail without running it."""

    def index_vfs(self) -> str:
        """Return the name of the VFS with which SQLite writes the index."""


injector: Injector | None = None


def pass_point(name: str) -> None:
    """Mark a point between two operations where a process may die or stall."""
    if injector is not None:
        injector.pass_point(name)


def write_bytes(name: str, fd: int, data: bytes, path: Path | None = None) -> int:
    """Write as `os.write` does.

    Args:
        path: the file written, if the operation's name is to include it.
    """
    if injector is None:
        return os.write(fd, data)
    return injector.write(name, path, lambda part: os.write(fd, part), data)


def run_step(
    name: str, path: Path | None, do: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Run an atomic file operation (fsync, rename, unlink)."""
    if injector is None:
        return do(*args, **kwargs)
    return injector.step(name, path, lambda: do(*args, **kwargs))
