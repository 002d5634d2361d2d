"""The points at which the proofs of durability let a step fail, or the process die (`make faults`).

Every write, fsync, rename, truncation and removal that the promises rest on is an operation with a
name, such as ``append episodic``. Points without an operation (`pass_point`) are where a process
may die between two of them. In use nothing is injected: each costs one look at `injector`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Injector(Protocol):
    """Decides what fails; see `tests/faults/injection.py` of the sources."""

    def pass_point(self, name: str) -> None:
        """Pass a point between two operations."""

    def write(self, name: str, path: Path | None, put: Callable[[bytes], int], data: bytes) -> int:
        """Write bytes by ``put``, or a half of them; return the count."""

    def step(self, name: str, path: Path | None, do: Callable[[], _T]) -> _T:
        """Run an operation that happens or does not."""

    def index_vfs(self) -> str:
        """Return the name of the VFS by which SQLite writes the index."""


injector: Injector | None = None


def pass_point(name: str) -> None:
    """Mark a point between two operations, where a process may die or be slow."""
    if injector is not None:
        injector.pass_point(name)


def write_bytes(name: str, fd: int, data: bytes, path: Path | None = None) -> int:
    """Write as `os.write` does.

    Args:
        path: the file that is written, which then names the operation too.
    """
    if injector is None:
        return os.write(fd, data)
    return injector.write(name, path, lambda part: os.write(fd, part), data)


def run_step(
    name: str, path: Path | None, do: Callable[_P, _T], *given: _P.args, **more: _P.kwargs
) -> _T:
    """Run an atomic file operation (fsync, rename, unlink)."""
    if injector is None:
        return do(*given, **more)
    return injector.step(name, path, lambda: do(*given, **more))
