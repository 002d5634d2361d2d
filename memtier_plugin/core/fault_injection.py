"""Inject faults into file operations, for `make faults`.

Every write, fsync, rename, truncation and removal that a guarantee depends on is a named operation,
such as ``append episodic``, with up to three points: ``before`` it, ``part of`` it (half of the
bytes are written), ``after`` it.  `pass_point` marks points between two operations.
``MEMTIER_FAULT`` is ``POINT[:TIME][=KIND]``, or several with ``;``:

    after append episodic                  die after the first append to an episodic ledger
    append episodic:2=enospc               the second one finds the disk full (``before`` it)
    part of write project.yaml:3+=eio      from the third time on, after half of the bytes

KIND is one of `KINDS`, ``kill`` by default.  ``MEMTIER_FAULT_LOG`` names a file that lists every
point passed with its possible kinds, for `make faults`.  With neither set, an operation costs one
lookup of a module variable.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from memtier_plugin.core.concurrency import Mutex

VARIABLE: Final = "MEMTIER_FAULT"
LOG_VARIABLE: Final = "MEMTIER_FAULT_LOG"
VARIABLES: Final = (VARIABLE, LOG_VARIABLE)
KINDS: Final = ("kill", "short", "enospc", "eio", "delay")
DELAY: Final = 0.3  # seconds
FIRED: Final = "!"  # what a line of the log begins with when the fault happened

_P = ParamSpec("_P")
_T = TypeVar("_T")
_ERRORS: Final = {"enospc": errno.ENOSPC, "eio": errno.EIO}
_BETWEEN: Final = ("kill", "delay")
# The kinds of faults possible at each moment of an operation. A full disk is reported before
# anything is written; a failing disk reports an error after everything was.
_MOMENTS: Final = {
    "before": ("kill", "enospc", "eio", "delay"),
    "part of": ("kill", "short", "enospc", "eio"),
    "after": ("kill", "eio", "delay"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One armed fault."""

    point: str
    occurrence: int = 1
    repeating: bool = False  # from that time on, not only then
    kind: str = "kill"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read one of those that ``MEMTIER_FAULT`` names.

        Raises:
            ValueError: it has no time or kind that there is.
        """
        where, _, kind = text.strip().partition("=")
        name, _, when = where.partition(":")
        kind = kind or "kill"
        if kind not in KINDS:
            raise ValueError(f"{VARIABLE}={text!r}: the kind is one of {', '.join(KINDS)}")
        if when and not when.removesuffix("+").isdecimal():
            raise ValueError(f"{VARIABLE}={text!r}: the time is a number, or a number and +")
        moment, name = _split_moment(name)
        if moment == "part of" and " " not in name:
            name = f"append {name}"  # a ledger alone
        if not moment:
            moment = "part of" if kind == "short" else "before"
        number = int(when.removesuffix("+") or 1)
        return cls(f"{moment} {name}", number, when.endswith("+"), kind)


@dataclass(slots=True)
class FaultPlan:
    """The faults armed in a process, and the file that lists the points it passes."""

    faults: Sequence[Fault] = ()
    log: str = ""
    passed: Counter[str] = field(default_factory=Counter)
    lock: Mutex = field(default_factory=Mutex)

    def match(self, point: str, kinds: tuple[str, ...]) -> str | None:
        """Note that a point is passed, and return what is to happen there, if anything is."""
        with self.lock:
            self.passed[point] += 1
            number = self.passed[point]
        if self.log:
            self._write(f"{point}\t{' '.join(kinds)}")
        for fault in self.faults:
            now = number == fault.occurrence or (fault.repeating and number > fault.occurrence)
            if fault.point == point and fault.kind in kinds and now:
                if self.log:
                    self._write(f"{FIRED}{point}:{number}={fault.kind}")
                return fault.kind
        return None

    def _write(self, line: str) -> None:
        fd = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line.encode() + b"\n")
        finally:
            os.close(fd)


_plan: FaultPlan | None = None


def arm(specification: str = "", log: str = "") -> None:
    """Arm faults in this process and its forks; without arguments, disarm them.

    Raises:
        ValueError: as `Fault.parse`.
    """
    global _plan
    faults = [Fault.parse(text) for text in specification.split(";") if text.strip()]
    _plan = FaultPlan(faults, log) if faults or log else None


def is_armed() -> bool:
    """Return whether faults are armed or points logged."""
    return _plan is not None


def pass_point(name: str) -> None:
    """Mark a point between two operations, where a process may die or be slow."""
    if _plan is not None:
        _inject(name, _BETWEEN)


def write_bytes(name: str, fd: int, data: bytes, path: Path | None = None) -> int:
    """Write as `os.write` does.

    Args:
        path: the file that is written, which then names the operation too.
    """
    if _plan is None:
        return os.write(fd, data)
    return write_through(name, path, lambda chunk: os.write(fd, chunk), data)


def write_through(name: str, path: Path | None, put: Callable[[bytes], int], data: bytes) -> int:
    """Write bytes by ``put``, subject to faults; return the count written, or a half of it."""
    name = _operation_name(name, path)
    _inject(f"before {name}", _MOMENTS["before"])
    half = data[: len(data) // 2]
    if _inject(f"part of {name}", _MOMENTS["part of"], lambda: put(half)) == "short":
        return len(half)
    written = put(data)
    _inject(f"after {name}", _MOMENTS["after"])
    return written


def run_step(
    name: str, path: Path | None, do: Callable[_P, _T], *given: _P.args, **more: _P.kwargs
) -> _T:
    """Run an atomic file operation (fsync, rename, unlink), subject to faults."""
    if _plan is None:
        return do(*given, **more)
    name = _operation_name(name, path)
    _inject(f"before {name}", _MOMENTS["before"])
    done = do(*given, **more)
    _inject(f"after {name}", _MOMENTS["after"])
    return done


def _inject(
    point: str, kinds: tuple[str, ...], first: Callable[[], object] = lambda: None
) -> str | None:
    """Trigger the fault armed for a point, if any, after ``first``; return its kind."""
    kind = _plan.match(point, kinds) if _plan else None
    if kind is None:
        return None
    first()
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "delay":
        time.sleep(DELAY)
    if kind in _ERRORS:
        raise OSError(_ERRORS[kind], f"{os.strerror(_ERRORS[kind])} ({VARIABLE})")
    return kind


def _split_moment(name: str) -> tuple[str, str]:
    for moment in _MOMENTS:
        if name.startswith(f"{moment} "):
            return moment, name.removeprefix(f"{moment} ")
    return "", name


def _operation_name(name: str, path: Path | None) -> str:
    """Return an operation's name with what the file is: the same for every agent and day."""
    if path is None:
        return name
    parent, above = path.parent.name, path.parent.parent.name
    label = path.name.strip(".")
    if path.suffix == ".jsonl":
        label = above if above in ("episodic", "journal") and parent != "_project" else parent
    elif parent in ("hooks", "queue"):  # a file for each agent, or for each run that waits
        label = "hook notes" if parent == "hooks" else "queue"
    return f"{name} {label}"


arm(os.environ.get(VARIABLE, ""), os.environ.get(LOG_VARIABLE, ""))
