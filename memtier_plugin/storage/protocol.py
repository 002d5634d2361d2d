"""The storage protocols: what a backend other than files and SQLite must provide.

The log is the source of truth, the index is derived from it, and a reader is one view of the index
(`storage.readers`).  `Store` implements `Log` and `Index` for a project, its ``log`` implements
`LogSegments`; a backend must pass `tests/storage/test_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from memtier_plugin.core.hookspecs import Embedder
from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.times import Clock
from memtier_plugin.storage.index.vectors import Vectors
from memtier_plugin.storage.new_run import NewRun
from memtier_plugin.storage.project_folder import ProjectFolder
from memtier_plugin.storage.quota import DiskUsage
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.tokenizer import Tokenizer

LOCK_SECONDS: Final = 10.0  # how long a write waits for another writer


class Segment(Protocol):
    """A part of the log that is read on its own: the records of one ledger, owner and day."""

    @property
    def name(self) -> str:
        """The segment's name, which cursors and sources refer to."""

    @property
    def ledger(self) -> str:
        """One of `LEDGERS`: episodic, semantic, procedural or journal."""

    @property
    def owner(self) -> str | None:
        """The agent, for the episodic ledgers and the journals."""

    @property
    def day(self) -> str:
        """The UTC day of its records, as YYYY-MM-DD."""

    @property
    def provisional(self) -> bool:
        """Whether its records still wait for a place in the log: they will leave it again."""


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


class SetAside(NamedTuple):
    """An index that was replaced: where it is, its bytes, and whether MemTier made it."""

    where: str
    size: int
    ours: bool


class Mended(Protocol):
    """A repair of the log: of which file, and to where the remains of a record were moved."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def aside(self) -> str:
        """The name of the file with the remains, if any."""


class LogSegments(Protocol):
    """The log as it is stored: to be read past the index, verified and, by a purge, rewritten.

    Every method that reads raises `LedgerError` for a segment that cannot be read.
    """

    def segments(self, ledger: str | None = None, owner: str | None = None) -> Sequence[Segment]:
        """Return the segments, optionally of one ledger or owner."""

    def entries(self, *, agent: str | None = None, day: str | None = None) -> Iterator[LoggedEntry]:
        """Yield entries, each agent's in the order written."""

    def entries_after(self, segment: Segment, start: int, end: int) -> Iterator[list[LoggedEntry]]:
        """Yield the entries of a segment that start within these positions, in chunks."""

    def events(self, *, day: str | None = None) -> Iterator[JournalEvent]:
        """Yield the journal's events, each journal's in the order written."""

    def records(self, segment: Segment) -> Iterator[bytes]:
        """Yield every record of a segment as it is stored, unreadable ones included."""

    def rewrite(self, segment: Segment, replace: Callable[[bytes], bytes]) -> bool:
        """Replace records in place, excluding writers; tell whether that changed the segment."""

    def verify(self) -> LogVerification:
        """Read every segment and return what is wrong with them."""

    def owner_folders(self) -> Iterator[tuple[str, str]]:
        """Yield every owner of a ledger, and where its name stands."""

    def last_written(self) -> float:
        """Return the time (in seconds since 1970) of the last entry or fact."""


class Log(Protocol):
    """The source of truth: a project's append-only records, in order of acknowledgement."""

    def append_entries(self, agent: str, runs: Sequence[NewRun], clock: Clock) -> list[Entry]:
        """Append the new messages of an agent's runs, all or nothing; return their entries.

        Raises:
            LedgerError: nothing was written.
        """

    def append_facts(self, facts: Iterable[Fact], now: datetime) -> None:
        """Append facts; raises like `append_entries`."""

    def append_events(
        self, events: Sequence[JournalEvent], *, shared: bool = False, timeout: float = LOCK_SECONDS
    ) -> None:
        """Append events to their agent's journal, or to the project's; raises likewise."""

    def undelivered_keys(self, agent: str, runs: Sequence[NewRun]) -> set[str]:
        """Return the keys of the messages that `append_entries` would append now."""

    def commit(self, facts: Sequence[Fact], events: Sequence[JournalEvent]) -> None:
        """Write facts and events, all or nothing; the lock "facts" is held.

        Raises:
            LedgerError: nothing was written; or only a part, which `complete_commit` completes.
        """

    def complete_commit(self) -> None:
        """Complete the commit of a killed process, if there is one."""

    def pending_commit(self) -> str | None:
        """Return where an interrupted commit awaits completion, or None."""

    def unreadable_commit(self) -> str | None:
        """Return where an interrupted commit lies that could not be read again, or None."""

    def mend_log(self) -> Iterator[Mended]:
        """Mend what a crash cut off at the end of a segment; yield each repair."""

    def locate(self, name: str) -> str:
        """Return where a segment is, for messages."""

    def expire_events(self, kind: str, before: datetime) -> int:
        """Drop the events of a kind written on days before a time; return how many."""

    def measure_usage(self, now: datetime) -> DiskUsage:
        """Measure the bytes that the log and the index take."""

    def exclusive(self, name: str, timeout: float = LOCK_SECONDS) -> AbstractContextManager[None]:
        """Hold one of the project's locks, excluding every other process.

        Raises:
            LedgerError: another process held it for the whole timeout.
        """

    def try_exclusive(self, name: str) -> AbstractContextManager[bool]:
        """Try to hold a lock without waiting; yield whether it is held."""


