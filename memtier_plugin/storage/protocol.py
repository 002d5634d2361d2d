"""What the log of a project must provide, and its runs and its limits on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

from memtier_plugin.core.errors import LimitReached
from memtier_plugin.core.formats import Clock, new_id
from memtier_plugin.core.paths import LEDGERS
from memtier_plugin.core.records import Entry, Fact, JournalEvent, Message, Run, count_tokens
from memtier_plugin.core.settings.schema import Limits

# -- A run to be recorded, and the conversion of its messages to entries

# Our own tools; a host may prefix their names.
_STORING_TOOLS: Final = ("memory_store", "memtier_store")


class NewRun(NamedTuple):
    """A run to be recorded: the key, the final message and whether it was truncated, for each.

    ``position_keys`` identify a message by its position in the run, also after it was purged.
    ``tainted`` has the keys of the messages that carry external text.
    """

    run: Run
    messages: Sequence[tuple[str, Message, bool]]
    position_keys: Sequence[str]
    tainted: Collection[str] = ()

    def new_messages(self, existing: Collection[str]) -> Iterator[tuple[str, Message, bool]]:
        """Yield the messages of which neither key exists."""
        for position_key, message in zip(self.position_keys, self.messages, strict=True):
            if message[0] not in existing and position_key not in existing:
                yield message

    def make_entries(
        self, existing: set[str], turns: dict[str, int], project: str, now: datetime
    ) -> list[Entry]:
        """Build the entries of the messages that are not stored yet.

        Their keys are added to ``existing``, and they count as turns of their session.
        """
        entries = []
        for key, message, truncated in self.new_messages(existing):
            existing.add(key)
            turns[self.run.session] += 1
            turn = turns[self.run.session]
            entries.append(self._make_entry(key, message, truncated, turn, project, now))
        return entries

    def _make_entry(
        self, key: str, message: Message, truncated: bool, turn: int, project: str, now: datetime
    ) -> Entry:
        return Entry(
            id=new_id(),
            timestamp=now,
            session_id=self.run.session,
            project=project,
            content=message.content,
            tokens=count_tokens(message.content),
            agent_id=self.run.agent,
            run_id=self.run.run,
            turn=turn,
            role=message.role,
            origin=message.origin or message.role,
            observed_at=message.observed_at or self.run.observed_at or now,
            sender=self.run.sender,
            speaker=message.speaker,
            parent=self.run.parent,
            tool=message.tool,
            tainted=key in self.tainted
            or (message.role == "assistant" and _asks_to_store(message)),
            truncated=truncated,
            private=self.run.private,
            key=key,
        )


def _asks_to_store(message: Message) -> bool:
    """Return whether a message calls a storing tool, whose text becomes a separate entry."""
    return any(call.name.endswith(_STORING_TOOLS) for call in message.tool_calls)


# -- Measure a project on disk, and refuse records beyond its limits
#
# Each process measures the sizes at most once a minute and adds what it writes in between.

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


# -- The log of a project: what a backend other than files must provide, and what it returns
#
# The log is the source of truth; the index (`storage.sessions`) is derived from it.  `Store`
# implements `Log` for files, `SharedStore` for files that follow a server; both pass
# `tests/storage/test_contract.py`.

LOCK_SECONDS: Final = 10.0  # how long a write waits for another writer


class LoggedEntry(NamedTuple):
    """An entry with its place in a segment; ``entry`` is None where it cannot be read."""

    entry: Entry | None
    start: int
    size: int

    @property
    def end(self) -> int:
        """The position after it, where a cursor continues."""
        return self.start + self.size


class LogFault(NamedTuple):
    """Something wrong with the log: what, where, and the error if there was one."""

    kind: Literal["unsafe folder", "unsafe", "unreadable", "torn", "altered"]
    where: str
    message: str = ""


class LogVerification(NamedTuple):
    """The number of segments that were read, and what is wrong with them."""

    segments: int
    faults: list[LogFault]


@dataclass(frozen=True, slots=True)
class MendedFile:
    """A ledger file whose torn last line was mended.

    The line lacked only its newline, or was moved to the file ``aside``.
    """

    path: Path
    aside: str = ""


class Log(Protocol):
    """A project's append-only records, in order of acknowledgement."""

    def append_entries(self, agent: str, runs: Sequence[NewRun], clock: Clock) -> list[Entry]:
        """Append the messages of an agent's runs that are not stored yet, all or none.

        The entries returned are acknowledged.

        Raises:
            LedgerError: nothing was written.
        """

    def append_facts(self, facts: Iterable[Fact], now: datetime) -> None:
        """Append facts to the shared ledgers of their tiers.

        Raises:
            LedgerError: nothing was written.
        """

    def append_events(
        self, events: Sequence[JournalEvent], *, shared: bool = False, timeout: float = LOCK_SECONDS
    ) -> None:
        """Append events to their agent's journal, or to the project's.

        Raises:
            LedgerError: nothing was written.
        """

    def undelivered_keys(self, agent: str, runs: Sequence[NewRun]) -> set[str]:
        """Return the keys of the messages that `append_entries` would append now."""

    def commit(self, facts: Sequence[Fact], events: Sequence[JournalEvent]) -> None:
        """Write facts and events, all or nothing; the lock "facts" is held.

        Raises:
            LedgerError: nothing was written; or only a part, which `complete_commit` completes.
        """

    def complete_commit(self) -> None:
        """Complete a killed process's commit, if any; the lock "facts" is held.

        Raises:
            LedgerError, IndexProblem: it failed; the next call tries again.
        """

    def pending_commit(self) -> str | None:
        """Return where an interrupted commit awaits completion, or None."""

    def unreadable_commit(self) -> str | None:
        """Return where an interrupted commit lies that could not be read again, or None."""

    def mend_log(self) -> Iterator[MendedFile]:
        """Mend torn last lines; yield each file that had one.

        Raises:
            LedgerError: a file cannot be read or stayed locked; the rest was not tried.
        """

    def locate(self, name: str) -> str:
        """Return where a segment of the log is, for messages."""

    def expire_events(self, kind: str, before: datetime) -> int:
        """Drop the events of a kind that were written on days before a time; return how many.

        Raises:
            LedgerError: the rest is still to be dropped.
        """

    def measure_usage(self, now: datetime) -> DiskUsage:
        """Measure the bytes that the log and the index take."""

    def exclusive(self, name: str, timeout: float = LOCK_SECONDS) -> AbstractContextManager[None]:
        """Hold one of the project's locks, which one thread of one process has at a time.

        Raises:
            LedgerError: the lock was not released within the timeout.
        """

    def try_exclusive(self, name: str) -> AbstractContextManager[bool]:
        """Try to hold a lock without waiting; yield whether it is held."""
