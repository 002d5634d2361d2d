"""From a query to ranked rows within a deadline: its vector, its ranker, lines not indexed yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import EmbeddingUnavailable, LedgerError
from memtier_plugin.core.events import ForgetEvent, WithdrawEvent, payload_of
from memtier_plugin.core.paths import PROJECT_JOURNAL
from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import Evidence, Hit, Signal, Step
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.settings.yaml_file import plugin_sections
from memtier_plugin.providers.embedding.load import (
    RemoteEmbedder,
    SlowEmbedder,
    UnavailableEmbedder,
    encode_query,
    quantise,
)
from memtier_plugin.retrieval.candidates import Expansion, PoolBuilder, Reads, SearchView
from memtier_plugin.retrieval.floor import QueryEvidence, gather_evidence
from memtier_plugin.retrieval.prompt_kind import words_beside_time
from memtier_plugin.retrieval.query import MAX_QUERY_CHARS, ParsedQuery, QueryVector, parse_query
from memtier_plugin.retrieval.signals import (
    ScoredRow,
    rank,
    ranking_weights,
    scale_by_max,
    score_signals,
)
from memtier_plugin.retrieval.visibility import Viewer
from memtier_plugin.storage.index.candidate_reader import Candidate
from memtier_plugin.storage.index.items import embed_texts
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor, Store
from memtier_plugin.text.tokenizer import Tokenizer

# -- From a query to ranked rows, by the profile of the settings, within a deadline
#
# `recall_first` gathers candidates (`candidates`), scores them by a table of signals (`signals`)
# and adds these up by weight (`ranking`).  Other profiles are rankers of plugins (`Ranker`).

PluginSignals = Callable[[str, Sequence[int]], Sequence[Signal]]


class SearchResult(Struct, frozen=True):
    """A ranking of rows, best first, and what was read for it.

    Attributes:
        late: whether the deadline came first, so that only words count.
        partly_embedded: whether too few items have a vector of the current model to use any.
        terms: how much each word of the query counts.
        vector: of the query, if vectors were compared.
        steps: the ranker's own steps.
        query_evidence, evidence: what speaks in absolute terms for the best rows, by row.
    """

    ranked: Sequence[ScoredRow] = ()
    postings: int = 0
    vectors: int = 0
    late: bool = False
    partly_embedded: bool = False
    terms: Mapping[str, float] = field(default_factory=dict)
    vector: QueryVector | None = None
    query_evidence: QueryEvidence = field(default_factory=QueryEvidence)
    evidence: Mapping[int, Evidence] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    @property
    def model(self) -> str | None:
        """The embedder whose vectors were compared."""
        return self.vector.model if self.vector else None


def plugin_signals(store: Store) -> PluginSignals | None:
    """Return what asks the plugins for their signals; None without such a plugin."""
    if not plugins.gives_signals():
        return None

    def collect(query: str, rows: Sequence[int]) -> Sequence[Signal]:
        stored = store.reader().items_by_row(rows)
        return plugins.collect_signals(query, [stored[row].item for row in rows])

    return collect


class Search(SearchView):
    """The queries of one viewer, one after another, against one state of a project.

    Attributes:
        partly_embedded: whether too few items have a vector of the current model to use any.
        builder: what gathered the candidates of the last query.
    """

    def __init__(
        self,
        reader: Reader,
        tokenizer: Tokenizer,
        settings: Settings,
        viewer: Viewer,
        until: float | None = None,
        project_names: Collection[str] = (),
    ) -> None:
        super().__init__(reader, settings, viewer, until)
        self.tokenizer = tokenizer
        self.partly_embedded = False
        self.builder: PoolBuilder | None = None
        self._project_names = project_names
        self._plugin_signals: PluginSignals | None = None

    def rank(
        self,
        query: str,
        vector: QueryVector | None = None,
        plugin_signals: PluginSignals | None = None,
        expansion: Expansion | None = None,
        stage: str | None = None,
    ) -> SearchResult:
        """Rank by the profile of the settings.

        Args:
            expansion: another text to search for.
            stage: the part of the store to search; None leaves it to the profile's ranker.

        Raises:
            DeadlineExceeded: then `rank_by_words` has something to serve.
        """
        # While a new model is at work, recall goes by words.
        self.partly_embedded = vector is not None and not self._is_covered(vector.model)
        self.vector = None if self.partly_embedded else vector
        self.expansion = None if self.partly_embedded else expansion
        self._plugin_signals = plugin_signals
        self.builder = None
        return find_ranker(self.settings).rank(self, query, stage)

    def rank_by_words(self) -> SearchResult:
        """Rank by words alone, as far as these were read: what a late recall serves."""
        if self.builder is None:
            return SearchResult(late=True, partly_embedded=self.partly_embedded)
        pool = self.builder.lexical_pool()
        values = scale_by_max(pool.bm25)
        ranked = self._order(pool.candidates, {"words": values}, {"words": 1.0})
        query_evidence, evidence = gather_evidence(pool, [row for row, _, _ in ranked])
        result = self._result(self.builder.reads, ranked, late=True)
        return replace(result, query_evidence=query_evidence, evidence=evidence)

    def rank_by_signals(
        self, query: str, make_builder: Callable[..., PoolBuilder] = PoolBuilder
    ) -> SearchResult:
        """Rank as `recall_first` does: by the weighted sum of the candidates' signals.

        Args:
            make_builder: what gathers the candidates, made with the arguments of `PoolBuilder`.

        Raises:
            DeadlineExceeded: before anything was ranked.
        """
        parsed = self.parse(query)
        topic_words = words_beside_time(parsed.text, parsed.spans)
        if topic_words is not None:
            topic = {*self.tokenizer.words(" ".join(topic_words))}
            parsed = replace(parsed, by_time=True, topic_terms=topic)
        model = self.vector.model if self.vector else None
        own_weights = ranking_weights(self.settings.retrieval.weights, model)
        weighted = replace(self.settings.retrieval, weights=own_weights)
        self.builder = builder = make_builder(self, parsed, weighted)
        pool = builder.build()
        signals = score_signals(pool)
        for name, signal in plugins.find_pool_signals(self.settings).items():
            signals[name] = signal(pool, self.reader, self.scopes)
        weights = signal_weights(self.settings, model)
        rows = [candidate.row for candidate in pool.candidates]
        collect = self._plugin_signals
        for added in collect(parsed.text, rows) if collect else ():
            signals[added.name] = list(added.values)
            weights[added.name] = added.weight
        ranked = self._order(pool.candidates, signals, weights)
        query_evidence, evidence = gather_evidence(pool, [row for row, _, _ in ranked], model)
        result = self._result(builder.reads, ranked)
        return replace(result, vector=self.vector, query_evidence=query_evidence, evidence=evidence)

    def _result(
        self, reads: Reads, ranked: Sequence[ScoredRow], *, late: bool = False
    ) -> SearchResult:
        return SearchResult(
            ranked, reads.postings, reads.vectors, late, self.partly_embedded, reads.terms
        )

    def _order(
        self,
        candidates: Sequence[Candidate],
        signals: Mapping[str, Sequence[float]],
        weights: Mapping[str, float],
    ) -> list[ScoredRow]:
        limit = self.settings.retrieval.candidates
        ids = [candidate.id for candidate in candidates]
        ranked = rank(ids, signals, weights, limit)
        return [(candidates[r.index].row, r.score, r.signals) for r in ranked]

    def parse(self, query: str) -> ParsedQuery:
        """Return a query's words, times and names."""
        return parse_query(query, self.viewer.at, self.tokenizer, self._project_names)

    def similarity(self, rows: Sequence[int]) -> Mapping[int, float]:
        """Return the cosines of rows to the query's vector, 0 for those that point away."""
        assert self.vector is not None  # of a query without one nobody asks
        vectors = self.reader.vectors
        cosines = vectors.similarity(self.vector.model, self.vector.vector, rows)
        return {row: max(0.0, cosine) for row, cosine in cosines.items()}

    def _is_covered(self, model: str) -> bool:
        return self.reader.vectors.is_covered(model, [*self.scopes, *self.shared])


