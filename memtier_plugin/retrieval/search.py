"""From a query to ranked rows, by the profile of the settings, within a deadline.

`recall_first` gathers candidates (`candidates`), scores them by a table of signals (`signals`) and
adds these up by weight (`ranking`).  `paper` ranks as MemTier was published (`paper_search`),
`rrf` fuses ranks as True Memory was (`fused_search`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from memtier_plugin.core import allowance, plugins
from memtier_plugin.core.results import Evidence, Signal, Step
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.retrieval import ranking
from memtier_plugin.retrieval.candidates import PoolBuilder
from memtier_plugin.retrieval.evidence import QueryEvidence, gather_evidence
from memtier_plugin.retrieval.floor import CONSIDERED
from memtier_plugin.retrieval.model_weights import ranking_weights
from memtier_plugin.retrieval.query import MAX_QUERY_CHARS, QueryVector, Viewer, parse_query
from memtier_plugin.retrieval.signals import score_signals
from memtier_plugin.retrieval.time_questions import words_beside_time
from memtier_plugin.storage.index.candidate_reader import Candidate
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.sessions import DeadlineExceeded
from memtier_plugin.storage.store import Store
from memtier_plugin.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from memtier_plugin.retrieval.tiers import TierName

PluginSignals = Callable[[str, Sequence[int]], Sequence[Signal]]
RankedRow = tuple[int, float, Mapping[str, float]]  # row, score, signals


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A ranking of rows, best first, and what was read for it.

    Attributes:
        late: whether the deadline came first, so that only words count.
        partly_embedded: whether too few items have a vector of the current model to use any.
        terms: how much each word of the query counts.
        model: the embedder whose vectors were compared.
        tiers: the steps of a tiered search.
        query_evidence, evidence: what speaks in absolute terms for the best rows, by row.
    """

    ranked: Sequence[RankedRow] = ()
    postings: int = 0
    vectors: int = 0
    late: bool = False
    partly_embedded: bool = False
    terms: Mapping[str, float] = field(default_factory=dict)
    model: str | None = None
    query_evidence: QueryEvidence = field(default_factory=QueryEvidence)
    evidence: Mapping[int, Evidence] = field(default_factory=dict)
    tiers: tuple[Step, ...] = ()


def plugin_signals(store: Store) -> PluginSignals | None:
    """Return what asks the plugins for their signals; None without such a plugin."""
    if not plugins.gives_signals():
        return None

    def collect(query: str, rows: Sequence[int]) -> Sequence[Signal]:
        stored = store.reader().items_by_row(rows)
        return plugins.collect_signals(query, [stored[row].item for row in rows])

    return collect


