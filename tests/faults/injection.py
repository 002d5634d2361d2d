"""Inject faults into the file operations of MemTier and of its SQLite, for `make faults`.

An operation (`memtier_plugin.core.files`) passes up to three points: ``before`` it,
``part of`` it (half of the bytes are out), ``after`` it.  A forked child (`tests.forks`) is armed
by ``TEST_MEMTIER_FAULT``, which is ``POINT[:TIME][=KIND]``, or several with ``;``:

    after append episodic                  die after the first append to an episodic ledger
    append episodic:2=enospc               the second one finds the disk full (``before`` it)
    part of write project.yaml:3+=eio      from the third time on, after half of the bytes

KIND is one of `KINDS`, ``kill`` by default.  With ``TEST_MEMTIER_FAULT_LOG`` every point
passed is written to that file, with the kinds that it takes: how `make faults` finds out what there
is.
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
from types import ModuleType
from typing import Any, Final, TypeVar

from memtier_plugin.core import files
from memtier_plugin.core.concurrency import Mutex

VARIABLE: Final = "TEST_MEMTIER_FAULT"
LOG_VARIABLE: Final = "TEST_MEMTIER_FAULT_LOG"
KINDS: Final = ("kill", "short", "enospc", "eio", "delay")
DELAY: Final = 0.3  # seconds
FIRED: Final = "!"  # what a line of the log begins with when the fault happened

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
        """Read one of those that `VARIABLE` names.

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


def arm(specification: str = "", log: str = "") -> None:
    """Arm faults in this process and its forks; without arguments, disarm them.

    Raises:
        ValueError: as `Fault.parse`.
    """
    faults = [Fault.parse(text) for text in specification.split(";") if text.strip()]
    armed = Faults(FaultPlan(faults, log)) if faults or log else None
    files.injector = armed


def arm_from_environment() -> None:
    """Do what the variables of this process say."""
    arm(os.environ.get(VARIABLE, ""), os.environ.get(LOG_VARIABLE, ""))


class Faults:
    """Lets operations fail by a plan."""

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan

    def pass_point(self, name: str) -> None:
        self._inject(name, _BETWEEN)

    def write(self, name: str, path: Path | None, put: Callable[[bytes], int], data: bytes) -> int:
        name = _operation_name(name, path)
        self._inject(f"before {name}", _MOMENTS["before"])
        half = data[: len(data) // 2]
        if self._inject(f"part of {name}", _MOMENTS["part of"], lambda: put(half)) == "short":
            return len(half)
        written = put(data)
        self._inject(f"after {name}", _MOMENTS["after"])
        return written

    def step(self, name: str, path: Path | None, do: Callable[[], _T]) -> _T:
        name = _operation_name(name, path)
        self._inject(f"before {name}", _MOMENTS["before"])
        done = do()
        self._inject(f"after {name}", _MOMENTS["after"])
        return done

    def index_vfs(self) -> str:
        import apsw

        if apsw not in _registered:  # a forked child has a SQLite of its own
            _registered[apsw] = _make(apsw)
        return _FAULTY_NAME

    def _inject(
        self, point: str, kinds: tuple[str, ...], first: Callable[[], object] = lambda: None
    ) -> str | None:
        """Trigger the fault armed for a point, if any, after ``first``; return its kind."""
        kind = self._plan.match(point, kinds)
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


# -- Inject faults into SQLite's writes to the index through a custom VFS

_FAULTY_NAME: Final = "memtier-faults"
# Of each SQLite of this process, the VFS: it stays registered as long as a reference exists.
_registered: dict[ModuleType, object] = {}


def _make(apsw: Any) -> object:
    def sqlite_error(error: OSError) -> Exception:
        full = error.errno == errno.ENOSPC
        return (apsw.FullError if full else apsw.IOError)(str(error))  # type: ignore[no-any-return]

    def step(name: str, of: str, do: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return files.run_step(f"{name} {of}", None, do, *arguments)
        except OSError as error:
            raise sqlite_error(error) from error

    class File(apsw.VFSFile):  # type: ignore[misc]
        def __init__(self, name: Any, flags: list[int]) -> None:
            self.description = _describe(name if isinstance(name, str | None) else name.filename())
            super().__init__("", name, flags)

        def xWrite(self, data: bytes, offset: int) -> None:
            def put(part: bytes) -> int:
                super(File, self).xWrite(part, offset)
                return len(part)

            try:
                name, faults = f"write {self.description}", files.injector
                written = faults.write(name, None, put, data) if faults else put(data)
                if written != len(data):  # SQLite's own VFS reports a short write this way
                    raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes fitted")
            except OSError as error:
                raise sqlite_error(error) from error

        def xSync(self, flags: int) -> None:
            step("fsync", self.description, super().xSync, flags)

        def xTruncate(self, size: int) -> None:
            step("truncate", self.description, super().xTruncate, size)

    class FileSystem(apsw.VFS):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(_FAULTY_NAME, "")

        def xOpen(self, name: Any, flags: list[int]) -> object:
            return File(name, flags)

        def xDelete(self, name: str, sync: bool) -> None:
            step("unlink", _describe(name), super().xDelete, name, sync)

    return FileSystem()


def _describe(path: str | None) -> str:
    """Describe a file of SQLite: the index, one being built, or a temporary file."""
    if path is None:
        return "temporary"
    stem, _, suffix = Path(path).name.partition(".sqlite3")
    return f"{'new index' if stem.endswith('new') else 'index'}{suffix}"
