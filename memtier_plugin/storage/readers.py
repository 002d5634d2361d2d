"""Read the index: all the queries of an operation, on one thread's connection."""

from __future__ import annotations

from functools import cached_property

from memtier_plugin.storage.index.candidate_reader import CandidateReader
from memtier_plugin.storage.index.item_reader import ItemReader
from memtier_plugin.storage.index.journal_reader import JournalReader
from memtier_plugin.storage.index.overviews import OverviewReader
from memtier_plugin.storage.index.pages import SessionPages
from memtier_plugin.storage.index.priorities import PriorityReader
from memtier_plugin.storage.index.vector_coverage import VectorCoverage


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

    @cached_property
    def priorities(self) -> PriorityReader:
        """Importance and tier queries on the same connection."""
        return PriorityReader(self._db)

    @cached_property
    def coverage(self) -> VectorCoverage:
        """Vector coverage queries on the same connection."""
        return VectorCoverage(self._db)
