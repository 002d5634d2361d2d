"""One project on disk: its ledgers, and the index that follows them.

Writing goes to the ledger first and never needs the index: when the index is locked, missing or
somebody else's, what it would have told is read from the ledger itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import IndexProblem, LedgerError
from memtier_plugin.core.paths import (
    PROJECT_JOURNAL,
    file_name,
    index_path,
    is_ours,
    ledger_folder,
    outside_name,
    owner_name,
)
from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.core.settings.load import Settings
from memtier_plugin.providers.embedding.static import embedder_of
from memtier_plugin.storage.index.connection import Index, index_problem
from memtier_plugin.storage.index.files import BUILDING, FRESH, remove_index
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.index.renewal import UNREAD, begin, unread
from memtier_plugin.storage.index.vector_coverage import carry_vectors
from memtier_plugin.storage.index.writer import (
    IndexWriter,
    LedgerFile,
    entries_in,
    files_behind,
    is_behind,
    ledger_files,
    metadata,
    read_mark,
    rebuild,
    set_metadata,
)
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.new_run import NewRun
from memtier_plugin.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import apsw

    from memtier_plugin.core.hookspecs import Embedder

LOCK_SECONDS: Final = 10.0  # how long a write waits for another writer of the same ledger
REFRESH_BYTES: Final = 512 * 1024  # of ledger read before a recall; the rest is for later
_STEPS: Final = 20_000  # SQLite steps between two looks at the clock

_log = logging.getLogger("memtier")


class Late(Exception):
    """The deadline of a read has passed; the caller answers with what it has."""


class Store:
    """The ledgers and the index of one project."""

    def __init__(self, home: Path, project: str, settings: Settings) -> None:
        self.home = home
        self.project = project
        self.settings = settings
        self.folder = home / "projects" / file_name(project)
        self.index = Index(index_path(self.folder))
        self.tokenizer = Tokenizer(settings.language)
        self._wanted = self.tokenizer.fingerprint  # asked at every read of the index
        self._told = ""
        self.stale_words: str | None = None  # what the index was made with, if not the settings'
        self.stale_files = False  # the index was begun anew, and may lack older files

    @cached_property
    def embedder(self) -> Embedder | None:
        """A plugin's embedder, else the model that the settings name."""
        return plugins.embedder() or embedder_of(self.settings)

    @property
    def paused(self) -> bool:
        """Whether the project is switched off."""
        return (self.folder / "OFF").exists()

    # -- the index -----------------------------------------------------------------------------

    def reader(self) -> IndexReader:
        """Return a reader on this thread's connection.

        Raises:
            IndexProblem: the index cannot be used; the message has the remedy.
        """
        connection = self.index.connection()
        self._check_words(connection)
        return IndexReader(connection)

    def _problem(self, error: apsw.Error) -> IndexProblem:
        """Return what to tell of an error; a damaged index is set aside, for the next to be new."""
        problem = index_problem(self.index.path, error)
        if self.index.renew(error):
            return IndexProblem(f"{problem}; it was set aside and is being rebuilt: try again")
        return problem

    def writer(self) -> IndexWriter:
        """Return a writer on this thread's connection (raises as `reader`)."""
        self.reader()
        return IndexWriter(self.index.connection(), self.folder, self.tokenizer, self.embedder)

    def _check_words(self, connection: apsw.Connection) -> None:
        """Keep to the language that the index was made in; another one needs a reindex."""
        known = metadata(connection)
        made, self.stale_files = known.get("tokenizer"), UNREAD in known
        if made is None and not connection.readonly("main"):
            set_metadata(connection, "tokenizer", self._wanted)
            made = self._wanted
            self.stale_files = begin(connection, self.folder, REFRESH_BYTES)
        self.stale_words = None if made in (None, self._wanted) else str(made)
        if made and made != self.tokenizer.fingerprint:
            self.tokenizer = Tokenizer(str(made).partition(":")[2])

    @contextmanager
    def deadline(self, until: float | None) -> Iterator[None]:
        """Interrupt this thread's queries at a moment of ``time.monotonic()``.

        Raises:
            Late: the moment came while a query ran.
            IndexProblem: the index cannot be used.
        """
        import apsw

        connection = self.index.connection()
        if until is not None:
            left = max(0, int((until - time.monotonic()) * 1000))
            connection.set_busy_timeout(left)
            connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
        try:
            yield
        except (apsw.InterruptError, apsw.BusyError) as error:
            raise Late(str(error)) from error
        except apsw.Error as error:
            raise self._problem(error) from error
        finally:
            if until is not None:
                with suppress(apsw.Error):  # closed, with the index that was set aside
                    connection.set_progress_handler(None)

    @contextmanager
    def snapshot(self) -> Iterator[IndexReader]:
        """Yield a reader that sees one state of the index, whatever others write meanwhile.

        Raises:
            IndexProblem: the index cannot be used.
        """
        reader = self.reader()
        connection = self.index.connection()
        connection.execute("BEGIN")
        try:
            yield reader
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @contextmanager
    def reading(self) -> Iterator[IndexReader]:
        """Yield a reader; whatever goes wrong with the index is told with its remedy.

        Raises:
            IndexProblem: the index cannot be used, or not now.
        """
        import apsw

        try:
            yield self.reader()
        except apsw.Error as error:
            raise self._problem(error) from error

    def refresh(self, agent: str, *, wait_ms: int, read_all: bool = False) -> str | None:
        """Read what is new before a recall, within bounds; return why something is behind.

        Looks at the newest two files of the agent's own ledger, of the shared tiers and of the
        journals: the rest is the sweep's.
        """
        try:
            files = ledger_files(self.folder, newest=2, agent=None if read_all else agent)
        except LedgerError as error:
            return f"index: {error}"
        why = self.catch_up(files, wait_ms=wait_ms, budget=REFRESH_BYTES)
        if why is None and self.stale_files and unread(self.index, self.folder):
            return "index is being rebuilt"
        return why

    def catch_up(
        self,
        files: Sequence[LedgerFile],
        *,
        wait_ms: int,
        budget: int | None = None,
        ours: bool = False,
    ) -> str | None:
        """Bring these files into the index; return None, or why some of it is still behind."""
        import apsw

        try:
            writer = self.writer()
            connection = self.index.connection()
            behind = files_behind(connection, files)
            if not behind:
                return None
            connection.set_busy_timeout(wait_ms)
            writer.catch_up(behind, budget=budget, ours=ours)
            return None if not any(is_behind(connection, f) for f in behind) else "index behind"
        except apsw.BusyError:
            return "index locked"
        except apsw.ReadOnlyError:
            return "index read-only"
        except apsw.FullError:
            return "disk full"
        except (apsw.Error, IndexProblem, LedgerError) as error:
            if str(error) != self._told:  # once, not at every recall
                self._told = str(error)
                _log.warning("the index of %s is behind: %s", self.project, error)
            return f"index: {error}"

    def sweep(self, progress: Callable[[int], None] | None = None) -> int:
        """Read every ledger file that changed, drop those that are gone; return the lines read.

        Raises:
            IndexProblem: the index stays locked, or cannot be used.
            LedgerError: a file cannot be read; the others are in.
        """
        import apsw

        writer = self.writer()
        self.index.connection().set_busy_timeout(int(LOCK_SECONDS * 1000))
        try:
            lines = writer.sweep(progress=progress)
            if self.stale_files:
                set_metadata(self.index.connection(), UNREAD, None)
        except apsw.ReadOnlyError as error:
            raise index_problem(self.index.path, error) from error
        except apsw.Error as error:
            raise self._problem(error) from error
        return lines

    def behind(self) -> list[LedgerFile]:
        """Return the ledger files that hold something the index has not read."""
        self.reader()
        connection = self.index.connection()
        return [file for file in ledger_files(self.folder) if is_behind(connection, file)]

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Read every ledger into a new index and swap it in; the old one serves meanwhile.

        Returns the number of lines read.

        Raises:
            IndexProblem, LedgerError: the old index stays as it was.
        """
        with jsonl.locked(self.folder / BUILDING, LOCK_SECONDS):
            fresh = self.index.path.with_name(FRESH)
            remove_index(fresh)
            try:
                tokenizer = Tokenizer(self.settings.language)
                made = rebuild(fresh, self.folder, tokenizer, self.embedder, progress)
                with made as (connection, lines):
                    carry_vectors(self.index, connection, self.embedder)
                    self.index.replace_with(connection)
            finally:
                remove_index(fresh)
            return lines

    # -- writing -------------------------------------------------------------------------------

    def add_entries(
        self,
        agent: str,
        runs: Sequence[NewRun],
        clock: Callable[[], datetime],
        *,
        timeout: float = LOCK_SECONDS,
    ) -> list[Entry]:
        """Append the messages of an agent's runs that are not stored yet, all together.

        They are acknowledged on return.

        Raises:
            LedgerError: nothing was written.
        """
        folder = ledger_folder(self.home, self.project, "episodic", agent)
        with jsonl.locked(folder / ".lock", timeout):
            now = clock()  # not before: who waits at midnight writes into the new day
            path = jsonl.day_file(folder, now)
            known, turns = self._known(agent, runs)
            entries = []
            for new in runs:
                run = new.run
                for place, (key, message, truncated) in zip(new.places, new.messages, strict=True):
                    if key in known or place in known:
                        continue
                    known.add(key)
                    turns[run.session] += 1
                    entries.append(
                        new.entry(key, message, truncated, turns[run.session], self.project, now)
                    )
            self._append(path, (entry.to_json() for entry in entries), timeout)
        if entries:
            self.follow(path)
        return entries

    def new_keys(self, agent: str, runs: Sequence[NewRun]) -> set[str]:
        """Return the keys of the messages that `add_entries` would append now."""
        known, _ = self._known(agent, runs)
        return {
            key
            for new in runs
            for place, (key, _, _) in zip(new.places, new.messages, strict=True)
            if key not in known and place not in known
        }

    def _known(self, agent: str, runs: Sequence[NewRun]) -> tuple[set[str], dict[str, int]]:
        """Return which keys are stored and the sessions' last turns: index plus what it lacks."""
        import apsw

        files = self._files_of("episodic", agent)
        turns = dict.fromkeys((new.run.session for new in runs), 0)
        known: set[str] = set()
        try:
            self.catch_up(files, wait_ms=200)
            # The ledgers first: what another process indexes meanwhile is then seen twice, not
            # never.
            unread = [e for file in files for e in entries_in(file, self._unread(file))]
            reader = self.reader()
            wanted = [key for new in runs for key, _, _ in new.messages]
            wanted += [place for new in runs for place in new.places]
            known.update(reader.known_keys(wanted))
            turns = {session: reader.last_turn(agent, session) for session in turns}
        except (IndexProblem, apsw.Error):
            whole = [(file, jsonl.read(file.path)[0]) for file in files]
            unread = [entry for file, lines in whole for entry in entries_in(file, lines)]
        for entry in unread:
            known.add(entry.key)
            if entry.session_id in turns:
                turns[entry.session_id] = max(turns[entry.session_id], entry.turn)
        return known, turns

    def unread_entries(self, agent: str) -> list[Entry]:
        """Return an agent's entries that stand in its newest ledgers but not yet in the index."""
        with self.reading():
            return [
                entry
                for file in self._files_of("episodic", agent)[-2:]
                for entry in entries_in(file, self._unread(file))
            ]

    def unread_events(self, agent: str) -> list[JournalEvent]:
        """Return an agent's newest journal events that the index has not read."""
        found = []
        with self.reading():
            for file in self._files_of("journal", agent)[-2:]:
                for line in self._unread(file):
                    with suppress(ValueError, TypeError, KeyError):
                        found.append(JournalEvent.from_json(jsonl.parse(line)))
        return found

    def _unread(self, file: LedgerFile) -> list[jsonl.Line]:
        """Return the lines that the index lacks; a large changed file's old ones it keeps."""
        connection = self.index.connection()
        mark = read_mark(connection, file.name)
        if not is_behind(connection, file):
            return []
        small = file.path.stat().st_size <= REFRESH_BYTES
        if mark and small and jsonl.check(file.path, mark):
            mark = None
        return jsonl.read(file.path, mark)[0]

    def add_facts(self, facts: Iterable[Fact], now: datetime) -> None:
        """Append facts to the shared ledgers of their tiers.

        Raises:
            LedgerError: nothing was written.
        """
        tiers: dict[str, list[Fact]] = {}
        for fact in facts:
            tiers.setdefault(fact.tier, []).append(fact)
        for tier, batch in tiers.items():
            path = jsonl.day_file(ledger_folder(self.home, self.project, tier), now)
            self._append(path, [fact.to_json() for fact in batch])
            self.follow(path)

    def journal(
        self, events: Sequence[JournalEvent], *, shared: bool = False, timeout: float = LOCK_SECONDS
    ) -> None:
        """Append events to their agent's journal, or to the project's.

        Raises:
            LedgerError: nothing was written.
        """
        if not events:
            return
        owner = PROJECT_JOURNAL if shared else events[0].agent_id
        folder = ledger_folder(self.home, self.project, "journal", owner)
        path = jsonl.day_file(folder, events[0].timestamp)
        self._append(path, [event.to_json() for event in events], timeout)
        if events[0].kind != "recall":  # the next recall reads it; this one need not wait
            self.follow(path)

    def _append(
        self, path: Path, records: Iterable[dict[str, object]], timeout: float = LOCK_SECONDS
    ) -> None:
        jsonl.append(path, records, durability=self.settings.ledger.durability, timeout=timeout)

    def follow(self, path: Path, *, ours: bool = False) -> None:
        """Bring one ledger file into the index if nobody keeps it locked.

        Args:
            ours: it was written anew by us, which is no surprise to be noticed.
        """
        name = str(path.relative_to(self.folder))
        kind, *rest = Path(name).parts
        folder = path.parent
        owner = None if len(rest) == 1 else outside_name(self.folder / kind, folder.name)
        self.catch_up([LedgerFile(path, name, kind, owner)], wait_ms=250, ours=ours)

    def _files_of(self, kind: str, owner: str) -> list[LedgerFile]:
        folder = self.folder / kind / owner_name(owner)
        if not (is_ours(folder.parent) and is_ours(folder)):
            return []
        return [
            LedgerFile(path, str(path.relative_to(self.folder)), kind, owner)
            for path in jsonl.day_files(folder)
        ]

    def close(self) -> None:
        """Close the index; the ledgers need no closing."""
        self.index.close()
