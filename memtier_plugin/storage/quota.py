"""Measure a project on disk, and refuse records beyond its limits.

The sizes are measured at most once a minute by each process, and what it writes is added meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import LimitReached
from memtier_plugin.core.paths import LEDGERS
from memtier_plugin.core.settings.schema import Limits

NEAR_SHARE: Final = 0.8  # of a limit, from where on `status` warns
MB: Final = 1_000_000
_AGAIN: Final = 60.0  # seconds between two looks at the disk


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes on disk by tier, and of the entries of a day."""

    tiers: dict[str, int] = field(default_factory=dict)
    index: int = 0
    files: int = 0
    today: int = 0

    @property
    def total(self) -> int:
        """Everything that the project has, its index included."""
        return sum(self.tiers.values()) + self.index

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, all in bytes."""
        return {
            **self.tiers, "index": self.index, "total": self.total, "today": self.today,
            "files": self.files,
        }  # fmt: skip


def measure_usage(folder: Path, index: Path, now: datetime) -> DiskUsage:
    """Return what a project takes; ``index`` is where its index is."""
    day = f"{now.astimezone(UTC):%Y-%m-%d}.jsonl"
    tiers, files, today = dict.fromkeys(LEDGERS, 0), 0, 0
    for kind in LEDGERS:
        for name, size in _sizes(folder / kind):
            tiers[kind] += size
            files += 1
            if kind == "episodic" and name == day:
                today += size
    indexes = sum(size for name, size in _sizes(index.parent) if name.startswith("index."))
    return DiskUsage(tiers, indexes, files, today)


def _sizes(folder: Path, depth: int = 1) -> Iterator[tuple[str, int]]:
    """Yield the names and sizes of the files of a folder and those in it."""
    try:
        found = list(os.scandir(folder))
    except OSError:
        return
    for one in found:
        try:
            if one.is_file(follow_symlinks=False):
                yield one.name, one.stat(follow_symlinks=False).st_size
            elif depth and one.is_dir(follow_symlinks=False):
                yield from _sizes(Path(one.path), depth - 1)
        except OSError:
            continue  # gone meanwhile


def quota_warnings(usage: DiskUsage, limits: Limits) -> tuple[list[str], list[str]]:
    """Return which limits are reached, and which are near."""
    reached, near = [], []
    for name, used, most, until in _limits(usage, limits):
        if not most or used < NEAR_SHARE * most:
            continue
        told = f"{format_bytes(used)} of {format_bytes(most)} (limits.{name})"
        if used >= most:
            reached.append(f"nothing more is recorded {until}: {told}")
        else:
            near.append(f"{told}: at the limit nothing more is recorded {until}")
    return reached, near


def _limits(usage: DiskUsage, limits: Limits) -> list[tuple[str, int, float, str]]:
    return [
        ("day_mb", usage.today, limits.day_mb * MB, "until tomorrow (UTC)"),
        ("project_mb", usage.total, limits.project_mb * MB, "until there is room or more allowed"),
    ]


def format_bytes(size: float) -> str:
    """Return a number of bytes as people say it."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


def describe_usage(disk: Mapping[str, Any]) -> str:
    """Say in a line what a project takes (`DiskUsage.to_json`), by tier."""
    parts = [f"{name} {format_bytes(disk[name])}" for name in (*LEDGERS, "index") if disk.get(name)]
    return f"{format_bytes(disk.get('total', 0))} ({', '.join(parts) or 'nothing'})"


class Quota:
    """What may still be recorded in one project, as far as this process knows."""

    def __init__(self, folder: Path, index: Path, limits: Limits) -> None:
        self._folder, self._index, self._limits = folder, index, limits
        self._looked = -_AGAIN
        self._day = ""
        self._usage = DiskUsage()
        self._added = 0

    def check(self, size: int, now: datetime) -> None:
        """Refuse what would go beyond a limit.

        Raises:
            LimitReached: with the limit, and what can be done.
        """
        day = f"{now.astimezone(UTC):%Y-%m-%d}"
        if time.monotonic() - self._looked > _AGAIN or day != self._day:
            self._usage = measure_usage(self._folder, self._index, now)
            self._looked, self._day, self._added = time.monotonic(), day, 0
        for name, used, most, until in _limits(self._usage, self._limits):
            if most and used + self._added + size > most:
                raise LimitReached(
                    f"{format_bytes(size)} were not recorded: "
                    f"the project has {format_bytes(used + self._added)} "
                    f"of {format_bytes(most)} (limits.{name}); nothing is recorded {until}"
                )

    def add(self, size: int) -> None:
        """Count what was just written."""
        self._added += size
