"""The candidates of a query: by words, n-grams, vectors and facts, and the turns next to them.

What is read has a bound: at most ``postings_cap`` word postings, a quarter of that for facts and
for n-grams, ``vectors_cap`` packed signs, and a fixed number of reads for each candidate, however
large the store is.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from memtier_plugin.core import concurrency, plugins
from memtier_plugin.core.results import Step
from memtier_plugin.core.settings.schema import Retrieval, Settings
from memtier_plugin.retrieval.prompt_words import speaks_of_oneself
from memtier_plugin.retrieval.query import ParsedQuery, QueryVector, requested_kinds
from memtier_plugin.retrieval.signals import (
    DAY_SECONDS,
    Around,
    FactLinks,
    Pool,
    WordScores,
    add_scaled,
)
from memtier_plugin.retrieval.visibility import Viewer
from memtier_plugin.storage.index.candidate_reader import Candidate, Match
from memtier_plugin.storage.index.records import RowLengths
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.sessions import DeadlineExceeded
from memtier_plugin.text.tokenizer import ngrams

MIN_COSINE: Final = 0.3  # below it an item is not found by its meaning alone
FEW: Final = 8  # items, up to which any may answer a question on oneself
_WITH_NEIGHBOURS: Final = 40  # best rows whose neighbours become candidates too
_NEIGHBOURS: Final = 2  # of these on either side
_REACH: Final = 4  # turns on either side that a window looks at
_FACTS: Final = 80  # facts that take part in a ranking
PIECES: Final = 200  # the nearest to the query, whose rows may become candidates
_NEAREST: Final = 50  # of these the rows that become candidates
_SPANS: Final = 4  # times of a question, of each of which ...
_PER_SPAN: Final = 60  # ... so many rows take part, whatever their words
_NEWEST: Final = 20  # summaries that take part whatever their words, of all and of each time named

_NO_TURNS: Final[tuple[RowLengths, RowLengths]] = ([], [])

Scores = dict[int, float]  # by row


class Expansion(Struct, frozen=True):
    """Another text to search for by its meaning, beside the query.

    Attributes:
        signal: the name of the signal that its likeness gives; its weight is a setting.
        vector: of the text; None where there is none.
        step: what it took.
        problems: why there is none.
    """

    signal: str
    vector: QueryVector | None
    step: Step
    problems: tuple[str, ...] = ()


class SearchView:
    """The index as one viewer may search it, with the vectors to search by.

    Attributes:
        scopes: of the entries in sight.
        shared: of the facts in sight.
        vector: the query's, where vectors are compared.
        expansion: another text to search for.
    """

    def __init__(
        self, reader: Reader, settings: Settings, viewer: Viewer, until: float | None
    ) -> None:
        self.reader = reader
        self.settings = settings
        self.viewer = viewer
        self.scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)
        self.shared = reader.shared_scopes(viewer.people)
        self.vector: QueryVector | None = None
        self.expansion: Expansion | None = None
        self._until = until

    def check(self) -> None:
        """Stop a ranking that is late.

        Raises:
            DeadlineExceeded: the deadline has passed.
        """
        concurrency.require()
        if self._until is not None and time.monotonic() > self._until:
            raise DeadlineExceeded("the deadline has passed")


class _LinkedFacts(Struct, frozen=True):
    """The facts that are ranked, and the entries they rest on."""

    best: Sequence[Candidate]  # without summaries and timelines
    kinds: Mapping[int, str]  # the summaries and timelines, by row
    sources: Mapping[int, Sequence[int]]  # by fact, the rows of the entries it rests on
    strength: Mapping[int, float]  # by entry, of the best fact that rests on it


class Reads(Struct):
    """What was read of the index for a query so far; a search of more rows goes on with it.

    Attributes:
        words: the query's words in the entries.
        fact_words, fact_ngrams, near_facts: what facts share with the query, once it is known.
        lexical: the score by words, of entries and facts.
        by_words: the candidates by words, as soon as there are some.
        similarity: the cosines to the query that are known.
        postings, vectors: how many were read.
    """

    words: Match = field(default_factory=Match)
    fact_words: Match | None = None
    fact_ngrams: Scores | None = None
    near_facts: Scores | None = None
    lexical: Scores = {}
    by_words: Sequence[Candidate] = ()
    similarity: Scores = {}
    postings: int = 0
    vectors: int = 0

    @property
    def terms(self) -> dict[str, float]:
        """The weight (idf) of each word of the query that was looked up."""
        return (self.fact_words.idfs if self.fact_words else {}) | self.words.idfs


class PoolBuilder:
    """Gathers the candidates of one query of a search.

    Args:
        reads: of the same query's search within fewer rows.
    """

    def __init__(
        self,
        search: SearchView,
        query: ParsedQuery,
        settings: Retrieval,
        reads: Reads | None = None,
    ) -> None:
        self.search = search
        self.query = query
        self.settings = settings
        self.reads = reads or Reads()
        self.fact_scopes = [*search.shared, *self._kind_scopes()]

    def build(self) -> Pool:
        """Return the pool: the best candidates, and the turns next to the very best."""
        reads, reader, scopes = self.reads, self.search.reader, self.search.scopes
        by_ngrams = self._match()
        rows = best_rows(reads.lexical, self.settings.candidates)
        by_row = self._by_row(rows)
        reads.by_words = [*by_row.values()]
        self.search.check()
        near_entries, near_facts = self.nearest_entries(), self._nearest_facts()
        near_expansion = self._nearest_to_expansion()
        facts = self._link_facts(by_ngrams, near_facts)
        reached = [
            *best_rows(by_ngrams, _FACTS),
            *best_rows(near_entries | near_facts, _NEAREST),
            *best_rows(near_expansion, _NEAREST),
            *facts.strength,
            *facts.kinds,
            *self._rows_of_spans(),
        ]
        for row in [*facts.kinds][: 2 * _NEAREST]:
            reached += facts.sources.get(row, ())
        more = [row for row in dict.fromkeys(reached) if row not in by_row]
        by_row |= self._by_row(more)
        if reads.words.left_out:
            reads.postings += reader.complete_match(reads.words, scopes, [*rows, *more])
            reads.lexical = self._match_facts().scores() | reads.words.scores()
        near = self.similarities(by_row)
        first = add_scaled(
            by_row,
            reads.lexical,
            by_ngrams,
            facts.strength,
            {row: near[row] for row in by_row if row in near},
            {row: cosine for row, cosine in near_expansion.items() if row in by_row},
            dict.fromkeys(facts.kinds, 1.0),
        )
        links = FactLinks(
            facts.strength,
            {fact: [by_row[row].observed for row in rows] for fact, rows in facts.sources.items()},
            self._sessions(facts.best),
            facts.kinds,
        )
        by_row, around = self._with_neighbours(by_row, first)
        self.search.check()
        rows = sorted(by_row)
        sides = [around.get(row, _NO_TURNS) for row in rows]
        adjacent = [
            (before[0][0] if before else 0, after[0][0] if after else 0) for before, after in sides
        ]
        turns = {row for both in around.values() for row, _ in chain(*both)}
        nearby = {*rows, *chain.from_iterable(adjacent)} - {0}
        return replace(
            self._pool([by_row[row] for row in rows], turns, by_ngrams),
            adjacent=adjacent,
            around=around,
            facts=links,
            similarity=None if self.search.vector is None else self.similarities(nearby),
            expansion=self._likeness(rows),
            first=first,
        )

    def lexical_pool(self) -> Pool:
        """Return the candidates by words as far as these were read, without the turns around."""
        return self._pool(self.reads.by_words)

    def _pool(
        self,
        candidates: Sequence[Candidate],
        turns: Iterable[int] = (),
        ngrams: Scores | None = None,
    ) -> Pool:
        """Return candidates with what is known by words.

        Args:
            turns: the rows around them, whose words are needed as well.
        """
        reads, rows = self.reads, [candidate.row for candidate in candidates]
        terms = reads.words.terms_of({*rows, *turns})
        facts = reads.fact_words or Match()
        return Pool(
            query=self.query,
            settings=self.settings,
            candidates=candidates,
            words=WordScores(reads.words, facts, reads.lexical, terms, ngrams or {}),
            bm25=[reads.lexical.get(row, 0.0) for row in rows],
            adjacent=[(0, 0)] * len(rows),
        )

    # -- words and n-grams ---------------------------------------------------------------------

    def _match(self) -> Scores:
        """Look up the query's words; return the scores of rows by n-grams."""
        self.reads.words, facts = self.match_words(), self._match_facts()
        by_ngrams = self._match_ngrams() if self.settings.weights.grams else {}
        self.reads.lexical = self.reads.words.scores() | facts.scores()
        return by_ngrams

    def match_words(self) -> Match:
        """Look up the query's words in entries."""
        return self._words_in(self.search.scopes, self.settings.postings_cap)

    def _match_facts(self) -> Match:
        """Look up the query's words in facts, once."""
        if self.reads.fact_words is None:
            cap = self.settings.postings_cap // 4
            self.reads.fact_words = self._words_in(self.fact_scopes, cap)
        return self.reads.fact_words

    def _words_in(
        self, scopes: Sequence[int], cap: int, within: Collection[int] | None = None
    ) -> Match:
        words = self.search.reader.match_words(scopes, self.query.terms, cap, within)
        self.reads.postings += words.postings
        return words

    def _match_ngrams(self) -> Scores:
        """Look up the query's n-grams in facts, once, and in entries."""
        if self.reads.fact_ngrams is None:
            self.reads.fact_ngrams = self._ngrams_in(self.fact_scopes)
        return self.match_entry_ngrams() | self.reads.fact_ngrams

    def match_entry_ngrams(self) -> Scores:
        """Look up the query's n-grams in entries."""
        return self._ngrams_in(self.search.scopes)

    def _ngrams_in(self, scopes: Sequence[int]) -> Scores:
        """Score the rows of these scopes by the n-grams that they share with the query."""
        if not scopes:
            return {}
        parts, cap = ngrams(self.query.topic), self.settings.postings_cap // 4
        matched, postings = self.search.reader.match_ngrams(scopes, parts, cap)
        self.reads.postings += postings
        return matched

    def in_reach(self, rows: Iterable[int]) -> list[int]:
        """Return those entries' rows that may be candidates."""
        return [*rows]

    def _kind_scopes(self) -> list[int]:
        """Return the scopes of the summaries and timelines that the query asks for."""
        viewer, reader = self.search.viewer, self.search.reader
        kinds = requested_kinds(self.query.text)
        scopes: list[int] = []
        if "summary" in kinds:
            scopes += reader.scopes(
                viewer.agent, viewer.sender, read_all=viewer.read_all, shelf="summary"
            )
        if "timeline" in kinds:
            scopes += reader.shared_scopes(viewer.people, "timeline")
        return scopes

    # -- facts ---------------------------------------------------------------------------------

    def _link_facts(
        self, by_ngrams: Mapping[int, float], near: Mapping[int, float]
    ) -> _LinkedFacts:
        by_words = self._match_facts().scores()
        strength = add_scaled({**by_words, **near}, by_words, near)
        best = best_rows(strength, _FACTS)
        kinds = self._find_kinds([*best, *near, *by_ngrams])
        best = [row for row in best if row not in kinds]
        overviews = [*kinds][: 2 * _NEAREST]  # of the others it counts when they begin
        facts = self._by_row([*best, *overviews])
        sources = self._sources([facts[row] for row in (*best, *overviews) if row in facts])
        by_entry = Scores()
        for row in best:  # of the facts that rest on an entry, the best one counts
            for entry in sources.get(row, ()):
                by_entry[entry] = max(by_entry.get(entry, 0.0), strength[row])
        return _LinkedFacts([facts[row] for row in best if row in facts], kinds, sources, by_entry)

    def _find_kinds(self, rows: Collection[int]) -> dict[int, str]:
        """Return which rows are summaries or timelines, first those of the times named."""
        kinds = plugins.find_overview_rows(self.query, self.search)
        if len(self.fact_scopes) == len(self.search.shared):
            return kinds
        overviews, scopes, ordered = self.search.reader.overviews, self.fact_scopes, [*kinds]
        for span in self.query.spans:
            start, end = span.start.timestamp() - DAY_SECONDS, span.end.timestamp()
            ordered += overviews.shelf_rows("summary", scopes, _NEWEST, start, end)
        ordered += [*overviews.shelf_rows("summary", scopes, _NEWEST), *rows]
        kinds = overviews.shelves_of(ordered)
        return {row: kinds[row] for row in ordered if row in kinds}

    def _sources(self, facts: Sequence[Candidate]) -> dict[int, list[int]]:
        """Return, for each fact, the rows of its entries that the viewer may see."""
        linked = self.search.reader.fact_sources([fact.id for fact in facts], self.search.scopes)
        return {fact.row: self.in_reach(linked[fact.id]) for fact in facts}

    def _sessions(self, facts: Sequence[Candidate]) -> set[int]:
        """Return the sessions of the best facts (Stage 1; MemTier, section 3.2)."""
        sessions: set[int] = set()
        for fact in facts:
            if len(sessions) >= self.settings.sessions:
                break
            for session in self.search.reader.fact_sessions(fact.id, self.search.scopes):
                if len(sessions) < self.settings.sessions:
                    sessions.add(session)
        return sessions

    def _rows_of_spans(self) -> list[int]:
        """Return the newest rows of the times that a question asks by."""
        if not self.query.by_time:
            return []
        scopes = [*self.search.scopes, *self.search.shared]
        return self.in_reach(
            row
            for span in self.query.spans[:_SPANS]
            for row in self.search.reader.rows_between(
                scopes, span.start.timestamp(), span.end.timestamp(), _PER_SPAN
            )
        )

    # -- meaning -------------------------------------------------------------------------------

    def nearest_entries(self) -> Scores:
        """Return the entries nearest to the query, with their cosines."""
        return self._nearest(self.search.scopes)

    def _nearest_facts(self) -> Scores:
        """Return the facts nearest to the query, with their cosines, looked up once."""
        if self.reads.near_facts is None:
            self.reads.near_facts = self._nearest(self.fact_scopes)
        return self.reads.near_facts

    def _nearest(self, scopes: Sequence[int]) -> Scores:
        """Return the rows nearest to the query, with their cosines."""
        vector = self.search.vector
        if vector is None or not scopes:
            return {}
        near, read = self.search.reader.vectors.nearest(
            vector.model, scopes, vector.vector, self.settings.vectors_cap, PIECES
        )
        self.reads.vectors += read
        self.reads.similarity |= near
        least = 0.0 if read <= FEW and speaks_of_oneself(self.query.text) else MIN_COSINE
        return {row: cosine for row, cosine in near.items() if cosine >= least}

    def similarities(self, rows: Iterable[int]) -> Scores:
        """Return the cosines known so far, after adding those of these rows."""
        vector, missing = self.search.vector, sorted({*rows} - self.reads.similarity.keys())
        if vector is not None and missing:
            cosines = self.search.reader.vectors.similarity(vector.model, vector.vector, missing)
            self.reads.vectors += len(cosines)
            self.reads.similarity |= cosines
        return self.reads.similarity

    def _nearest_to_expansion(self) -> Scores:
        """Return the rows nearest to the text that is searched for as well, with their cosines."""
        expansion = self.search.expansion
        vector = expansion.vector if expansion else None
        if vector is None:
            return {}
        near, read = self.search.reader.vectors.nearest(
            vector.model,
            [*self.search.scopes, *self.fact_scopes],
            vector.vector,
            self.settings.vectors_cap,
            PIECES,
        )
        self.reads.vectors += read
        return {row: cosine for row, cosine in near.items() if cosine >= MIN_COSINE}

    def _likeness(self, rows: Sequence[int]) -> tuple[str, Mapping[int, float]] | None:
        """Return the signal of the text that is searched for as well, and cosines of rows to it."""
        expansion = self.search.expansion
        vector = expansion.vector if expansion else None
        if vector is None or expansion is None:
            return None
        self.reads.vectors += len(rows)
        cosines = self.search.reader.vectors.similarity(vector.model, vector.vector, rows)
        return expansion.signal, cosines

    # -- the turns next to it ------------------------------------------------------------------

    def _with_neighbours(
        self, by_row: Mapping[int, Candidate], first: Mapping[int, float]
    ) -> tuple[dict[int, Candidate], Around]:
        """Return the best candidates, those next to the very best, and the turns around them.

        Args:
            first: how good a candidate is by itself.
        """
        order = sorted((-first.get(row, 0.0), each.id, row) for row, each in by_row.items())
        best = {row: by_row[row] for _, _, row in order[: self.settings.candidates]}
        entries = [row for row, candidate in best.items() if candidate.tier == "episodic"]
        leading, rest = entries[:_WITH_NEIGHBOURS], entries[_WITH_NEIGHBOURS:]
        gap = 3600 * self.settings.episode_hours
        radius = dict.fromkeys(leading, _REACH + _NEIGHBOURS) | dict.fromkeys(rest, _REACH)
        around = self.search.reader.neighbours(radius, self.search.scopes, gap)
        for row in leading:
            before, after = around[row]
            itself = (row, best[row].length)
            around[row] = (before[:_REACH], after[:_REACH])
            for side, opposite in ((before, after), (after, before)):
                for index, (neighbour, _) in enumerate(side[:_NEIGHBOURS]):
                    if neighbour in around:
                        continue
                    # The turns around the neighbour, read off the same line of turns.
                    back = [*reversed(side[:index]), itself, *opposite][:_REACH]
                    on = side[index + 1 : index + 1 + _REACH]
                    sides = (on, back) if side is before else (back, on)
                    around[neighbour] = sides
        neighbours = self._by_row(self.in_reach(row for row in around if row not in best))
        around = {row: around[row] for row in self.in_reach(around)}
        return best | neighbours, around

    def _by_row(self, rows: Collection[int]) -> dict[int, Candidate]:
        candidates = self.search.reader.candidates(rows) if rows else ()
        opened = {"semantic": self.settings.facts, "procedural": self.settings.experiences}
        return {each.row: each for each in candidates if opened.get(each.tier, True)}


def best_rows(scores: Mapping[int, float], limit: int) -> list[int]:
    """Return the rows with the best scores, the best first, between equals the lower row."""
    # By score, ties by row: a stable sort keeps the order of the first one, also in reverse.
    if len(scores) > limit > 0:
        least = nlargest(limit, scores.values())[-1]
        scores = {row: score for row, score in scores.items() if score >= least}
    return sorted(sorted(scores), key=scores.__getitem__, reverse=True)[:limit]
