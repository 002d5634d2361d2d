"""Rank one query as published in MemTier: facts choose sessions, eq. 2 ranks their entries.

`scorer` has the arithmetic (MemTier, section 3.2); this applies it to the index.  The variants in
the paper's appendices are settings: Stage 1 by BM25, vectors or both (appendix B), scoping
(appendix C), normalised BM25 (appendix E).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from memtier_papers.memtier import scorer
from memtier_papers.memtier.scorer import Document, Scored
from memtier_papers.memtier.settings import Paper
from memtier_plugin.core.records import Fact
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.retrieval.signals import DAY_SECONDS
from memtier_plugin.storage.index.candidate_reader import Candidate
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.tokenizer import plain_words

_BATCH: Final = 2_000  # documents read between two checks of the deadline

Similarity = Callable[[Sequence[int]], Mapping[int, float]]  # of rows to the query


@dataclass(frozen=True, slots=True)
class PaperRanking:
    """Rows with score and signals, best first, and the counts of what was read."""

    ranked: list[tuple[int, float, Mapping[str, float]]]
    postings: int
    vectors: int


class PaperSearch:
    """The `paper` profile for one viewer."""

    def __init__(
        self,
        reader: Reader,
        settings: Settings,
        scopes: Sequence[int],
        shared: Sequence[int],
        at: datetime,
        check: Callable[[], None],
    ) -> None:
        """Bind to the viewer's view.

        Args:
            scopes: of the entries that the viewer may see.
            shared: of the facts that it may see.
            at: the time that counts as "now".
            check: called between the steps; raises once the deadline has passed.
        """
        self._reader = reader
        self._settings = settings
        self._scopes = scopes
        self._shared = shared
        self._at = at
        self._check = check
        self._vectors = 0

    def rank(self, query: str, similarity: Similarity | None) -> PaperRanking:
        """Rank facts and entries together.

        Args:
            similarity: None makes Stage 1 use words only.
        """
        words, reader = plain_words(query), self._reader
        facts = self._documents(reader.visible_rows(self._shared))
        fact_scores = _okapi(facts, words)
        self._check()
        rows = reader.visible_rows(self._scopes)
        scope: tuple[str, ...] = ()
        if self._settings.of(Paper).scope == "sessions":
            visible = {str(candidate.session) for candidate in reader.candidates(rows)}
            scope = self._select_sessions(facts, fact_scores, visible, similarity)
        if scope:
            rows = reader.visible_rows(self._scopes, [*map(int, scope)])
        entries = self._documents(rows)
        self._check()
        pool = [*zip(entries, _okapi(entries, words), strict=True)]
        pool += [pair for pair in zip(facts, fact_scores, strict=True) if pair[1] > 0]
        row_of = reader.rows_of(document.id for document, _ in pool)
        cosines: Mapping[int, float] = {}
        if self._settings.of(Paper).weights.semantic and similarity is not None:
            cosines = similarity([*row_of.values()])
            self._vectors += len(cosines)
        scored = self._score(pool, scope, {id: cosines.get(row, 0.0) for id, row in row_of.items()})
        return PaperRanking(
            [(row_of[s.document.id], s.score, s.signals) for s in scored],
            postings=len(pool),
            vectors=self._vectors,
        )

    def _score(
        self,
        pool: Sequence[tuple[Document, float]],
        scope: Sequence[str],
        cosines: Mapping[str, float],
    ) -> list[Scored]:
        """Return the documents of the pool, scored by eq. 2, best first."""
        settings = self._settings
        weights = asdict(settings.of(Paper).weights)
        # Over all candidates, so that a monotonic scale cannot reorder what BM25 alone ranks.
        scaled = scorer.normalise_scores([score for _, score in pool], settings.of(Paper).normalise)
        return scorer.order_scored(
            [
                scorer.score_document(
                    document,
                    score,
                    scope,
                    weights,
                    rate=settings.retrieval.decay_lambda,
                    threshold=settings.retrieval.decay_bypass,
                    scaled=value,
                    semantic=cosines[document.id],
                )
                for (document, score), value in zip(pool, scaled, strict=True)
            ]
        )

    def _select_sessions(
        self,
        facts: Sequence[Document],
        scores: Sequence[float],
        visible: set[str],
        similarity: Similarity | None,
    ) -> tuple[str, ...]:
        """Return the sessions that the facts select: by words, by vectors, or by both ranks."""
        how, limit = self._settings.of(Paper).stage_one, self._settings.retrieval.sessions
        if how == "bm25" or similarity is None:
            return scorer.select_sessions(facts, scores, visible, limit)
        rows = self._reader.rows_of(fact.id for fact in facts)
        cosines = similarity([*rows.values()])
        self._vectors += len(cosines)
        near = [cosines.get(rows[fact.id], 0.0) for fact in facts]
        if how == "dense":
            return scorer.select_sessions(facts, near, visible, limit)
        lists = [scorer.select_sessions(facts, values, visible) for values in (scores, near)]
        return tuple(scorer.fuse_ranks(lists))[:limit]

    def _documents(self, rows: Sequence[int]) -> list[Document]:
        documents: list[Document] = []
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            candidates = {candidate.row: candidate for candidate in self._reader.candidates(batch)}
            documents += (
                self._document(stored, candidates[row])
                for row, stored in self._reader.items_by_row(batch).items()
            )
            self._check()
        # In a fixed order: rank-bm25 adds floats in the order of its corpus.
        return sorted(documents, key=lambda document: document.id)

    def _document(self, stored: Stored, candidate: Candidate) -> Document:
        item = stored.item
        sessions: tuple[str, ...] = (str(candidate.session),)
        if isinstance(item, Fact):
            sessions = tuple(map(str, self._reader.fact_sessions(item.id, self._scopes)))
        age = (self._at.timestamp() - candidate.observed) / DAY_SECONDS
        return Document(
            id=item.id,
            words=plain_words(item.text),
            sessions=sessions,
            age_days=max(0.0, age),
            weight=candidate.weight,
            tier=candidate.tier,
            timestamp=item.timestamp.timestamp(),
        )


def _okapi(documents: Sequence[Document], words: Sequence[str]) -> list[float]:
    return scorer.okapi_scores([document.words for document in documents], words)