# -- rankers ---------------------------------------------------------------------------------------


class BlockSize(Protocol):
    """The settings that limit a block."""

    @property
    def k(self) -> int:
        """The most lines."""

    @property
    def token_budget(self) -> int:
        """The most tokens."""


class Ranker:
    """Ranks as `recall_first` does; the rankers of plugins override what they do otherwise.

    Attributes:
        merges: whether hits are read together: near-duplicates become one, newer facts come before
            those that they contradict, what the project is called names nothing in it, and a vague
            query gets follow-up searches. Off offers the hits as they were ranked.
        refines: whether new lines are embedded first, plugins may rerank or expand the query, and
            long lines are cut to what the query asks for.
        limits: why it may pass over what shares words with the query.
        stages: parts of the store that are searched one after the other, each with those before
            it; the last one is all of it.
    """

    merges: bool = True
    refines: bool = True
    limits: str = (
        "the shared words are too common: only the newest postings, up to "
        "retrieval.postings_cap, are read"
    )
    stages: Sequence[str] = ()

    def size(self, settings: Settings) -> BlockSize:
        """Return how large a block is where the request does not say."""
        return settings.retrieval

    def weights(self, settings: Settings, model: str | None) -> dict[str, float]:
        """Return what each signal counts, without those that count nothing.

        Args:
            model: the embedder whose vectors are compared, None where none are.
        """
        weights = signal_weights(settings, model)
        return {name: weight for name, weight in weights.items() if weight}

    def rank(self, search: Search, query: str, stage: str | None) -> SearchResult:
        """Rank what a search may see.

        Args:
            stage: the only stage to search; None leaves it to the ranker.

        Raises:
            DeadlineExceeded: before anything was ranked.
        """
        return search.rank_by_signals(query)

    def find_problems(self, settings: Settings, *, embeds: bool) -> Iterator[str]:
        """Yield what makes its results less than they should be.

        Args:
            embeds: whether there is an embedding model.
        """
        yield from settings.missing("retrieval.profile", "retrieval.search")

    def explain_missing(self, result: SearchResult) -> tuple[str, str] | None:
        """Return why items may be missing from a result (reason, message), if by this ranker."""
        return None


