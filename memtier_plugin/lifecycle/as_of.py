"""A project as it was: what had been written by a moment, in an index of its own, for one recall.

Facts hold or do not, and weights are, as the journal had it then.  Only what was forgotten or
purged since is missing: forgetting holds for the past too.
"""

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
    """The ledgers and an index of one moment: nothing new comes in, nothing is written."""

    def __init__(self, store: Store, index: Index) -> None:
        super().__init__(store.home, store.project, store.settings)
        self.index = index
        self.__dict__["embedder"] = store.embedder  # loaded once

    def refresh(self, agent: str, *, wait_ms: int, read_all: bool = False) -> str | None:
        """Look at nothing: what came since does not count."""
        return None

    def append_events(
        self, events: Sequence[JournalEvent], *, shared: bool = False, timeout: float = 0.0
    ) -> None:
        """Keep nothing: a question about the past is none that a run asked."""


@contextmanager
def open_as_of(
    store: Store, moment: datetime, progress: Callable[[int, int], None] | None = None
) -> Iterator[AsOfView]:
    """Yield a project as it was; reads every ledger, so this is nothing for a hook.

    Raises:
        IndexProblem, LedgerError: it cannot be made.
    """
    path = store.index.path.with_name(f"{AS_OF_PREFIX}{new_id()}.sqlite3")
    try:
        made = build_index(path, store.folder, store.tokenizer, store.embedder, progress, moment)
        with made as (connection, _):
            copy_vectors(store.index, connection, store.embedder)
        past = AsOfView(store, Index(path))
        try:
            yield past
        finally:
            past.close()
    finally:
        remove_index(path)
