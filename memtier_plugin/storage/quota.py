"""Measure a project on disk, and refuse records beyond its limits.

Each process measures the sizes at most once a minute and adds what it writes in between.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import LimitReached
from memtier_plugin.core.paths import LEDGERS
from memtier_plugin.core.settings.schema import Limits

NEAR_SHARE: Final = 0.8  # share of a limit from which `status` warns
MB: Final = 1_000_000
_REMEASURE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes on disk by tier, and those of today's entries."""

    tiers: dict[str, int] = field(default_factory=dict)
    index: int = 0
    files: int = 0
    today: int = 0

    @property
    def total(self) -> int:
        """Total size of the project, index included."""
        return sum(self.tiers.values()) + self.index

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; sizes in bytes."""
        return {
            **self.tiers,
            "index": self.index,
            "total": self.total,
            "today": self.today,
            "files": self.files,
        }


def measure_usage(folder: Path, index: Path, now: datetime) -> DiskUsage:
    """Measure a project's disk usage; ``index`` is the path of its index."""
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
    """Yield the names and sizes of the files in a folder and its direct subfolders."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            if entry.is_file(follow_symlinks=False):
                yield entry.name, entry.stat(follow_symlinks=False).st_size
            elif depth and entry.is_dir(follow_symlinks=False):
                yield from _sizes(Path(entry.path), depth - 1)
        except OSError:
            continue  # removed in the meantime


def quota_warnings(usage: DiskUsage, limits: Limits) -> tuple[list[str], list[str]]:
    """Describe the limits that are reached and those that are near."""
    reached, near = [], []
    for name, used, most, until in _limits(usage, limits):
        if not most or used < NEAR_SHARE * most:
            continue
        share = f"{format_bytes(used)} of {format_bytes(most)} (limits.{name})"
        if used >= most:
            reached.append(f"nothing more is recorded {until}: {share}")
        else:
            near.append(f"{share}: at the limit nothing more is recorded {until}")
    return reached, near


def _limits(usage: DiskUsage, limits: Limits) -> list[tuple[str, int, float, str]]:
    return [
        ("day_mb", usage.today, limits.day_mb * MB, "until tomorrow (UTC)"),
        ("project_mb", usage.total, limits.project_mb * MB, "until there is room or more allowed"),
    ]


def format_bytes(size: float) -> str:
    """Format a number of bytes for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


def describe_usage(disk: Mapping[str, Any]) -> str:
    """Describe a project's disk usage (`DiskUsage.to_json`) in one line, by tier."""
    parts = [f"{name} {format_bytes(disk[name])}" for name in (*LEDGERS, "index") if disk.get(name)]
    return f"{format_bytes(disk.get('total', 0))} ({', '.join(parts) or 'nothing'})"


class Quota:
    """The room left under one project's limits, as far as this process knows."""

    def __init__(self, measure: Callable[[datetime], DiskUsage], limits: Limits) -> None:
        self._measure, self._limits = measure, limits
        self._measured_at = -_REMEASURE_SECONDS
        self._day = ""
        self._usage = DiskUsage()
        self._added = 0

    def check(self, size: int, now: datetime) -> None:
        """Refuse a record that would exceed a limit.

        Raises:
            LimitReached: names the limit and the remedy.
        """
        if not size:  # a run that is delivered again
            return
        day = f"{now.astimezone(UTC):%Y-%m-%d}"
        if time.monotonic() - self._measured_at > _REMEASURE_SECONDS or day != self._day:
            self._usage = self._measure(now)
            self._measured_at, self._day, self._added = time.monotonic(), day, 0
        for name, used, most, until in _limits(self._usage, self._limits):
            if most and used + self._added + size > most:
                raise LimitReached(
                    f"{format_bytes(size)} were not recorded: "
                    f"the project has {format_bytes(used + self._added)} "
                    f"of {format_bytes(most)} (limits.{name}); nothing is recorded {until}"
                )

    def add(self, size: int) -> None:
        """Count bytes that were just written."""
        self._added += size
