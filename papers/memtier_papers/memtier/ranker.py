"""The profile `paper` as a ranker: its differences from `recall_first`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

from memtier_papers.memtier.search import PaperSearch
from memtier_papers.memtier.settings import Paper
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.retrieval.query import MAX_QUERY_CHARS
from memtier_plugin.retrieval.search import Ranker, Search, SearchResult


class PaperRanker(Ranker):
    """Ranks as published in MemTier: facts choose sessions, eq. 2 scores their entries."""

    merges = False
    refines = False
    limits = "its session is not among those that the profile looks into"

    def size(self, settings: Settings) -> Paper:
        """Return the paper's k and token budget."""
        return settings.of(Paper)

    def weights(self, settings: Settings, model: str | None) -> dict[str, float]:
        """Return all weights of eq. 2, as the paper lists them."""
        return asdict(settings.of(Paper).weights)

    def rank(self, search: Search, query: str, stage: str | None) -> SearchResult:
        """Rank facts and the entries of the sessions that they select."""
        published = PaperSearch(
            search.reader,
            search.settings,
            search.scopes,
            search.shared,
            search.viewer.at,
            search.check,
        )
        similarity = search.similarity if search.vector else None
        order = published.rank(query[:MAX_QUERY_CHARS], similarity)
        return SearchResult(
            order.ranked,
            order.postings,
            order.vectors,
            partly_embedded=search.partly_embedded,
        )

    def find_problems(self, settings: Settings, *, embeds: bool) -> Iterator[str]:
        """Yield the settings that need an embedding model, if there is none."""
        if embeds:
            return
        if settings.of(Paper).stage_one != "bm25":
            yield "no embedding model for Stage 1"
        elif settings.of(Paper).weights.semantic:
            yield "no embedding model for the semantic signal"


PAPER: Final = PaperRanker()
