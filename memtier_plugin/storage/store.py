"""One project on disk, its ledgers and the index that follows them, and an agent at work on it.

Writes go to the ledger first and never need the index: when it is locked, missing or foreign, the
ledger itself is read instead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import IndexProblem
from memtier_plugin.core.events import new_event
from memtier_plugin.core.files import hold_lock, release_lock, try_acquire_lock
from memtier_plugin.core.formats import Clock
from memtier_plugin.core.paths import PROJECT_JOURNAL, make_ledger_folder
from memtier_plugin.core.records import Entry, EventPayload, Fact, JournalEvent, decode_event
from memtier_plugin.storage.index.writer import (
    LATER,
    is_behind,
    read_mark,
)
from memtier_plugin.storage.ledger import jsonl, transaction
from memtier_plugin.storage.ledger.group_sync import sync_file
from memtier_plugin.storage.ledger.jsonl import LedgerFile
from memtier_plugin.storage.ledger.log import FileLog, parse_entries
from memtier_plugin.storage.project_index import ProjectIndex
from memtier_plugin.storage.protocol import (
    LOCK_SECONDS,
    DiskUsage,
    MendedFile,
    NewRun,
    measure_usage,
)
from memtier_plugin.storage.sessions import REFRESH_BYTES
from memtier_plugin.trust.redaction import Redactor

if TYPE_CHECKING:
    from memtier_plugin.storage.protocol import Log
    from memtier_plugin.storage.shared.sharing import Sharing


_log = logging.getLogger("memtier")


def open_log(folder: Path) -> FileLog:
    """Return the log of a project, by its folder, without opening its index."""
    return FileLog(folder)


class Store(ProjectIndex):
    """The ledgers and the index of one project."""

    sharing: Sharing | None = None  # how it follows a server; None on one machine alone

    @cached_property
    def log(self) -> FileLog:
        """The ledgers as files, to be read past the index."""
        return FileLog(self._folder)

    @property
    def paused(self) -> bool:
        """Whether the project is switched off."""
        return (self._folder / "OFF").exists()

    # -- writing -------------------------------------------------------------------------------

    def append_entries(
        self,
        agent: str,
        runs: Sequence[NewRun],
        clock: Callable[[], datetime],
        *,
        timeout: float = LOCK_SECONDS,
    ) -> list[Entry]:
        started = time.monotonic()
        folder = make_ledger_folder(self.project_folder.home, self.project, "episodic", agent)
        with hold_lock(folder / ".lock", timeout):
            now = clock()  # under the lock: a write that waited past midnight goes to the new day
            path = jsonl.day_file(folder, now)
            files = self._files_of("episodic", agent)
            for file in files[-2:]:
                jsonl.end_last_line(file.path, timeout)  # else it is read only after this append
            existing, turns = self._existing_keys(agent, runs, files)
            entries: list[Entry] = []
            for new in runs:
                entries += new.make_entries(existing, turns, self.project, now)
            appended = jsonl.write_records(
                path,
                (entry.to_json() for entry in entries),
                durability=self.settings.ledger.durability,
                timeout=timeout,
            )
        if appended:
            appended.sync()
        if len(entries) < sum(len(new.messages) for new in runs):
            self._sync_earlier(agent)
        if entries:
            self.catch_up_file(path)
            self._announce(entries, started)
        return entries

    def _announce(self, records: Sequence[Entry | Fact | JournalEvent], started: float) -> None:
        home = self.project_folder.home
        plugins.tell_written(home, self.project, records, started, self.settings)

    def _sync_earlier(self, agent: str) -> None:
        """Sync what is acknowledged again: who wrote it may have died, or may still wait.

        Raises:
            LedgerError: the disk failed.
        """
        if self.settings.ledger.durability == "sync":
            for file in self._files_of("episodic", agent)[-2:]:
                sync_file(file.path)

    def undelivered_keys(self, agent: str, runs: Sequence[NewRun]) -> set[str]:
        existing, _ = self._existing_keys(agent, runs, self._files_of("episodic", agent))
        return {key for new in runs for key, _, _ in new.new_messages(existing)}

    def _existing_keys(
        self, agent: str, runs: Sequence[NewRun], files: Sequence[LedgerFile]
    ) -> tuple[set[str], dict[str, int]]:
        """Return the stored keys and the sessions' last turns, unindexed lines included.

        Args:
            files: the agent's ledger.
        """
        import apsw

        turns = dict.fromkeys((new.run.session for new in runs), 0)
        existing: set[str] = set()
        unread: list[Entry] = []
        try:
            with self._session():
                if self.catch_up(files, wait_ms=200) is not None:
                    # The ledgers first: lines that another process indexes in between are then
                    # seen twice rather than never.
                    for file in files:
                        unread += parse_entries(file, self._unindexed_lines(file))
                reader = self.reader()
                keys = [key for new in runs for key, _, _ in new.messages]
                keys += [key for new in runs for key in new.position_keys]
                existing.update(reader.ids_of_keys(keys))
                turns = {session: reader.last_turn(agent, session) for session in turns}
        except (IndexProblem, apsw.Error):
            all_lines = [(file, jsonl.read_lines(file.path)[0]) for file in files]
            unread = [entry for file, lines in all_lines for entry in parse_entries(file, lines)]
        for entry in unread:
            existing.add(entry.key)
            if entry.session_id in turns:
                turns[entry.session_id] = max(turns[entry.session_id], entry.turn)
        return existing, turns

    def unindexed_entries(self, agent: str) -> list[Entry]:
        """Return the entries of an agent's newest ledgers that the index has not read."""
        with self.session():
            return [
                entry
                for file in self._files_of("episodic", agent)[-2:]
                for entry in parse_entries(file, self._unindexed_lines(file))
            ]

    def unindexed_events(self, agent: str) -> list[JournalEvent]:
        """Return an agent's newest journal events that the index has not read."""
        events = []
        with self.session():
            for file in self._files_of("journal", agent)[-2:]:
                for line in self._unindexed_lines(file):
                    with suppress(ValueError, TypeError, KeyError):
                        events.append(decode_event(line.data))
        return events

    def _unindexed_lines(self, file: LedgerFile) -> list[jsonl.LedgerLine]:
        """Return the lines that the index lacks; a large edited file is not read again."""
        connection = self._connection()
        if not is_behind(connection, file):
            return []
        mark = read_mark(connection, file.name)
        small = file.path.stat().st_size <= REFRESH_BYTES
        if mark and small and jsonl.detect_change(file.path, mark):
            mark = None
        return jsonl.read_lines(file.path, mark)[0]

    def append_facts(self, facts: Iterable[Fact], now: datetime) -> None:
        tiers: dict[str, list[Fact]] = {}
        for fact in facts:
            tiers.setdefault(fact.tier, []).append(fact)
        for tier, batch in tiers.items():
            started = time.monotonic()
            folder = make_ledger_folder(self.project_folder.home, self.project, tier)
            path = jsonl.day_file(folder, now)
            self._append(path, [fact.to_json() for fact in batch])
            self.catch_up_file(path)
            self._announce(batch, started)

    def append_events(
        self, events: Sequence[JournalEvent], *, shared: bool = False, timeout: float = LOCK_SECONDS
    ) -> None:
        if not events:
            return
        started = time.monotonic()
        owner = PROJECT_JOURNAL if shared else events[0].agent_id
        folder = make_ledger_folder(self.project_folder.home, self.project, "journal", owner)
        path = jsonl.day_file(folder, events[0].timestamp)
        records = [event.to_json() for event in events]
        if events[0].kind in LATER:  # a prompt waits: neither for the disk nor the index
            self._append_later(path, records, timeout)
        else:
            self._append(path, records, timeout)
            self.catch_up_file(path)
        self._announce(events, started)

    def _append(
        self, path: Path, records: Iterable[dict[str, object]], timeout: float = LOCK_SECONDS
    ) -> None:
        jsonl.append_records(
            path, records, durability=self.settings.ledger.durability, timeout=timeout
        )

    def _append_later(self, path: Path, records: list[dict[str, object]], timeout: float) -> None:
        jsonl.append_records(path, records, timeout=timeout)

    @contextmanager
    def exclusive(self, name: str, timeout: float = LOCK_SECONDS) -> Iterator[None]:
        with hold_lock(self._folder / f".{name}.lock", timeout):
            yield

    @contextmanager
    def try_exclusive(self, name: str) -> Iterator[bool]:
        held = try_acquire_lock(self._folder / f".{name}.lock")
        try:
            yield held is not None
        finally:
            if held is not None:
                release_lock(held)

    def commit(self, facts: Sequence[Fact], events: Sequence[JournalEvent]) -> None:
        durable = self.settings.ledger.durability == "sync"
        transaction.commit_transaction(self, self._folder, facts, events, durable=durable)

    def complete_commit(self) -> None:
        plan = transaction.read_plan(self._folder)
        if plan is None:
            return
        self.catch_up_all()
        reader, (facts, events) = self.reader(), plan
        known_facts = reader.rows_of(fact.id for fact in facts)
        known_events = reader.existing_events([event.id for event in events])
        _log.warning("project %r: writing facts was cut off; completing it", self.project)
        transaction.complete_transaction(
            self,
            self._folder,
            [fact for fact in facts if fact.id not in known_facts],
            [event for event in events if event.id not in known_events],
        )

    def pending_commit(self) -> str | None:
        path = transaction.pending_file(self._folder)
        return str(path) if path else None

    def unreadable_commit(self) -> str | None:
        path = transaction.unreadable_file(self._folder)
        return str(path) if path else None

    # -- maintenance ---------------------------------------------------------------------------

    def expire_events(self, kind: str, before: datetime) -> int:
        dropped = 0
        for file, number in self.log.drop_events(kind, before):
            dropped += number
            self.catch_up_file(file.path, ours=True)
        return dropped

    def mend_log(self) -> Iterator[MendedFile]:
        for mended in self.log.mend():
            if mended.aside:
                self.catch_up_file(mended.path, ours=True)  # it became shorter by our doing
            yield mended

    def measure_usage(self, now: datetime) -> DiskUsage:
        return measure_usage(self._folder, self.index.path, now)

    def locate(self, name: str) -> str:
        return str(self._folder / name)


if TYPE_CHECKING:

    def _check(store: Store) -> Log:
        return store  # whose docstrings are those of the methods here


# -- An agent at work on a project


@dataclass(frozen=True, slots=True)
class Actor:
    """An agent at work on a project, with the clock and the redactor in use.

    ``everybody``: it is the person at the machine, who reads what every agent recorded;
    ``workspace``: the folder that it works in.
    """

    store: Store
    agent: str
    clock: Clock
    redactor: Redactor
    everybody: bool = False
    workspace: Path | None = None

    def mask_name(self, name: str | None) -> str | None:
        """Return the name of a session, run or sender as it is written: without secrets."""
        return name and self.redactor.redact_name(name)

    def event(
        self,
        payload: EventPayload,
        *,
        run: str | None = None,
        at: datetime | None = None,
        event_id: str | None = None,
    ) -> JournalEvent:
        """Build a journal event in the agent's name.

        Args:
            run: the run that it belongs to.
            at: when it happened; now, unless given.
            event_id: a new id, unless given.
        """
        when = at or self.clock()
        return new_event(payload, agent=self.agent, at=when, run=run, event_id=event_id)
