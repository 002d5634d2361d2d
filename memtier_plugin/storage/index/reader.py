"""Read the index: all the queries of an operation, on one thread's connection."""

from __future__ import annotations

from memtier_plugin.storage.index.candidate_reader import CandidateReader
from memtier_plugin.storage.index.item_reader import ItemReader
from memtier_plugin.storage.index.journal_reader import JournalReader
from memtier_plugin.storage.index.overviews import IndexOverviews
from memtier_plugin.storage.index.pages import IndexPages
from memtier_plugin.storage.index.vector_coverage import IndexCoverage


class IndexReader(CandidateReader, ItemReader, JournalReader):
    """Queries against one project's index."""

    @property
    def pages(self) -> IndexPages:
        """Page queries on the same connection."""
        return IndexPages(self._db)

    @property
    def overviews(self) -> IndexOverviews:
        """Shelf and overview queries on the same connection."""
        return IndexOverviews(self._db)

    @property
    def coverage(self) -> IndexCoverage:
        """Vector coverage queries on the same connection."""
        return IndexCoverage(self._db)
