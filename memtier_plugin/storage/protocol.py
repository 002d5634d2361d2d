"""The storage protocols: what a backend other than files and SQLite must provide.

The log is the source of truth, the index is derived from it, and a reader is one view of the
index.  `Store` implements all three for a project; a backend must pass
`tests/storage/test_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from memtier_plugin.core.records import Entry, Fact, JournalEvent, Source
from memtier_plugin.core.times import Clock
from memtier_plugin.storage.index.item_reader import Standing
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.new_run import NewRun
from memtier_plugin.storage.state import State


class Log(Protocol):
    """The source of truth: a project's append-only records, in order of acknowledgement."""

    def append_entries(self, agent: str, runs: Sequence[NewRun], clock: Clock) -> list[Entry]:
        """Append the new messages of an agent's runs, all or nothing; return their entries.

        Raises:
            LedgerError: nothing was written.
        """

    def append_facts(self, facts: Iterable[Fact], now: datetime) -> None:
        """Append facts; raises like `append_entries`."""

    def append_events(self, events: Sequence[JournalEvent], *, shared: bool = False) -> None:
        """Append events to their agent's journal, or to the project's; raises likewise."""

    def exclusive(self, name: str, timeout: float = ...) -> AbstractContextManager[None]:
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

    def refresh(self, agent: str, *, wait_ms: int, read_all: bool = False) -> str | None:
        """Index the newest records within bounds; return why some are still missing."""

    def catch_up_all(self) -> int:
        """Index every new record; return their number."""

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Rebuild the index from the log; return its number of records."""


class Reader(Protocol):
    """One view of the index: the part that facts, lifecycle, learning and operations rely on.

    Scopes and rows, used by recalls, are opaque numbers of the backend.
    """

    def scopes(
        self, agent: str, sender: str | None, *, read_all: bool = False, shelf: str = ""
    ) -> list[int]:
        """Return the scopes that an agent may read for a sender; they bound every search."""

    def items(self, ids: Iterable[str]) -> dict[str, Stored]:
        """Return the items of these ids, oldest first; unknown ids are left out."""

    def facts(
        self,
        *,
        run: str | None = None,
        subject: str | None = None,
        relation: str | None = None,
        value: str | None = None,
        standing: Standing | None = None,
        audience: tuple[str, str] | None = None,
        readable_by: str | None = None,
        written_since: datetime | None = None,
        written_until: datetime | None = None,
        valid_since: float | None = None,
        valid_until: float | None = None,
    ) -> list[Stored]:
        """Return the facts that meet every condition, oldest first."""

    def entries(
        self,
        *,
        agent: str | None = None,
        sender: str | None = None,
        session: str | None = None,
        run: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[str]:
        """Return the ids of the entries that meet every condition, oldest first."""

    def events(
        self,
        kinds: Collection[str] = (),
        *,
        agent: str | None = None,
        run: str | None = None,
        item: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: datetime | None = None,
        newest: int | None = None,
    ) -> list[JournalEvent]:
        """Return the matching events in order, or only the ``newest``, newest first."""

    def state(self, identity: str) -> State:
        """Return the current state of an item, folded from its events."""

    def sources(self, fact: str) -> list[Source]:
        """Return the sources of a fact."""

    def dependent_facts(self, entries: Collection[str]) -> list[str]:
        """Return the facts with no remaining sources besides these entries."""

    def cursors(self, extractor: str = ...) -> Mapping[str, int]:
        """Return the offset up to which each part of the log was consolidated."""

    def counts(self) -> Mapping[str, int]:
        """Return the number of items of each kind."""
