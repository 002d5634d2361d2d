"""A project's index: read through sessions, brought up to date with the ledgers, and rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import IndexProblem, LedgerError
from memtier_plugin.core.files import hold_lock
from memtier_plugin.core.paths import (
    ProjectFolder,
    decode_file_name,
    owned_folder_exists,
    owner_folder_name,
)
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.providers.embedding.load import configured_embedder
from memtier_plugin.storage.index.connection import index_problem
from memtier_plugin.storage.index.sqlite import BUILD_LOCK, NEW_INDEX, remove_index
from memtier_plugin.storage.index.vector_coverage import copy_vectors
from memtier_plugin.storage.index.writer import (
    IndexWriter,
    build_index,
    files_behind,
    set_metadata,
)
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.ledger.jsonl import LedgerFile, ledger_files
from memtier_plugin.storage.protocol import LOCK_SECONDS
from memtier_plugin.storage.sessions import INCOMPLETE, REFRESH_BYTES, IndexSessions, is_incomplete
from memtier_plugin.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import apsw

    from memtier_plugin.core.hookspecs import Embedder
    from memtier_plugin.storage.index.vectors import Vectors


class ProjectIndex(IndexSessions):
    """The index of one project, which follows its ledgers."""

    def __init__(self, home: Path, project: str, settings: Settings) -> None:
        self.project_folder = ProjectFolder.of(home, project)
        self.project = project
        self.settings = settings
        super().__init__(self.project_folder.path, settings.language)

    @cached_property
    def embedder(self) -> Embedder | None:
        """A plugin's embedder, else the model that the settings name."""
        return plugins.find_embedder() or configured_embedder(self.settings)

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