class Search:
    """The queries of one viewer, one after another, against one state of a project."""

    def __init__(
        self,
        reader: Reader,
        tokenizer: Tokenizer,
        settings: Settings,
        viewer: Viewer,
        until: float | None = None,
        project_names: Collection[str] = (),
    ) -> None:
        self._project_names = project_names
        self._reader = reader
        self._tokenizer = tokenizer
        self._settings = settings
        self._viewer = viewer
        self._until = until
        self._scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)
        self._shared = reader.shared_scopes(viewer.people)
        self._partly_embedded = False
        self._vector: QueryVector | None = None
        self._hypothetical: QueryVector | None = None
        self._builder: PoolBuilder | None = None

    def rank(
        self,
        query: str,
        vector: QueryVector | None = None,
        plugin_signals: PluginSignals | None = None,
        hypothetical: QueryVector | None = None,
        reach: TierName | None = None,
    ) -> SearchResult:
        """Rank by the profile of the settings.

        Args:
            hypothetical: of a made-up answer, where one was asked for.
            reach: the tier that a tiered search goes to; None lets rules decide.

        Raises:
            DeadlineExceeded: then `rank_by_words` has something to serve.
        """
        # While a new model is at work, recall goes by words.
        self._partly_embedded = vector is not None and not self._is_covered(vector.model)
        self._vector = None if self._partly_embedded else vector
        self._hypothetical = None if self._partly_embedded else hypothetical
        self._builder = None
        if self._settings.retrieval.profile == "paper":
            return self._rank_as_published(query)
        if self._settings.retrieval.profile == "rrf":
            return self._rank_fused(query)
        if self._settings.retrieval.is_tiered:
            return self._rank_by_tiers(query, plugin_signals, reach)
        return self._rank_recall_first(query, plugin_signals)

    def _rank_by_tiers(
        self, query: str, plugin_signals: PluginSignals | None, reach: TierName | None
    ) -> SearchResult:
        """Rank tier by tier until what is found is enough; a late result is that of a tier before.

        Raises:
            DeadlineExceeded: before anything was ranked.
        """
        from memtier_plugin.retrieval.tiers import TIERS, is_sufficient, tier_rows

        steps: list[Step] = []
        postings = vectors = 0
        result: SearchResult | None = None
        for name, rows in tier_rows(self._reader, self._scopes, self._settings):
            if reach is not None and TIERS.index(name) < TIERS.index(reach):
                continue
            started = time.monotonic()
            try:
                result = self._rank_recall_first(query, plugin_signals, rows, self._builder)
            except DeadlineExceeded:
                if result is None:
                    raise
                result = replace(result, late=True)
                break
            ms, read = (time.monotonic() - started) * 1000, result.postings + result.vectors
            steps.append(Step(name=name, ms=ms, read=read))
            postings, vectors = postings + result.postings, vectors + result.vectors
            evidence = [result.evidence[row] for row, _, _ in result.ranked[:CONSIDERED]]
            if reach or is_sufficient(result.query_evidence, evidence):
                break
        assert result is not None  # there is always an archive
        return replace(result, postings=postings, vectors=vectors, tiers=tuple(steps))

    def rank_by_words(self) -> SearchResult:
        """Rank by words alone, as far as these were read: what a late recall serves."""
        if self._builder is None:
            return SearchResult(late=True, partly_embedded=self._partly_embedded)
        pool = self._builder.lexical_pool()
        values = ranking.scale_by_max(pool.bm25)
        ranked = self._order(pool.candidates, {"words": values}, {"words": 1.0})
        query_evidence, evidence = gather_evidence(pool, [row for row, _, _ in ranked])
        result = self._result(self._builder, ranked, late=True)
        return replace(result, query_evidence=query_evidence, evidence=evidence)

    def _rank_recall_first(
        self,
        query: str,
        plugin_signals: PluginSignals | None,
        within: Collection[int] | None = None,
        earlier: PoolBuilder | None = None,
    ) -> SearchResult:
        parsed = parse_query(query, self._viewer.at, self._tokenizer, self._project_names)
        beside = words_beside_time(parsed.text, parsed.spans)
        if beside is not None:
            topic = {*self._tokenizer.words(" ".join(beside))}
            parsed = replace(parsed, by_time=True, topic_terms=topic)
        model = self._vector.model if self._vector else None
        own_weights = ranking_weights(self._settings.retrieval.weights, model)
        self._builder = builder = PoolBuilder(
            self._reader,
            replace(self._settings.retrieval, weights=own_weights),
            self._viewer,
            parsed,
            self._vector,
            self._scopes,
            self._shared,
            self._check,
            self._settings.people.profiles,
            self._hypothetical,
            within,
            earlier,
        )
        pool = builder.build()
        signals = score_signals(pool)
        weights = asdict(own_weights)
        rows = [candidate.row for candidate in pool.candidates]
        for signal in plugin_signals(parsed.text, rows) if plugin_signals else ():
            signals[signal.name] = list(signal.values)
            weights[signal.name] = signal.weight
        ranked = self._order(pool.candidates, signals, weights)
        query_evidence, evidence = gather_evidence(pool, [row for row, _, _ in ranked], model)
        result = self._result(builder, ranked)
        return replace(result, model=model, query_evidence=query_evidence, evidence=evidence)

    def _result(
        self, builder: PoolBuilder, ranked: Sequence[RankedRow], *, late: bool = False
    ) -> SearchResult:
        return SearchResult(
            ranked, builder.postings, builder.vectors, late, self._partly_embedded, builder.terms
        )

    def _order(
        self,
        candidates: Sequence[Candidate],
        signals: Mapping[str, Sequence[float]],
        weights: Mapping[str, float],
    ) -> list[RankedRow]:
        limit = self._settings.retrieval.candidates
        ids = [candidate.id for candidate in candidates]
        ranked = ranking.rank(ids, signals, weights, limit)
        return [(candidates[r.index].row, r.score, r.signals) for r in ranked]

    def _rank_as_published(self, query: str) -> SearchResult:
        """Rank as MemTier was published: facts choose sessions, eq. 2 scores their entries."""
        from memtier_plugin.retrieval.paper_search import PaperSearch

        search = PaperSearch(
            self._reader, self._settings, self._scopes, self._shared, self._viewer.at, self._check
        )
        order = search.rank(query[:MAX_QUERY_CHARS], self._similarity if self._vector else None)
        return SearchResult(
            order.ranked,
            order.postings,
            order.vectors,
            partly_embedded=self._partly_embedded,
        )

    def _rank_fused(self, query: str) -> SearchResult:
        """Rank as True Memory was published: the ranks by words and by vectors are fused."""
        from memtier_plugin.retrieval.fused_search import FusedSearch

        parsed = parse_query(query, self._viewer.at, self._tokenizer)
        search = FusedSearch(
            self._reader, self._settings, [*self._scopes, *self._shared], self._check
        )
        order = search.rank(parsed, self._vector, self._hypothetical)
        return SearchResult(
            order.ranked,
            order.postings,
            order.vectors,
            partly_embedded=self._partly_embedded,
            terms=order.terms,
            model=self._vector.model if self._vector else None,
        )

    def _similarity(self, rows: Sequence[int]) -> Mapping[int, float]:
        assert self._vector is not None  # or else not handed on
        vectors = self._reader.vectors
        cosines = vectors.similarity(self._vector.model, self._vector.vector, rows)
        return {row: max(0.0, cosine) for row, cosine in cosines.items()}

    def _is_covered(self, model: str) -> bool:
        return self._reader.vectors.is_covered(model, [*self._scopes, *self._shared])

    def _check(self) -> None:
        allowance.require()
        if self._until is not None and time.monotonic() > self._until:
            raise DeadlineExceeded("the deadline has passed")
