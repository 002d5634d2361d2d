"""The candidates of a query: by words, n-grams, vectors and facts, and the turns next to them.

What is read has a bound: at most ``postings_cap`` word postings, a quarter of that for facts and
for n-grams, ``vectors_cap`` packed signs, and a fixed number of reads for each candidate, however
large the store is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import chain
from typing import Final

from memtier_plugin.core.settings.schema import Retrieval
from memtier_plugin.retrieval import ranking
from memtier_plugin.retrieval.prompt_words import speaks_of_oneself
from memtier_plugin.retrieval.query import (
    ParsedQuery,
    QueryVector,
    Viewer,
    asks_character,
    requested_kinds,
)
from memtier_plugin.retrieval.rankers import Expansion
from memtier_plugin.retrieval.signals import Adjacent, Around, Pool, adjacent_rows, lengths_of
from memtier_plugin.storage.index.candidate_reader import Candidate, Match
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.tokenizer import ngrams

MIN_COSINE: Final = 0.3  # below it an item is not found by its meaning alone
FEW: Final = 8  # items, up to which any may answer a question on oneself
_WITH_NEIGHBOURS: Final = 40  # best rows whose neighbours become candidates too
_NEIGHBOURS: Final = 2  # of these on either side
_REACH: Final = 4  # turns on either side that a window looks at
_FACTS: Final = 80  # facts that take part in a ranking
PIECES: Final = 200  # the nearest to the query, whose rows may become candidates
_NEAREST: Final = 50  # of these the rows that become candidates
_PROFILES: Final = 200  # the newest, among which names are looked for
_NAMED: Final = 4  # profiles that one question opens
_SPANS: Final = 4  # times of a question, of each of which ...
_PER_SPAN: Final = 60  # ... so many rows take part, whatever their words
_NEWEST: Final = 20  # summaries that take part whatever their words, of all and of each time named

Scores = dict[int, float]  # by row


@dataclass(frozen=True, slots=True)
class _Matches:
    """The rows that share words and n-grams with the query, with their scores."""

    words: Match  # of the entries
    fact_words: Match
    entries: Scores
    facts: Scores
    lexical: Scores  # by words, of entries and facts
    ngrams: Scores


@dataclass(frozen=True, slots=True)
class _Facts:
    """The facts that take part, and the entries that they lead to."""

    best: Sequence[Candidate]  # without summaries and timelines
    kinds: Mapping[int, str]  # the summaries and timelines, by row
    sources: Mapping[int, Sequence[int]]  # by fact, the rows of the entries it rests on
    strength: Mapping[int, float]  # by entry, of the best fact that rests on it


@dataclass(slots=True)
class PoolBuilder:
    """Gathers the candidates of one query for one viewer.

    Attributes:
        expansion: another text to search for, whose nearest take part, too.
        check: called between the steps; raises when the deadline has passed.
        profiles: whether a question about somebody finds their profile.
        terms: how much each word of the query counts that was looked up.
        lexical: the candidates by words, with their scores, as soon as there are some.
        postings: how many were read so far; likewise `vectors`.
    """

    reader: Reader
    settings: Retrieval
    viewer: Viewer
    query: ParsedQuery
    vector: QueryVector | None
    scopes: Sequence[int]
    shared: Sequence[int]
    check: Callable[[], None]
    profiles: bool = False
    expansion: Expansion | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    lexical: tuple[Sequence[Candidate], Mapping[int, float]] = ((), {})
    postings: int = 0
    vectors: int = 0
    fact_scopes: Sequence[int] = ()
    similarity: Scores = field(default_factory=dict)
    words: Match = field(default_factory=Match)
    fact_words: Match = field(default_factory=Match)

    def build(self) -> Pool:
        """Return the pool: the best candidates, and the turns next to the very best."""
        self.fact_scopes = [*self.shared, *self._kind_scopes()]
        matches = self._match()
        rows = best_rows(matches.lexical, self.settings.candidates)
        by_row = self._by_row(rows)
        self.lexical = [*by_row.values()], matches.lexical
        self.check()
        near = self.nearest_entries()
        near_facts = self.nearest_facts()
        alike = self._alike()
        facts = self._link_facts(matches, near_facts)
        more = self._more_rows(matches, facts, near | near_facts, by_row, alike)
        by_row |= self._by_row(more)
        scores, lexical = matches.entries, matches.lexical
        if matches.words.left_out:
            reached = [*rows, *more]
            self.postings += self.reader.complete_match(matches.words, self.scopes, reached)
            scores = matches.words.scores()
            lexical = {**matches.facts, **scores}
        source_times = {
            fact: [by_row[row].observed for row in rows] for fact, rows in facts.sources.items()
        }
        first = ranking.add_scaled(
            by_row,
            lexical,
            matches.ngrams,
            facts.strength,
            self._similar_among(by_row),
            {row: cosine for row, cosine in alike.items() if row in by_row},
            dict.fromkeys(facts.kinds, 1.0),
        )
        by_row, around = self._with_neighbours(by_row, first)
        self.check()
        rows = sorted(by_row)
        adjacent = adjacent_rows(around, rows)
        return Pool(
            query=self.query,
            settings=self.settings,
            candidates=[by_row[row] for row in rows],
            match=matches.words,
            fact_match=matches.fact_words,
            bm25=[lexical.get(row, 0.0) for row in rows],
            terms=matches.words.terms_of({*rows, *lengths_of(around)}),
            scores=lexical,
            ngram_scores=matches.ngrams,
            source_strength=facts.strength,
            source_times=source_times,
            around=around,
            adjacent=adjacent,
            sessions=self._sessions(facts.best),
            kinds=facts.kinds,
            similarity=self._similar_around(rows, adjacent),
            expansion=self._likeness(rows),
            first=first,
        )

    def lexical_pool(self) -> Pool:
        """Return the candidates by words as far as these were read, without the turns around."""
        candidates, scores = self.lexical
        rows = [candidate.row for candidate in candidates]
        return Pool(
            query=self.query,
            settings=self.settings,
            candidates=candidates,
            match=self.words,
            fact_match=self.fact_words,
            bm25=[scores.get(row, 0.0) for row in rows],
            terms=self.words.terms_of(rows),
            scores=scores,
            ngram_scores={},
            source_strength={},
            source_times={},
            around={},
            adjacent=[(0, 0)] * len(rows),
            sessions=(),
            kinds={},
            similarity=None,
        )

    def nearest_entries(self) -> Scores:
        """Return the entries nearest to the query, with their cosines."""
        return self._nearest(self.scopes)

    def nearest_facts(self) -> Scores:
        """Return the facts nearest to the query, with their cosines."""
        return self._nearest(self.fact_scopes)

    # -- words and n-grams ---------------------------------------------------------------------

    def _match(self) -> _Matches:
        words, facts = self.match_words(), self.match_facts()
        self.words, self.fact_words = words, facts
        by_ngrams = self.match_ngrams() if self.settings.weights.grams else {}
        self.terms = facts.idfs | words.idfs
        of_entries, of_facts = words.scores(), facts.scores()
        lexical = of_entries | of_facts if of_facts else of_entries
        return _Matches(words, facts, of_entries, of_facts, lexical, by_ngrams)

    def match_words(self) -> Match:
        """Look up the query's words in entries."""
        words = self.reader.match_words(self.scopes, self.query.terms, self.settings.postings_cap)
        self.postings += words.postings
        return words

    def match_facts(self) -> Match:
        """Look up the query's words in facts."""
        cap = self.settings.postings_cap // 4
        facts = self.reader.match_words(self.fact_scopes, self.query.terms, cap)
        self.postings += facts.postings
        return facts

    def match_ngrams(self) -> Scores:
        """Look up the query's n-grams in entries and facts."""
        return self.ngrams_in(self.scopes) | self.ngrams_in(self.fact_scopes)

    def ngrams_in(self, scopes: Sequence[int]) -> Scores:
        """Score the rows of these scopes by the n-grams that they share with the query."""
        if not scopes:
            return {}
        parts, cap = ngrams(self.query.topic), self.settings.postings_cap // 4
        matched, postings = self.reader.match_ngrams(scopes, parts, cap)
        self.postings += postings
        return matched

    def _kind_scopes(self) -> list[int]:
        """Return the scopes of the summaries and timelines that the query asks for."""
        viewer, reader, kinds = self.viewer, self.reader, requested_kinds(self.query.text)
        scopes: list[int] = []
        if "summary" in kinds:
            scopes += reader.scopes(
                viewer.agent, viewer.sender, read_all=viewer.read_all, shelf="summary"
            )
        if "timeline" in kinds:
            scopes += reader.shared_scopes(viewer.people, "timeline")
        return scopes

    # -- facts ---------------------------------------------------------------------------------

    def _link_facts(self, matches: _Matches, near: Mapping[int, float]) -> _Facts:
        strength = ranking.add_scaled({**matches.facts, **near}, matches.facts, near)
        best = best_rows(strength, _FACTS)
        kinds = self._find_kinds([*best, *near, *matches.ngrams])
        best = [row for row in best if row not in kinds]
        overviews = [*kinds][: 2 * _NEAREST]  # of the others it counts when they begin
        facts = self._by_row([*best, *overviews])
        sources = self._sources([facts[row] for row in (*best, *overviews) if row in facts])
        by_entry = Scores()
        for row in best:  # of the facts that rest on an entry, the best one counts
            for entry in sources.get(row, ()):
                by_entry[entry] = max(by_entry.get(entry, 0.0), strength[row])
        return _Facts([facts[row] for row in best if row in facts], kinds, sources, by_entry)

    def _find_kinds(self, rows: Collection[int]) -> dict[int, str]:
        """Return which rows are summaries or timelines, first those of the times named."""
        ordered = self._named_profiles()
        if len(self.fact_scopes) == len(self.shared):
            return dict.fromkeys(ordered, "profile")
        overviews, scopes = self.reader.overviews, self.fact_scopes
        for span in self.query.spans:
            start, end = span.start.timestamp() - ranking.DAY_SECONDS, span.end.timestamp()
            ordered += overviews.shelf_rows("summary", scopes, _NEWEST, start, end)
        ordered += [*overviews.shelf_rows("summary", scopes, _NEWEST), *rows]
        kinds = overviews.shelves_of(ordered)
        return {row: kinds[row] for row in ordered if row in kinds}

    def _named_profiles(self) -> list[int]:
        """Return the profiles of the people whom a question about somebody names."""
        if not self.profiles or not asks_character(self.query.text):
            return []
        viewer, reader = self.viewer, self.reader
        scopes = reader.scopes(
            viewer.agent, viewer.sender, read_all=viewer.read_all, shelf="profile"
        )
        rows = reader.overviews.shelf_rows("profile", scopes, _PROFILES) if scopes else []
        people = {row: candidate.speaker or "" for row, candidate in self._by_row(rows).items()}
        named = [row for row in rows if row in people and self.query.names(people[row])]
        if not named and self.query.of_oneself:
            named = [row for row in rows if len(rows) == 1 or people.get(row) == "user"]
        return named[:_NAMED]

    def _sources(self, facts: Sequence[Candidate]) -> dict[int, list[int]]:
        """Return, for each fact, the rows of its entries that the viewer may see."""
        linked = self.reader.fact_sources([fact.id for fact in facts], self.scopes)
        return {fact.row: [*filter(self.may_be, linked[fact.id])] for fact in facts}

    def may_be(self, row: int) -> bool:
        """Return whether an entry may be a candidate."""
        return True

    def _sessions(self, facts: Sequence[Candidate]) -> set[int]:
        """Return the sessions of the best facts (Stage 1; MemTier, section 3.2)."""
        sessions: set[int] = set()
        for fact in facts:
            if len(sessions) >= self.settings.sessions:
                break
            for session in self.reader.fact_sessions(fact.id, self.scopes):
                if len(sessions) < self.settings.sessions:
                    sessions.add(session)
        return sessions

    def _more_rows(
        self,
        matches: _Matches,
        facts: _Facts,
        near: Mapping[int, float],
        by_row: Mapping[int, Candidate],
        alike: Mapping[int, float],
    ) -> list[int]:
        """Return the rows that take part besides those found by words."""
        rows = [
            *best_rows(matches.ngrams, _FACTS),
            *best_rows(near, _NEAREST),
            *best_rows(alike, _NEAREST),
        ]
        rows += [*facts.strength, *facts.kinds, *self._said_then()]
        for row in [*facts.kinds][: 2 * _NEAREST]:
            rows += facts.sources.get(row, ())
        return [row for row in dict.fromkeys(rows) if row not in by_row]

    def _said_then(self) -> list[int]:
        """Return the newest rows of the times that a question asks by."""
        if not self.query.by_time:
            return []
        scopes = [*self.scopes, *self.shared]
        return [
            row
            for span in self.query.spans[:_SPANS]
            for row in self.reader.rows_between(
                scopes, span.start.timestamp(), span.end.timestamp(), _PER_SPAN
            )
            if self.may_be(row)
        ]

    # -- meaning -------------------------------------------------------------------------------

    def _nearest(self, scopes: Sequence[int]) -> Scores:
        """Return the rows nearest to the query, with their cosines."""
        if self.vector is None or not scopes:
            return {}
        near, read = self.reader.vectors.nearest(
            self.vector.model, scopes, self.vector.vector, self.settings.vectors_cap, PIECES
        )
        self.vectors += read
        self.similarity |= near
        least = 0.0 if read <= FEW and speaks_of_oneself(self.query.text) else MIN_COSINE
        return {row: cosine for row, cosine in near.items() if cosine >= least}

    def similarities(self, vector: QueryVector, rows: Collection[int]) -> Mapping[int, float]:
        """Return the cosines known so far, after adding those of these rows."""
        missing = sorted({*rows} - self.similarity.keys())
        if missing:
            cosines = self.reader.vectors.similarity(vector.model, vector.vector, missing)
            self.vectors += len(cosines)
            self.similarity |= cosines
        return self.similarity

    def _alike(self) -> Scores:
        """Return the rows nearest to the text that is searched for as well, with their cosines."""
        vector = self.expansion.vector if self.expansion else None
        if vector is None:
            return {}
        near, read = self.reader.vectors.nearest(
            vector.model,
            [*self.scopes, *self.fact_scopes],
            vector.vector,
            self.settings.vectors_cap,
            PIECES,
        )
        self.vectors += read
        return {row: cosine for row, cosine in near.items() if cosine >= MIN_COSINE}

    def _likeness(self, rows: Sequence[int]) -> tuple[str, Mapping[int, float]] | None:
        """Return the signal of the text that is searched for as well, and cosines of rows to it."""
        vector = self.expansion.vector if self.expansion else None
        if vector is None or self.expansion is None:
            return None
        self.vectors += len(rows)
        cosines = self.reader.vectors.similarity(vector.model, vector.vector, rows)
        return self.expansion.signal, cosines

    def _similar_among(self, rows: Collection[int]) -> Scores:
        if self.vector is None:
            return {}
        near = self.similarities(self.vector, rows)
        return {row: near[row] for row in rows if row in near}

    def _similar_around(
        self, rows: Sequence[int], adjacent: Sequence[Adjacent]
    ) -> Mapping[int, float] | None:
        if self.vector is None:
            return None
        near = {*rows, *chain.from_iterable(adjacent)} - {0}
        return self.similarities(self.vector, near)

    # -- the turns next to it ------------------------------------------------------------------

    def _with_neighbours(
        self, by_row: Mapping[int, Candidate], first: Mapping[int, float]
    ) -> tuple[dict[int, Candidate], Around]:
        """Return the best candidates, those next to the very best, and the turns around them.

        Args:
            first: how good a candidate is by itself.
        """
        order = sorted(by_row.values(), key=lambda c: (-first.get(c.row, 0.0), c.id))
        best = {candidate.row: candidate for candidate in order[: self.settings.candidates]}
        entries = [row for row, candidate in best.items() if candidate.tier == "episodic"]
        leading, rest = entries[:_WITH_NEIGHBOURS], entries[_WITH_NEIGHBOURS:]
        gap = 3600 * self.settings.episode_hours
        reach = dict.fromkeys(leading, _REACH + _NEIGHBOURS) | dict.fromkeys(rest, _REACH)
        around = self.reader.neighbours(reach, self.scopes, gap)
        for row in leading:
            before, after = around[row]
            own = (row, best[row].length)
            around[row] = (before[:_REACH], after[:_REACH])
            for side, other in ((before, after), (after, before)):
                for index, (neighbour, _) in enumerate(side[:_NEIGHBOURS]):
                    if neighbour in around:
                        continue
                    # The turns around the neighbour, read off the same line of turns.
                    back = [*reversed(side[:index]), own, *other][:_REACH]
                    on = side[index + 1 : index + 1 + _REACH]
                    sides = (on, back) if side is before else (back, on)
                    around[neighbour] = sides
        others = [row for row in around if row not in best and self.may_be(row)]
        neighbours = self._by_row(others)
        around = {row: sides for row, sides in around.items() if self.may_be(row)}
        return best | neighbours, around

    def _by_row(self, rows: Collection[int]) -> dict[int, Candidate]:
        candidates = self.reader.candidates(rows) if rows else ()
        opened = {"semantic": self.settings.facts, "procedural": self.settings.experiences}
        return {each.row: each for each in candidates if opened.get(each.tier, True)}


def best_rows(scores: Mapping[int, float], limit: int) -> list[int]:
    """Return the rows with the best scores, the best first, between equals the lower row."""
    # By score, ties by row: a stable sort keeps the order of the first one, also in reverse.
    if len(scores) > limit > 0:
        least = nlargest(limit, scores.values())[-1]
        scores = {row: score for row, score in scores.items() if score >= least}
    return sorted(sorted(scores), key=scores.__getitem__, reverse=True)[:limit]
