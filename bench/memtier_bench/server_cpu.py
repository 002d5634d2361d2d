"""The CPU time of a local PostgreSQL server, from /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


def leader_of(backend: int | None) -> int | None:
    """Return the parent process of a server process; None if it does not run here."""
    if backend is None:
        return None
    try:
        if (_PROC / str(backend) / "comm").read_text().strip() != "postgres":
            return None
        return int(_fields(backend)[1])
    except OSError:
        return None


def cpu_seconds(leader: int | None) -> float | None:
    """Return the CPU seconds of a server's processes, including exited ones; None for no server.

    The precision is a tick of the kernel's clock per process, usually 10 ms.
    """
    if leader is None:
        return None
    ticks = sum(map(int, _fields(leader)[11:15]))  # its own, and of children that it waited for
    for child in (_PROC / str(leader) / "task" / str(leader) / "children").read_text().split():
        try:
            ticks += sum(map(int, _fields(int(child))[11:13]))
        except OSError:  # it has exited meanwhile
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def _fields(process: int) -> list[str]:
    """Return a process's fields from its state on (proc(5): the third)."""
    return (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
