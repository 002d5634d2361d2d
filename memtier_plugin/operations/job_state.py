"""What is known of a project's background: who serves it, and how each of its jobs went.

One small file a project, written by whichever process does the jobs, so that any other can tell.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import LedgerWriteError
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import OPEN_FLAGS, write_private_file
from memtier_plugin.core.times import from_iso, to_iso

LOCK_NAME: Final = ".daemon.lock"  # held by whoever serves the project
STARTUP_GRACE: Final = timedelta(
    minutes=2
)  # what was started longer ago and did nothing has failed

_FILE: Final = "background.json"
_LONGEST: Final = 500  # characters of an error
_SIZE: Final = 4096  # bytes that the file is given from the beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """How one job went: when it last began, ended well and failed, and when it is due again.

    ``failures`` counts those since it last ended well.
    """

    started: str | None = None
    ok: str | None = None
    failed: str | None = None
    error: str | None = None
    failures: int = 0
    next: str | None = None

    @property
    def trouble(self) -> str | None:
        """Why it does not work now, if it does not."""
        return self.error if self.failures else None


@dataclass(frozen=True, slots=True)
class BackgroundState:
    """All that is known of a project's background."""

    served: bool
    jobs: Mapping[str, JobState]
    requested: str | None = None  # when a host last started a daemon that has not begun

    def last(self) -> str | None:
        """Return when a job last ended well."""
        return max((state.ok for state in self.jobs.values() if state.ok), default=None)

    def never_began(self, now: datetime) -> bool:
        """Tell whether a daemon that a host started has done nothing since."""
        return bool(
            self.requested and not self.served and now - from_iso(self.requested) > STARTUP_GRACE
        )

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {
            "served": self.served,
            "asked": self.requested,
            "jobs": {name: asdict(state) for name, state in self.jobs.items()},
        }


def read_background(folder: Path) -> BackgroundState:
    """Return what is known of the background of the project in a folder; never raises."""
    seen = _load(folder / _FILE)
    jobs = {name: _state(state) for name, state in seen["jobs"].items()}
    return BackgroundState(_served(folder), jobs, seen["asked"])


def note_start_request(folder: Path, now: datetime | None) -> None:
    """Keep that a host has started a daemon (or, with None, that a daemon has begun).

    Raises:
        LedgerWriteError: the project's folder cannot be written.
    """
    asked = to_iso(now) if now else None
    if now or read_background(folder).requested:
        _change(folder, lambda seen: {**seen, "asked": asked})


def note_job(
    folder: Path,
    name: str,
    now: datetime,
    *,
    started: bool = False,
    error: str | None = None,
    again: datetime | None = None,
) -> None:
    """Keep that a job has begun (``started``), else how it ended, and when it is due ``again``.

    Raises:
        LedgerWriteError: the project's folder cannot be written.
    """

    def changed(seen: dict[str, Any]) -> dict[str, Any]:
        before = _state(seen["jobs"].get(name))
        if started:
            after = replace(before, started=to_iso(now))
        elif error is None:
            after = replace(before, ok=to_iso(now), failures=0)
        else:
            failures = before.failures + 1
            text = error[:_LONGEST]
            after = replace(before, failed=to_iso(now), error=text, failures=failures)
        if again is not None:
            after = replace(after, next=to_iso(again))
        return {**seen, "jobs": {**seen["jobs"], name: asdict(after)}}

    _change(folder, changed)


def _change(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = folder / _FILE
    with hold_lock(folder / ".background.lock", 1.0):
        text = json.dumps(change(_load(path)), indent=1)
        text += " " * (_SIZE - len(text)) + "\n"
        try:
            write_private_file(path, text)
        except LedgerWriteError:
            if not _over(path, text):
                raise


def _over(path: Path, text: str) -> bool:
    """Write into the place that the file has: on a full disk that works where nothing else does."""
    try:
        fd = os.open(path, os.O_WRONLY | OPEN_FLAGS)
    except OSError:
        return False
    try:
        data = text.encode("utf-8")
        fits = os.fstat(fd).st_size == len(data)
        return fits and os.pwrite(fd, data, 0) == len(data)
    except OSError:
        return False
    finally:
        os.close(fd)


def _load(path: Path) -> dict[str, Any]:
    """Return the file's content, or of what is torn or somebody else's as much as can be used."""
    try:
        seen = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        seen = None
    seen = seen if isinstance(seen, dict) else {}
    jobs, asked = seen.get("jobs"), seen.get("asked")
    return {
        "jobs": jobs if isinstance(jobs, dict) else {},
        "asked": asked if isinstance(asked, str) else None,
    }


def _state(known: Any) -> JobState:
    if not isinstance(known, dict):
        return JobState()
    texts = {
        name: known[name]
        for name in ("started", "ok", "failed", "error", "next")
        if isinstance(known.get(name), str)
    }
    failures = known.get("failures")
    return JobState(**texts, failures=failures if isinstance(failures, int) else 0)


def _served(folder: Path) -> bool:
    """Tell whether some process holds the project's lock now."""
    try:
        fd = os.open(folder / LOCK_NAME, os.O_RDWR | OPEN_FLAGS)
    except OSError:
        return False
    try:
        # Shared: two that look do not see each other, and one that becomes it tries again.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
