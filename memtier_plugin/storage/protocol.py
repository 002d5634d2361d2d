"""The seam of the storage: what another backend than files and SQLite has to provide.

The log is the truth, the index is derived from it, and a reader is one view of the index.
`Store` is all three for one project; `tests/storage/test_contract.py` is what a backend must pass.
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
    """The truth: append-only records of a project, in the order of their acknowledgement."""

    def append_entries(self, agent: str, runs: Sequence[NewRun], clock: Clock) -> list[Entry]:
        """Append the messages of an agent's runs that are new, all together; return these.

        Raises:
            LedgerError: nothing was written.
        """

    def append_facts(self, facts: Iterable[Fact], now: datetime) -> None:
        """Append facts; raises like `append_entries`."""

    def append_events(self, events: Sequence[JournalEvent], *, shared: bool = False) -> None:
        """Append events to their agent's journal, or to the project's; raises the same."""

    def exclusive(self, name: str, timeout: float = ...) -> AbstractContextManager[None]:
        """Hold one of the project's locks against every other process.

        Raises:
            LedgerError: another process kept it for the whole timeout.
        """

    def try_exclusive(self, name: str) -> AbstractContextManager[bool]:
        """Hold a lock if nobody else does; yield whether it is held."""


class Index(Protocol):
    """Derived: it can be dropped and built again from the log."""

    def session(self) -> AbstractContextManager[Reader]:
        """Open one view for everything that an operation reads.

        Raises:
            IndexProblem: the index cannot be used; the message has the remedy.
        """

    def refresh(self, agent: str, *, wait_ms: int, read_all: bool = False) -> str | None:
        """Index the newest records within bounds; return why something is still missing."""

    def catch_up_all(self) -> int:
        """Index everything new; return how many records that were."""

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Build the index again from the log; return how many records it holds."""


class Reader(Protocol):
    """One view of the index: the part that facts, lifecycle, learning and operations rely on.

    Scopes and rows, by which recalls search, are opaque numbers of the backend's own.
    """

    def scopes(
        self, agent: str, sender: str | None, *, read_all: bool = False, shelf: str = ""
    ) -> list[int]:
        """Return the scopes that an agent may read for a sender; every search is inside of some."""

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
        """Return the events that meet every condition, in order, or so many newest first."""

    def state(self, identity: str) -> State:
        """Return the current state of an item, folded from its events."""

    def sources(self, fact: str) -> list[Source]:
        """Return what a fact rests on."""

    def dependent_facts(self, entries: Collection[str]) -> list[str]:
        """Return the facts that rest on these entries and on nothing else that is left."""

    def cursors(self, extractor: str = ...) -> Mapping[str, int]:
        """Return how far each part of the log was consolidated."""

    def counts(self) -> Mapping[str, int]:
        """Return how many items of each sort there are."""
