"""Read the index: all the queries of an operation, on one thread's connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from memtier_plugin.storage.index.candidate_reader import CandidateReader
from memtier_plugin.storage.index.item_reader import ItemReader
from memtier_plugin.storage.index.journal_reader import JournalReader
from memtier_plugin.storage.index.overviews import OverviewReader
from memtier_plugin.storage.index.pages import SessionPages
from memtier_plugin.storage.index.vector_coverage import VectorCoverage

T = TypeVar("T")


class Reader(CandidateReader, ItemReader, JournalReader):
    """Queries against one project's index."""

    @cached_property
    def pages(self) -> SessionPages:
        """Page queries on the same connection."""
        return SessionPages(self._db)

    @cached_property
    def overviews(self) -> OverviewReader:
        """Shelf and overview queries on the same connection."""
        return OverviewReader(self._db)

    def plugin_tables(self, reader: Callable[[Any], T]) -> T:
        """Return a plugin's reader of its tables (`memtier_index_tables`), on this connection."""
        return reader(self._db)

    @cached_property
    def coverage(self) -> VectorCoverage:
        """Vector coverage queries on the same connection."""
        return VectorCoverage(self._db)