RECALL_FIRST: Final = Ranker()


def find_ranker(settings: Settings) -> Ranker:
    """Return the ranker that the settings choose."""
    name = settings.retrieval.ranker
    ranker: Ranker | None = plugins.find_ranker(name) if name else None
    return ranker or RECALL_FIRST


def signal_weights(settings: Settings, model: str | None) -> dict[str, float]:
    """Return what each signal counts, those of plugins included; see `ranking_weights`."""
    weights = asdict(ranking_weights(settings.retrieval.weights, model))
    for section, path in plugin_sections():
        if path == ("retrieval", "weights"):
            weights |= asdict(settings.of(section))
    return weights


# -- The query as a vector, and vectors for the newest items that have none

_MAX_EMBEDDED: Final = 64  # items embedded before a recall; the daemon does the rest
_MAX_ENCODED: Final = 4  # the same where each takes milliseconds
_NEWEST: Final = 256  # items looked at for that


def embed_query(
    actor: Actor, text: str, viewer: Viewer, until: float | None, degradations: list[str]
) -> QueryVector | None:
    """Return a query's vector, or None if nothing is indexed to compare it with.

    Args:
        until: when an endpoint must have answered, a moment of ``time.monotonic()``.
        degradations: gets the reason why there is none.
    """
    store, embedder = actor.store, actor.store.embedder
    if embedder is None:
        return None
    text = text[:MAX_QUERY_CHARS]
    if isinstance(embedder, RemoteEmbedder):
        # Nothing is sent before there is something to compare it with, and never a secret.
        reader = store.reader()
        scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)
        scopes += reader.shared_scopes(viewer.people)
        if not reader.vectors.is_covered(embedder.name, scopes):
            degradations.append("not embedded yet")
            return None
        text = actor.redactor.redact(text).text
    try:
        [vector] = quantise([encode_query(embedder, text, until)])
    except EmbeddingUnavailable as error:
        degradations.append(f"embedding: {error}")
        return None
    return QueryVector(embedder.name, vector) if any(vector) else None


def embed_newest(store: Store) -> None:
    """Embed some new items that have no vector of the current model.

    A static model embeds what is written at once; this is for encoders and the models of
    plugins.  The rest, and what was written under another model, is left to `operations.reembed`.
    """
    embedder = store.embedder
    if embedder is None or isinstance(embedder, RemoteEmbedder | UnavailableEmbedder):
        return
    limit = _MAX_ENCODED if isinstance(embedder, SlowEmbedder) else _MAX_EMBEDDED
    missing = store.reader().rows_without_vector(embedder.name, limit, _NEWEST)
    if missing:
        store.put_vectors(embedder.name, embed_texts(embedder, missing))


# -- Read ledger lines that are not indexed yet, for a recall that cannot wait for the index

_log = logging.getLogger("memtier")


class Unindexed(Struct, frozen=True):
    """The viewer's entries that the index lacks, and the ids of what was forgotten meanwhile."""

    entries: Sequence[Entry] = ()
    forgotten: frozenset[str] = frozenset()


def read_unindexed(store: Store, agent: str, viewer: Viewer) -> Unindexed:
    """Read what the index could not take in yet: an agent's own entries, and what was forgotten."""
    try:
        events = store.unindexed_events(PROJECT_JOURNAL)
        entries = store.unindexed_entries(agent)
    except LedgerError as error:  # the label says that the index is behind
        _log.warning("%s: %s", agent, error)
        return Unindexed()
    return Unindexed(
        [
            entry
            for entry in entries
            if entry.retrievable
            and (viewer.read_all or (entry.sender or "") == (viewer.sender or ""))
        ],
        frozenset(
            item
            for event in events
            if isinstance(payload := payload_of(event), ForgetEvent | WithdrawEvent)
            for item in payload.items
        ),
    )


def add_unindexed(store: Store, query: str, unindexed: Unindexed, hits: Sequence[Hit]) -> list[Hit]:
    """Add the entries that share words with a query to the hits; drop what was forgotten."""
    reader, words = store.reader(), store.tokenizer.words
    merged = [hit for hit in hits if hit.id not in unindexed.forgotten]
    seen = {*unindexed.forgotten, *(hit.id for hit in merged)}
    terms = set(words(query))
    for entry in unindexed.entries:
        shared = terms.intersection(words(entry.content))
        if shared and entry.id not in seen and not reader.state(entry.id).forgotten:
            share = len(shared) / len(terms)
            signals, sources = {"words": share}, (entry.source,)
            evidence = Evidence(coverage=share, own_coverage=share)
            merged.append(
                Hit(item=entry, score=share, signals=signals, sources=sources, evidence=evidence)
            )
    return sorted(merged, key=lambda hit: (-hit.score, hit.id))
