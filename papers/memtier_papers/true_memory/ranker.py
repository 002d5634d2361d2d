"""The profile `rrf` as a ranker."""

from __future__ import annotations

from typing import Final

from memtier_papers.true_memory import fused_search
from memtier_papers.true_memory.settings import Rrf
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.retrieval.search import Ranker, Search, SearchResult


class FusedRanker(Ranker):
    """Ranks as published in True Memory, by fusing the ranks by words and by vectors."""

    merges = False

    def size(self, settings: Settings) -> Rrf:
        """Return the k and the token budget of `rrf`."""
        return settings.of(Rrf)

    def weights(self, settings: Settings, model: str | None) -> dict[str, float]:
        """Return the weight of each ranking (True Memory, eq. 3)."""
        return dict(fused_search.WEIGHTS)

    def rank(self, search: Search, query: str, stage: str | None) -> SearchResult:
        """Rank facts and entries together."""
        expansion = search.expansion.vector if search.expansion else None
        order = fused_search.FusedSearch(search).rank(search.parse(query), search.vector, expansion)
        return SearchResult(
            order.ranked,
            order.postings,
            order.vectors,
            partly_embedded=search.partly_embedded,
            terms=order.terms,
            vector=search.vector,
        )


RRF: Final = FusedRanker()