class Index(Protocol):
    """The derived index: it can be dropped and rebuilt from the log."""

    def session(self) -> AbstractContextManager[Reader]:
        """Open one view for all reads of an operation.

        Raises:
            IndexProblem: the index cannot be used; the message names the remedy.
        """

    def reader(self) -> Reader:
        """Return the view of this thread's open session, or a view of its own."""

    def deadline(self, until: float | None) -> AbstractContextManager[Reader]:
        """Open a session whose queries are interrupted at ``until`` (``time.monotonic()``).

        Raises:
            DeadlineExceeded: the deadline passed while a query ran.
        """

    def snapshot(self) -> AbstractContextManager[Reader]:
        """Open a view of one state, regardless of concurrent writes."""

    def unindexed_entries(self, agent: str) -> list[Entry]:
        """Return an agent's newest entries that the index has not read."""

    def unindexed_events(self, agent: str) -> list[JournalEvent]:
        """Return an agent's newest journal events that the index has not read."""

    def files_behind(self) -> Sequence[Segment]:
        """Return the segments with records that the index has not read."""

    @property
    def index_location(self) -> str:
        """Where the index is, for messages."""

    def is_index(self, name: str) -> bool:
        """Tell whether a notice is about the index rather than a segment of the log."""

    def set_busy_timeout(self, milliseconds: int) -> None:
        """Set how long this thread's writes wait for other writers."""

    def refresh(
        self, agent: str, *, wait_ms: int, read_all: bool = False, leave_recalls: bool = False
    ) -> str | None:
        """Index the newest records within bounds; return why some are still missing.

        Args:
            leave_recalls: leave a few recalls for later, where nothing else is new.
        """

    def catch_up_all(self) -> int:
        """Index every new record; return their number."""

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Rebuild the index from the log; return its number of records."""

    def as_of(
        self,
        moment: datetime,
        progress: Callable[[int, int], None] | None = None,
        *,
        written: bool = False,
    ) -> AbstractContextManager[Index]:
        """Open a read-only index of what was said, or written, by a time."""

    def put_vectors(self, model: str, vectors: Vectors) -> None:
        """Add vectors of items indexed without them."""

    def check_index(self) -> str:
        """Return "ok", or the first damage that is found."""

    def index_size(self) -> int:
        """Return the bytes of the index."""

    def scrub_index(self, seconds: float) -> bool:
        """Remove what was deleted from the index's storage; tell whether that succeeded."""

    def list_set_aside(self) -> list[SetAside]:
        """List the broken indexes that were replaced."""

    def remove_set_aside(self) -> Iterator[str]:
        """Remove the broken indexes that are ours; yield where each was."""


class Storage(Log, Index, Protocol):
    """All that a project stores, as the services of other packages see it."""

    project: str
    settings: Settings
    project_folder: ProjectFolder
    tokenizer: Tokenizer  # the one that the index was built with
    stale_tokenizer: str | None  # the index's, if the settings name another
    incomplete: bool  # whether the index is new and may lack older records

    @property
    def log(self) -> LogSegments:
        """The log as it is stored."""

    @property
    def embedder(self) -> Embedder | None:
        """The embedding model in use."""

    @property
    def paused(self) -> bool:
        """Whether the project is switched off."""
