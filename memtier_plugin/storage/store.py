"""One project on disk: its ledgers, and the index that follows them.

Writes go to the ledger first and never need the index: when it is locked, missing or foreign, the
ledger itself is read instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from memtier_plugin.core import plugins
from memtier_plugin.core.codecs import decode_event
from memtier_plugin.core.errors import IndexProblem, LedgerError
from memtier_plugin.core.locks import hold_lock, release_lock, try_acquire_lock
from memtier_plugin.core.paths import (
    PROJECT_JOURNAL,
    decode_file_name,
    make_ledger_folder,
    owned_folder_exists,
    owner_folder_name,
)
from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.providers.embedding.load import configured_embedder
from memtier_plugin.storage.index.connection import index_problem
from memtier_plugin.storage.index.files import BUILD_LOCK, NEW_INDEX, remove_index
from memtier_plugin.storage.index.renewal import INCOMPLETE, is_incomplete
from memtier_plugin.storage.index.vector_coverage import copy_vectors
from memtier_plugin.storage.index.writer import (
    IndexWriter,
    build_index,
    files_behind,
    is_behind,
    read_mark,
    set_metadata,
)
from memtier_plugin.storage.ledger import jsonl, transaction
from memtier_plugin.storage.ledger.group_sync import sync_file
from memtier_plugin.storage.ledger.log import FileLog
from memtier_plugin.storage.ledger.segments import LATER, LedgerFile, ledger_files, parse_entries
from memtier_plugin.storage.new_run import NewRun
from memtier_plugin.storage.project_folder import ProjectFolder
from memtier_plugin.storage.protocol import LOCK_SECONDS, MendedFile
from memtier_plugin.storage.quota import DiskUsage, measure_usage
from memtier_plugin.storage.sessions import REFRESH_BYTES, IndexSessions
from memtier_plugin.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import apsw

    from memtier_plugin.core.hookspecs import Embedder
    from memtier_plugin.storage.index.vectors import Vectors
    from memtier_plugin.storage.protocol import Log
    from memtier_plugin.storage.shared.store import SharedStore


def open_log(folder: Path) -> FileLog:
    """Return the log of a project, by its folder, without opening its index."""
    return FileLog(folder)


class Store(IndexSessions):
    """The ledgers and the index of one project."""

    def __init__(self, home: Path, project: str, settings: Settings) -> None:
        self.project_folder = ProjectFolder.of(home, project)
        self.project = project
        self.settings = settings
        super().__init__(self.project_folder.path, settings.language)
        self.log = FileLog(self._folder)

    @cached_property
    def embedder(self) -> Embedder | None:
        """A plugin's embedder, else the model that the settings name."""
        return plugins.find_embedder() or configured_embedder(self.settings)

    @property
    def sharing(self) -> SharedStore | None:
        """This storage if other machines share it; None for one machine alone."""
        return None

    @property
    def paused(self) -> bool:
        """Whether the project is switched off."""
        return (self._folder / "OFF").exists()

    # -- the index -----------------------------------------------------------------------------

    def _writer(self, connection: apsw.Connection) -> IndexWriter:
        return IndexWriter(connection, self._folder, self.tokenizer, self.embedder)

    def refresh(
        self, agent: str, *, wait_ms: int, read_all: bool = False, leave_recalls: bool = False
    ) -> str | None:
        """Index new lines before a recall, within bounds; return why some are still missing.

        Covers the newest two files of the agent's own ledger, of the shared tiers and of the
        journals; the sweep indexes the rest.

        Args:
            leave_recalls: leave a few recalls for later where a journal has nothing else that is
                new: one changes nothing that the next one finds.
        """
        try:
            files = ledger_files(self._folder, newest=2, agent=None if read_all else agent)
        except LedgerError as error:
            return f"index: {error}"
        why = self.catch_up(
            files, wait_ms=wait_ms, budget=REFRESH_BYTES, leave_recalls=leave_recalls
        )
        if why is None and self.incomplete and is_incomplete(self.index, self._folder):
            return "index is being rebuilt"
        return why

    def catch_up(
        self,
        files: Sequence[LedgerFile],
        *,
        wait_ms: int,
        budget: int | None = None,
        ours: bool = False,
        leave_recalls: bool = False,
    ) -> str | None:
        """Index these files, as `refresh` does; return None, or why some lines are missing."""
        import apsw

        try:
            connection = self._connection()
            behind = files_behind(connection, files, leave_recalls=leave_recalls)
            if not behind:
                return None
            connection.set_busy_timeout(wait_ms)
            _, complete = self._writer(connection).catch_up(behind, budget=budget, ours=ours)
            self._renewed = False
            return None if complete else "index behind"
        except apsw.BusyError:
            return "index locked"
        except apsw.ReadOnlyError:
            return "index read-only"
        except apsw.FullError:
            return "disk full"
        except (apsw.Error, IndexProblem, LedgerError) as error:
            if self._begins_anew(error):  # what is forgotten is known before anything is shown
                return self.catch_up(files, wait_ms=wait_ms, budget=budget, ours=ours)
            return f"index: {error}"

    def catch_up_all(self, progress: Callable[[int], None] | None = None) -> int:
        """Index every changed ledger file, drop deleted ones; return the lines read.

        Raises:
            IndexProblem: the index stays locked, or cannot be used.
            LedgerError: a file cannot be read; the others were indexed.
        """
        import apsw

        connection = self.index.connection()  # of the file that exists now
        self._check_tokenizer(connection)
        writer = self._writer(connection)
        connection.set_busy_timeout(int(LOCK_SECONDS * 1000))
        try:
            lines = writer.catch_up_all(progress=progress)
            if self.incomplete:
                set_metadata(connection, INCOMPLETE, None)
        except apsw.ReadOnlyError as error:
            raise index_problem(self.index.path, error) from error
        except apsw.Error as error:
            raise self._handle_error(error) from error
        return lines

    def put_vectors(self, model: str, vectors: Vectors) -> None:
        """Add vectors of items indexed without them; skipped while another process writes."""
        self._writer(self._connection()).add_vectors(model, vectors)

    @contextmanager
    def as_of(
        self,
        moment: datetime,
        progress: Callable[[int, int], None] | None = None,
        *,
        written: bool = False,
    ) -> Iterator[Store]:
        """Yield a read-only store of the project as of a time; see `open_as_of`.

        Raises:
            IndexProblem, LedgerError: it cannot be built.
        """
        from memtier_plugin.storage.as_of import open_as_of  # it is a store itself

        with open_as_of(self, moment, progress, written=written) as view:
            yield view

    def files_behind(self) -> list[LedgerFile]:
        """Return the ledger files with lines that the index has not read."""
        return files_behind(self._connection(), ledger_files(self._folder))

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Read every ledger into a new index and swap it in; the old one serves meanwhile.

        Returns the number of lines read.

        Raises:
            IndexProblem, LedgerError: the old index stays as it was.
        """
        with hold_lock(self._folder / BUILD_LOCK, LOCK_SECONDS):
            fresh = self.index.path.with_name(NEW_INDEX)
            remove_index(fresh)
            try:
                tokenizer = Tokenizer(self.settings.language)
                build = build_index(fresh, self._folder, tokenizer, self.embedder, progress)
                with build as (connection, lines):
                    copy_vectors(self.index, connection, self.embedder)
                    self.index.replace_with(connection)
            finally:
                remove_index(fresh)
            return lines

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
            for file in self._files_of("episodic", agent)[-2:]:
                jsonl.end_last_line(file.path, timeout)  # else it is read only after this append
            existing, turns = self._existing_keys(agent, runs)
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
            self._tell(entries, started)
        return entries

    def _tell(self, records: Sequence[Entry | Fact | JournalEvent], started: float) -> None:
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
        existing, _ = self._existing_keys(agent, runs)
        return {key for new in runs for key, _, _ in new.new_messages(existing)}

    def _existing_keys(self, agent: str, runs: Sequence[NewRun]) -> tuple[set[str], dict[str, int]]:
        """Return the stored keys and the sessions' last turns, unindexed lines included."""
        import apsw

        files = self._files_of("episodic", agent)
        turns = dict.fromkeys((new.run.session for new in runs), 0)
        existing: set[str] = set()
        try:
            with self._session():
                self.catch_up(files, wait_ms=200)
                # The ledgers first: lines that another process indexes in between are then seen
                # twice rather than never.
                unread = [
                    e for file in files for e in parse_entries(file, self._unindexed_lines(file))
                ]
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
            self._tell(batch, started)

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
        self._tell(events, started)

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
        transaction.commit_transaction(self, facts, events)

    def complete_commit(self) -> None:
        transaction.complete_transaction(self)

    def pending_commit(self) -> str | None:
        path = transaction.pending_file(self)
        return str(path) if path else None

    def unreadable_commit(self) -> str | None:
        path = transaction.unreadable_file(self)
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

    def catch_up_file(self, path: Path, *, ours: bool = False) -> None:
        """Index one ledger file unless the index is locked.

        Args:
            ours: this process rewrote the file itself, so no notice is recorded.
        """
        name = str(path.relative_to(self._folder))
        kind, *rest = Path(name).parts
        owner = None if len(rest) == 1 else decode_file_name(self._folder / kind, rest[0])
        self.catch_up([LedgerFile(path, name, kind, owner)], wait_ms=250, ours=ours)

    def _files_of(self, kind: str, owner: str) -> list[LedgerFile]:
        folder = self._folder / kind / owner_folder_name(owner)
        if not (owned_folder_exists(folder.parent) and owned_folder_exists(folder)):
            return []
        return [
            LedgerFile(path, str(path.relative_to(self._folder)), kind, owner)
            for path in jsonl.list_day_files(folder)
        ]

    def close(self) -> None:
        """Close the index; the ledgers need no closing."""
        self.index.close()


if TYPE_CHECKING:

    def _check(store: Store) -> Log:
        return store  # whose docstrings are those of the methods here
