"""The log of a project: what a backend other than files must provide, and what it returns.

The log is the source of truth; the index (`storage.sessions`) is derived from it.  `Store`
implements `Log` for files, `SharedStore` for files that follow a server; both pass
`tests/storage/test_contract.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.core.times import Clock
from memtier_plugin.storage.new_run import NewRun
from memtier_plugin.storage.quota import DiskUsage

LOCK_SECONDS: Final = 10.0  # how long a write waits for another writer


class LoggedEntry(NamedTuple):
    """An entry with its place in a segment; ``entry`` is None where it cannot be read."""

    entry: Entry | None
    start: int
    size: int

    @property
    def end(self) -> int:
        """The position after it, from where a cursor goes on."""
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
        """Complete the commit of a killed process, if there is one; the lock "facts" is held.

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
