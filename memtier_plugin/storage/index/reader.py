"""Read the index: all the queries of an operation, on one thread's connection."""

from __future__ import annotations

from functools import cached_property

from memtier_plugin.storage.index.candidate_reader import IndexCandidateReader
from memtier_plugin.storage.index.item_reader import IndexItemReader
from memtier_plugin.storage.index.journal_reader import IndexJournalReader
from memtier_plugin.storage.index.overviews import IndexOverviews
from memtier_plugin.storage.index.pages import IndexPages
from memtier_plugin.storage.index.priorities import IndexPriorities
from memtier_plugin.storage.index.vector_coverage import IndexCoverage


class IndexReader(IndexCandidateReader, IndexItemReader, IndexJournalReader):
    """Queries against one project's index."""

    @cached_property
    def pages(self) -> IndexPages:
        """Page queries on the same connection."""
        return IndexPages(self._db)

    @cached_property
    def overviews(self) -> IndexOverviews:
        """Shelf and overview queries on the same connection."""
        return IndexOverviews(self._db)

    @cached_property
    def priorities(self) -> IndexPriorities:
        """Importance and tier queries on the same connection."""
        return IndexPriorities(self._db)

    @cached_property
    def coverage(self) -> IndexCoverage:
        """Vector coverage queries on the same connection."""
        return IndexCoverage(self._db)
