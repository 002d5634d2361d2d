"""Search cache, buffer and archive one after the other (HMO, sections 3.2 and 3.3).

Each tier is searched by similarity to the query, never by priority, and together with the tiers
before it. The archive is everything, so a search that reaches it equals the flat one. Facts belong
to no tier and take part in each.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Literal

from msgspec.structs import replace

from memtier_papers.hmo.formula import BUFFER, CACHE, MAX_RECENT
from memtier_papers.hmo.settings import Priority
from memtier_papers.hmo.tables import PriorityReader
from memtier_plugin.core.results import Evidence, Step
from memtier_plugin.core.settings.schema import Retrieval, Settings
from memtier_plugin.retrieval.candidates import MIN_COSINE, PIECES, PoolBuilder, Scores, best_rows
from memtier_plugin.retrieval.floor import CONSIDERED, QueryEvidence, block_probability
from memtier_plugin.retrieval.query import ParsedQuery
from memtier_plugin.retrieval.search import Ranker, Search, SearchResult
from memtier_plugin.storage.index.candidate_reader import Match
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.sessions import DeadlineExceeded

TierName = Literal["cache", "buffer", "archive"]
TIERS: Final[tuple[TierName, ...]] = ("cache", "buffer", "archive")
MIN_PROBABILITY: Final = 0.85  # of a block, from which a tier suffices
MIN_COVERAGE: Final = 0.5  # of a query's words, by rarity, in the best line


def tier_rows(
    reader: Reader, scopes: Sequence[int], settings: Settings
) -> Iterator[tuple[TierName, Collection[int] | None]]:
    """Yield each tier with its rows and those of the tiers before it; None stands for all."""
    priorities = reader.plugin_tables(PriorityReader)
    rows = {
        *priorities.recent_rows(scopes, settings.of(Priority).sessions, MAX_RECENT),
        *priorities.tier_rows(scopes, CACHE),
    }
    yield "cache", frozenset(rows)
    rows.update(priorities.tier_rows(scopes, BUFFER))
    yield "buffer", frozenset(rows)
    yield "archive", None


def is_sufficient(query: QueryEvidence, evidence: Sequence[Evidence]) -> bool:
    """Return by rules whether the best hits of a tier, best first, answer a query.

    The best hit must have half of the query's words, and the block be likely to hold what is
    needed, by far more than the floor demands: a tier is a part of the store, and what it lacks is
    not visible.
    """
    if not evidence or evidence[0].coverage < MIN_COVERAGE:
        return False
    return block_probability(query, evidence) >= MIN_PROBABILITY


class TieredRanker(Ranker):
    """Ranks like `recall_first`, tier by tier until the hits suffice."""

    stages = TIERS

    def rank(self, search: Search, query: str, stage: str | None) -> SearchResult:
        """Rank; when time runs out, return the result of the previous tier.

        Raises:
            DeadlineExceeded: before anything was ranked.
        """
        steps: list[Step] = []
        postings = vectors = 0
        result: SearchResult | None = None
        builder: TierBuilder | None = None
        for name, rows in tier_rows(search.reader, search.scopes, search.settings):
            if stage is not None and name != stage:
                continue
            started = time.monotonic()
            make_builder = partial(TierBuilder, within=rows, earlier=builder)
            try:
                result = search.rank_by_signals(query, make_builder)
            except DeadlineExceeded:
                if result is None:
                    raise
                result = replace(result, late=True)
                break
            assert isinstance(search.builder, TierBuilder)
            builder = search.builder
            ms, read = (time.monotonic() - started) * 1000, result.postings + result.vectors
            steps.append(Step(name=name, ms=ms, read=read))
            postings, vectors = postings + result.postings, vectors + result.vectors
            evidence = [result.evidence[row] for row, _, _ in result.ranked[:CONSIDERED]]
            if is_sufficient(result.query_evidence, evidence):
                break
        assert result is not None  # the archive always exists
        return replace(result, postings=postings, vectors=vectors, steps=tuple(steps))

    def explain_missing(self, result: SearchResult) -> tuple[str, str] | None:
        """Return that the search ended before the tier that contains the item."""
        if not result.steps or (tier := result.steps[-1].name) == "archive":
            return None
        return "tier", f"the search had enough with the {tier}, which lacks it"


TIERED: Final = TieredRanker()


class TierBuilder(PoolBuilder):
    """Gathers the candidates of one tier.

    Args:
        within: the only rows of entries that may be candidates; None for all.  Only their words
            and vectors are compared, not n-grams.
        earlier: the search of the previous tier; what it read is not read again.
    """

    def __init__(
        self,
        search: Search,
        query: ParsedQuery,
        settings: Retrieval,
        *,
        within: Collection[int] | None = None,
        earlier: TierBuilder | None = None,
    ) -> None:
        reads = replace(earlier.reads, postings=0, vectors=0) if earlier else None
        super().__init__(search, query, settings, reads)
        self.within = within
        self._known = {*(earlier.within or ())} if earlier else set[int]()

    def match_words(self) -> Match:
        """Look up the query's words in entries not searched before."""
        if self.within is None:  # all are read, since otherwise the cap would cut other words
            return super().match_words()
        known = self.reads.words.rows
        rows = {*self.within} - self._known
        words = self._words_in(self.search.scopes, self.settings.postings_cap, rows)
        for term, codes in words.rows.items():
            codes |= known.get(term, {})
        return words

    def match_entry_ngrams(self) -> Scores:
        """Look up the query's n-grams in all entries, but not in those of a single tier."""
        return super().match_entry_ngrams() if self.within is None else {}

    def nearest_entries(self) -> Scores:
        """Return the entries nearest to the query."""
        if self.search.vector is None or not self.search.scopes or self.within is None:
            return super().nearest_entries()
        cosines = self.similarities(self.within)
        near = {row: cosines[row] for row in self.within if row in cosines}
        return {row: near[row] for row in best_rows(near, PIECES) if near[row] >= MIN_COSINE}

    def in_reach(self, rows: Iterable[int]) -> list[int]:
        """Return the rows of these entries that are in the tier."""
        return [row for row in rows if self.within is None or row in self.within]
