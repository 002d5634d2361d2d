"""One query ranked as MemTier published it (3.2): facts choose sessions, eq. 2 ranks the entries.

`paper` has the arithmetic; here it meets the index.  The variants of its appendices are settings:
Stage 1 by BM25, vectors or both (B), scoping (C), normalised BM25 (E).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from memtier_plugin.core.records import Fact
from memtier_plugin.core.settings.load import Settings
from memtier_plugin.retrieval import paper_scorer, ranking
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.text.tokenizer import plain_words

MAX_POOL: Final = 20_000  # documents that are scored at most, of facts and of entries

DenseScorer = Callable[[str, Sequence[int]], Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class PaperRanking:
    """Rows with their score and signals, best first, and what was read for them."""

    ranked: list[tuple[int, float, Mapping[str, float]]]
    postings: int
    vectors: int


class PaperSearch:
    """The `paper` profile for one asker."""

    def __init__(
        self,
        reader: IndexReader,
        settings: Settings,
        scopes: Sequence[int],
        at: datetime,
        check: Callable[[], None],
    ) -> None:
        """Take who asks.

        Args:
            scopes: what the asker may see, besides the shared facts.
            at: what "now" is.
            check: called between the steps; raises when the deadline has passed.
        """
        self._reader = reader
        self._settings = settings
        self._scopes = scopes
        self._at = at
        self._check = check
        self._vectors = 0

    def rank(self, query: str, dense: DenseScorer | None) -> PaperRanking:
        """Rank facts and entries together.

        Args:
            dense: how near rows are to a query; without it Stage 1 goes by words alone.
        """
        words, settings = plain_words(query), self._settings.paper
        facts = self._documents(
            self._reader.newest_rows(self._reader.shared_scopes(), None, MAX_POOL)
        )
        raw_facts = paper_scorer.okapi_scores([document.words for document in facts], words)
        self._check()
        rows = self._reader.newest_rows(self._scopes, None, MAX_POOL)
        scope: tuple[str, ...] = ()
        if settings.scope == "sessions":
            visible = {str(place.session) for place in self._reader.candidates(rows)}
            scope = self._stage_one(query, facts, raw_facts, visible, dense)
        if scope:
            rows = self._reader.newest_rows(self._scopes, [*map(int, scope)], MAX_POOL)
        entries = self._documents(rows)
        self._check()
        raw = paper_scorer.okapi_scores([document.words for document in entries], words)
        pool = [*zip(entries, raw, strict=True)]
        pool += [(fact, score) for fact, score in zip(facts, raw_facts, strict=True) if score > 0]
        # Over all candidates, so that a monotonic scale cannot reorder what BM25 alone ranks.
        scaled = paper_scorer.normalise_scores([score for _, score in pool], settings.normalise)
        ranked = paper_scorer.order_scored(
            [
                paper_scorer.score_document(
                    document,
                    score,
                    scope,
                    asdict(settings.weights),
                    rate=self._settings.retrieval.decay_lambda,
                    threshold=self._settings.retrieval.decay_bypass,
                    scaled=value,
                )
                for (document, score), value in zip(pool, scaled, strict=True)
            ]
        )
        rows_of = self._reader.rows_of(scored.document.id for scored in ranked)
        return PaperRanking(
            [(rows_of[s.document.id], s.score, s.signals) for s in ranked],
            postings=len(pool),
            vectors=self._vectors,
        )

    def _stage_one(
        self,
        query: str,
        facts: Sequence[paper_scorer.Document],
        raw: Sequence[float],
        visible: set[str],
        dense: DenseScorer | None,
    ) -> tuple[str, ...]:
        """Return the sessions that the facts choose: by words, by vectors, or by both ranks."""
        how, limit = self._settings.paper.stage_one, self._settings.retrieval.sessions
        if how == "bm25" or dense is None:
            return paper_scorer.select_sessions(facts, raw, visible, limit)
        rows = self._reader.rows_of(fact.id for fact in facts)
        near = dense(query, [*rows.values()])
        self._vectors += len(near)
        likeness = [near.get(rows[fact.id], 0.0) for fact in facts]
        if how == "dense":
            return paper_scorer.select_sessions(facts, likeness, visible, limit)
        lists = [paper_scorer.select_sessions(facts, scores, visible) for scores in (raw, likeness)]
        return tuple(paper_scorer.fuse_ranks(lists))[:limit]

    def _documents(self, rows: Sequence[int]) -> list[paper_scorer.Document]:
        places = {place.row: place for place in self._reader.candidates(rows)}
        found = []
        for row, stored in self._reader.items_by_row(rows).items():
            place, item = places[row], stored.item
            fact = isinstance(item, Fact)
            sessions = (
                tuple(map(str, self._reader.fact_sessions(item.id, self._scopes)))
                if fact
                else (str(place.session),)
            )
            age = (self._at.timestamp() - place.observed) / ranking.DAY_SECONDS
            found.append(
                paper_scorer.Document(
                    id=item.id,
                    words=plain_words(item.text if isinstance(item, Fact) else item.content),
                    sessions=sessions,
                    age_days=max(0.0, age),
                    weight=place.weight,
                    tier=place.tier,
                    timestamp=item.timestamp.timestamp(),
                )
            )
        # In a fixed order: rank-bm25 adds floats in the order of its corpus.
        return sorted(found, key=lambda document: document.id)
