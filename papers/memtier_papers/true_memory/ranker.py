"""The profile `rrf` as a ranker, and the signal of surprise."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from memtier_papers.true_memory import fused_search
from memtier_papers.true_memory.settings import Rrf
from memtier_papers.true_memory.surprise import fingerprints, line_surprise
from memtier_plugin.core.records import Entry
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.retrieval.candidates import best_rows
from memtier_plugin.retrieval.search import Ranker, Search, SearchResult
from memtier_plugin.retrieval.signals import Pool
from memtier_plugin.storage.index.records import to_utf8_all
from memtier_plugin.storage.readers import Reader

_SURPRISING: Final = 50  # top hits of the first ranking whose surprise is computed


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
        fused = fused_search.FusedSearch(
            search.reader, search.settings, [*search.scopes, *search.shared], search.check
        )
        expansion = search.expansion.vector if search.expansion else None
        order = fused.rank(search.parse(query), search.vector, expansion)
        return SearchResult(
            order.ranked,
            order.postings,
            order.vectors,
            partly_embedded=search.partly_embedded,
            terms=order.terms,
            model=search.vector.model if search.vector else None,
        )


RRF: Final = FusedRanker()


def score_surprise(pool: Pool, reader: Reader, scopes: Sequence[int]) -> list[float]:
    """Score how much of an entry no earlier line of the scopes said (predictive layer).

    A fingerprint is new if one of its words is.
    """
    words = pool.query.tokenizer.words
    texts = {
        row: stored.item.text
        for row, stored in reader.items_by_row(best_rows(pool.first, _SURPRISING)).items()
        if isinstance(stored.item, Entry)
    }
    parts = {
        mark: words(mark.partition(":")[2])
        for text in texts.values()
        for mark in fingerprints(text)
    }
    words_of_all = {*chain.from_iterable(parts.values())}
    first = reader.plugin_tables(partial(_first_rows, scopes, words_of_all))
    since = {mark: {first.get(word) for word in words} for mark, words in parts.items()}
    return pool.values(
        {row: line_surprise(text, partial(_is_first_in, since, row)) for row, text in texts.items()}
    )


def _first_rows(scopes: Sequence[int], words: Collection[str], index: Any) -> dict[str, int]:
    """Return the first row, in order of writing, with each of these index words."""
    rows = index.execute(
        """SELECT term, min(item) FROM (
             SELECT words.value AS term,
               (SELECT item FROM postings WHERE scope = scopes.value AND term = words.value
                ORDER BY item LIMIT 1) AS item
             FROM json_each(?) AS words, json_each(?) AS scopes)
           WHERE item IS NOT NULL GROUP BY term""",
        (json.dumps(to_utf8_all(words)), json.dumps(list(scopes))),
    )
    return {str(term): int(row) for term, row in rows}


def _is_first_in(since: Mapping[str, Collection[int | None]], row: int, mark: str) -> bool:
    """Return whether a fingerprint occurs first in a row."""
    return row in since[mark]
