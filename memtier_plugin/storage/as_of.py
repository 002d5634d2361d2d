"""A project as of a past time, in a temporary index of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from memtier_plugin.core.ids import new_id
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.storage.index.connection import Index
from memtier_plugin.storage.index.files import AS_OF_PREFIX, remove_index
from memtier_plugin.storage.index.vector_coverage import copy_vectors
from memtier_plugin.storage.index.writer import build_index
from memtier_plugin.storage.store import Store


class AsOfView(Store):
    """The log, and an index of one moment: nothing new is read, nothing is written."""

    def __init__(self, store: Store, index: Index) -> None:
        super().__init__(store.project_folder.home, store.project, store.settings)
        self.index = index
        self.__dict__["embedder"] = store.embedder  # loaded once

    def refresh(self, agent: str, *, wait_ms: int, read_all: bool = False) -> str | None:
        """Read nothing: later records do not count."""
        return None

    def append_events(
        self, events: Sequence[JournalEvent], *, shared: bool = False, timeout: float = 0.0
    ) -> None:
        """Write nothing: no run asked this question."""


@contextmanager
def open_as_of(
    store: Store, moment: datetime, progress: Callable[[int, int], None] | None = None
) -> Iterator[AsOfView]:
    """Yield a project as of a time; reads the whole log.

    Facts hold, and weights are, as in the journal by then.  Only what was forgotten or purged
    since is missing: forgetting holds for the past too.

    Raises:
        IndexProblem, LedgerError: the index cannot be built.
    """
    path = store.index.path.with_name(f"{AS_OF_PREFIX}{new_id()}.sqlite3")
    try:
        building = build_index(
            path, store.project_folder.path, store.tokenizer, store.embedder, progress, moment
        )
        with building as (connection, _):
            copy_vectors(store.index, connection, store.embedder)
        view = AsOfView(store, Index(path))
        try:
            yield view
        finally:
            view.close()
    finally:
        remove_index(path)
