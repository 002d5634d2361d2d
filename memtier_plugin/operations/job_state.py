"""Record the state of a project's background jobs, and whether a daemon serves it.

The state is one small file per project, written by the process that runs the jobs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import LedgerWriteError
from memtier_plugin.core.files import OPEN_FLAGS, hold_lock, is_unlocked, write_private_file
from memtier_plugin.core.formats import from_iso, parse_json_text, to_iso

LOCK_NAME: Final = ".daemon.lock"  # held by the daemon of the project
STARTUP_GRACE: Final = timedelta(minutes=2)  # time for a started daemon to begin

_FILE: Final = "background.json"
_MAX_ERROR_CHARS: Final = 500
_SIZE: Final = 4096  # bytes of the padded file, which can be rewritten in place on a full disk


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """When a job last started, succeeded and failed, and is due next.

    ``failures`` counts the failures since the last success; ``waits`` is the reason why a job could
    not run although it has not failed.
    """

    started: str | None = None
    ok: str | None = None
    failed: str | None = None
    error: str | None = None
    failures: int = 0
    next: str | None = None
    waits: str | None = None

    @property
    def trouble(self) -> str | None:
        """The last error, unless the job has succeeded since."""
        return self.error if self.failures else None


@dataclass(frozen=True, slots=True)
class BackgroundState:
    """The jobs of a project, and whether a daemon serves it."""

    served: bool
    jobs: Mapping[str, JobState]
    requested: str | None = None  # when a host requested a daemon that has not begun yet

    def last(self) -> str | None:
        """Return when any job last succeeded."""
        return max((state.ok for state in self.jobs.values() if state.ok), default=None)

    def never_began(self, now: datetime) -> bool:
        """Return whether a daemon requested by a host has done nothing since."""
        return bool(
            self.requested and not self.served and now - from_iso(self.requested) > STARTUP_GRACE
        )

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "served": self.served,
            "asked": self.requested,
            "jobs": {name: asdict(state) for name, state in self.jobs.items()},
        }


def read_background(folder: Path) -> BackgroundState:
    """Read the state of the project in a folder; a missing or torn file is an empty state."""
    content = _load(folder / _FILE)
    jobs = {name: _parse_job(state) for name, state in content["jobs"].items()}
    return BackgroundState(_is_served(folder), jobs, content["asked"])


def note_start_request(folder: Path, now: datetime | None) -> None:
    """Record that a host has started a daemon, or (with None) that a daemon has begun.

    Raises:
        LedgerWriteError: the project's folder cannot be written.
    """
    requested = to_iso(now) if now else None
    if now or read_background(folder).requested:
        _change(folder, lambda content: {**content, "asked": requested})


def note_job(
    folder: Path,
    name: str,
    now: datetime,
    *,
    started: bool = False,
    error: str | None = None,
    waits: str | None = None,
    again: datetime | None = None,
) -> None:
    """Record that a job started, or how it ended, and when it is due ``again``.

    Raises:
        LedgerWriteError: the project's folder cannot be written.
    """

    def change(content: dict[str, Any]) -> dict[str, Any]:
        before = _parse_job(content["jobs"].get(name))
        if started:
            after = replace(before, started=to_iso(now))
        elif waits is not None:
            after = replace(before, waits=waits[:_MAX_ERROR_CHARS], failures=0)
        elif error is None:
            after = replace(before, ok=to_iso(now), failures=0, waits=None)
        else:
            failures = before.failures + 1
            text = error[:_MAX_ERROR_CHARS]
            after = replace(before, failed=to_iso(now), error=text, failures=failures, waits=None)
        if again is not None:
            after = replace(after, next=to_iso(again))
        return {**content, "jobs": {**content["jobs"], name: asdict(after)}}

    _change(folder, change)


def _change(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = folder / _FILE
    with hold_lock(folder / ".background.lock", 1.0):
        text = json.dumps(change(_load(path)), indent=1)
        text += " " * (_SIZE - len(text)) + "\n"
        try:
            write_private_file(path, text)
        except LedgerWriteError:
            if not _overwrite(path, text):
                raise


def _overwrite(path: Path, text: str) -> bool:
    """Overwrite the file's own blocks, which works on a full disk."""
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
    """Return the file's content, or the usable part of a torn or foreign one."""
    try:
        content = parse_json_text(path.read_text("utf-8"))
    except (OSError, ValueError):
        content = None
    content = content if isinstance(content, dict) else {}
    jobs, requested = content.get("jobs"), content.get("asked")
    return {
        "jobs": jobs if isinstance(jobs, dict) else {},
        "asked": requested if isinstance(requested, str) else None,
    }


def _parse_job(record: Any) -> JobState:
    if not isinstance(record, dict):
        return JobState()
    texts = {
        name: record[name]
        for name in ("started", "ok", "failed", "error", "next", "waits")
        if isinstance(record.get(name), str)
    }
    failures = record.get("failures")
    return JobState(**texts, failures=failures if isinstance(failures, int) else 0)


def _is_served(folder: Path) -> bool:
    """Return whether a process holds the project's lock now."""
    try:
        fd = os.open(folder / LOCK_NAME, os.O_RDWR | OPEN_FLAGS)
    except OSError:
        return False
    try:
        # By a shared lock: two readers are no daemon to each other, and a starting daemon retries.
        return not is_unlocked(fd)
    finally:
        os.close(fd)
