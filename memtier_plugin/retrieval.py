"""From a query to ranked rows: the two profiles, on one reader (design 6, seeds 1.3).

`recall_first`: words and n-grams find candidates; their neighbours in the session, the facts
that rest on them, the speaker and the sessions of matching facts add to the score.  `paper`:
MemTier as published.  Cost of a recall: at most ``postings_cap`` word postings, a quarter of
that for facts and for n-grams, and 2 range reads of 4 rows for each of at most
``candidates`` + ``_CONTEXT`` rows, however large the store is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Final

from memtier_plugin import paper, ranking, timing
from memtier_plugin.index_read import IndexReader, Match, Place, Turns
from memtier_plugin.records import Fact, Signal
from memtier_plugin.settings import Settings
from memtier_plugin.store import Late
from memtier_plugin.tokens import Tokenizer, grams, plain_words

MAX_QUERY: Final = 20_000  # characters of a query that are looked at
PAPER_POOL: Final = 20_000  # documents that the paper's profile scores at most
_CONTEXT: Final = 60  # best rows whose neighbours become candidates too
_REACH: Final = 4  # turns on either side that a window looks at
_FACTS: Final = 50  # facts that take part in a ranking


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and when: what decides which rows are visible and how old they are."""

    agent: str
    sender: str | None
    read_all: bool
    at: datetime


@dataclass(slots=True)
class Found:
    """The best ranking so far, and what was read for it; `late` when it is not the whole."""

    ranked: list[tuple[int, float, Mapping[str, float]]] = field(default_factory=list)
    postings: int = 0
    vectors: int = 0
    late: bool = False
    terms: dict[str, float] = field(default_factory=dict)  # what each word of the query counts


Extra = Callable[[str, Sequence[int]], Sequence[Signal]]
Dense = Callable[[str, Sequence[int]], Mapping[int, float]]


class Search:
    """One query of one asker against one project."""

    def __init__(
        self,
        reader: IndexReader,
        tokenizer: Tokenizer,
        settings: Settings,
        asker: Asker,
        until: float | None = None,
    ) -> None:
        self._reader = reader
        self._tokens = tokenizer
        self._settings = settings
        self._asker = asker
        self._until = until
        self._scopes = reader.scopes(asker.agent, asker.sender, read_all=asker.read_all)
        self._shared = reader.shared()
        self.found = Found()

    def _check(self) -> None:
        if self._until is not None and time.monotonic() > self._until:
            raise Late("the deadline has passed")

    # -- recall_first --------------------------------------------------------------------------

    def recall_first(self, query: str, *, dense: Dense | None, extra: Extra | None) -> None:
        """Rank into ``found``, the lexical part first, so that a late recall has something."""
        settings, query = self._settings.retrieval, query[:MAX_QUERY]
        terms = Counter(self._tokens.words(query))
        words = self._reader.match(self._scopes, terms, settings.postings_cap)
        facts = self._reader.match(self._shared, terms, settings.postings_cap // 4)
        parts, gram_scores = self._grams(query)
        self.found.postings += words.postings + facts.postings + parts
        self.found.terms = facts.idfs | words.idfs

        scores = words.scores()
        fact_scores = facts.scores()
        pool = _best({**scores, **fact_scores}, settings.candidates)
        pool += [row for row in _best(gram_scores, _FACTS) if row not in pool]
        places = {place.row: place for place in self._reader.places(pool)}
        self._keep([*places.values()], {**scores, **fact_scores})
        self._check()

        best_facts = _best(fact_scores, _FACTS)
        links = self._links(best_facts, fact_scores)
        linked = [row for row in links if row not in places]
        places |= {place.row: place for place in self._reader.places(linked)}
        pool += linked
        self.found.postings += self._reader.fill(words, self._scopes, pool)
        scores = words.scores() if words.left_out else scores
        around = self._around(places, scores)
        self._check()

        rows = sorted(places)
        found = [places[row] for row in rows]
        bm25 = [scores.get(row, fact_scores.get(row, 0.0)) for row in rows]
        signals = self._context(found, words, scores, around)
        signals["words"] = ranking.scaled(bm25)
        signals["grams"] = ranking.scaled([gram_scores.get(row, 0.0) for row in rows])
        signals["source"] = ranking.scaled([links.get(row, 0.0) for row in rows])
        signals["session"] = self._sessions(found, best_facts)
        signals["speaker"] = self._named(found, terms)
        signals["user"] = [float(place.role == "user") for place in found]
        signals["time"] = self._asked_about(query, found)
        signals |= self._standing(found, bm25)
        if dense is not None:
            near = dense(query, rows)
            self.found.vectors += len(near)
            signals["dense"] = ranking.scaled([near.get(row, 0.0) for row in rows])
        weights = asdict(settings.weights)
        for signal in extra(query, rows) if extra else ():
            signals[signal.name] = list(signal.values)
            weights[signal.name] = signal.weight
        self._rank(found, signals, weights)

    def _grams(self, query: str) -> tuple[int, dict[int, float]]:
        parts = grams(query)
        scores: dict[int, float] = {}
        read = 0
        for scopes in (self._scopes, self._shared):
            found, postings = self._reader.match_grams(
                scopes, parts, self._settings.retrieval.postings_cap // 4
            )
            scores.update(found)
            read += postings
        return read, scores

    def _keep(self, places: Sequence[Place], scores: Mapping[int, float]) -> None:
        """Rank by words alone, which is ready first."""
        values = ranking.scaled([scores.get(place.row, 0.0) for place in places])
        self._rank(places, {"words": values}, {"words": 1.0})
        self.found.late = True

    def _rank(
        self,
        places: Sequence[Place],
        signals: Mapping[str, Sequence[float]],
        weights: Mapping[str, float],
    ) -> None:
        ranked = ranking.rank([place.id for place in places], signals, weights)
        self.found.ranked = [(places[r.index].row, r.score, r.signals) for r in ranked]
        self.found.late = False

    def _links(self, facts: Sequence[int], scores: Mapping[int, float]) -> dict[int, float]:
        """Return, for entries that a matching fact rests on, the best such fact's score."""
        ids = {place.row: place.id for place in self._reader.places(facts)}
        linked = self._reader.source_rows([ids[row] for row in facts if row in ids], self._scopes)
        found: dict[int, float] = {}
        for row in facts:
            for entry in linked.get(ids.get(row, ""), ()):
                found[entry] = max(found.get(entry, 0.0), scores[row])
        return found

    def _around(
        self, places: dict[int, Place], scores: Mapping[int, float]
    ) -> dict[int, tuple[Turns, Turns]]:
        """Return each entry's neighbours, and take those next to the best into the pool."""
        entries = [place for place in places.values() if place.tier == "episodic"]
        entries.sort(key=lambda place: (-scores.get(place.row, 0.0), place.id))
        around = self._reader.neighbours([p.row for p in entries], self._scopes, _REACH)
        near = [
            row
            for place in entries[:_CONTEXT]
            for side in around[place.row]
            for row, _ in side[:2]
            if row not in places
        ]
        places |= {place.row: place for place in self._reader.places(dict.fromkeys(near))}
        return around | self._reader.neighbours(dict.fromkeys(near), self._scopes, _REACH)

    def _context(
        self,
        places: Sequence[Place],
        words: Match,
        scores: Mapping[int, float],
        around: Mapping[int, tuple[Turns, Turns]],
    ) -> dict[str, list[float]]:
        """Score the turns next to each candidate, and the turns around it as one text."""
        found: dict[str, list[float]] = {"previous": [], "next": [], "window": []}
        for place in places:
            before, after = around.get(place.row, ([], []))
            found["previous"].append(scores.get(before[0][0], 0.0) if before else 0.0)
            found["next"].append(scores.get(after[0][0], 0.0) if after else 0.0)
            together: dict[str, int] = {}
            length = 0
            turns = [*before, (place.row, place.length), *after]
            for row, size in turns:
                length += size
                if tfs := words.tfs.get(row):
                    for term, tf in tfs.items():
                        together[term] = together.get(term, 0) + tf
            # Compared with the average turn, so that long windows pay no more than short ones.
            found["window"].append(words.score(together, length / len(turns)) if together else 0.0)
        return {name: ranking.scaled(values) for name, values in found.items()}

    def _sessions(self, places: Sequence[Place], facts: Sequence[int]) -> list[float]:
        """Mark the entries of Stage 1's sessions: a bonus, not a wall."""
        chosen: dict[int, float] = {}
        limit = self._settings.retrieval.sessions
        for place in self._in_order(facts):
            if len(chosen) >= limit:
                break
            for session in self._reader.sessions_of(place.id, self._scopes):
                if len(chosen) < limit:
                    chosen.setdefault(session, 1.0)
        return [chosen.get(place.session, 0.0) if place.session else 0.0 for place in places]

    def _in_order(self, rows: Sequence[int]) -> list[Place]:
        places = {place.row: place for place in self._reader.places(rows)}
        return [places[row] for row in rows if row in places]

    def _named(self, places: Sequence[Place], terms: Mapping[str, int]) -> list[float]:
        """Mark what was said by somebody whose name stands in the query."""
        speakers = {place.speaker for place in places if place.speaker}
        named = {s for s in speakers if any(word in terms for word in self._tokens.words(s))}
        return [float(place.speaker in named) for place in places]

    def _asked_about(self, query: str, places: Sequence[Place]) -> list[float]:
        """Return how near each candidate was said to the time that the query names, if any."""
        spans = timing.spans(query, self._asker.at)
        if not spans:
            return [0.0] * len(places)
        return [
            timing.nearness(spans, datetime.fromtimestamp(place.observed, UTC)) for place in places
        ]

    def _standing(self, places: Sequence[Place], bm25: Sequence[float]) -> dict[str, list[float]]:
        """Return what does not depend on the words: age, learned weight and tier."""
        settings, now = self._settings.retrieval, self._asker.at.timestamp()
        return {
            "decay": [
                ranking.decay(
                    (now - place.observed) / ranking.DAY,
                    settings.decay_lambda,
                    bypass=score > settings.decay_bypass,
                )
                for place, score in zip(places, bm25, strict=True)
            ],
            "weight": [ranking.weight_signal(place.weight) for place in places],
            "tier": [(ranking.TIER_FACTOR[place.tier] - 1) / 0.4 for place in places],
        }

    # -- paper ---------------------------------------------------------------------------------

    def as_published(self, query: str) -> None:
        """Rank as published: facts choose sessions, their entries are scored by eq. 2."""
        words = plain_words(query[:MAX_QUERY])
        facts = self._documents(self._reader.in_sessions(self._shared, None, PAPER_POOL))
        raw = paper.okapi([document.words for document in facts], words)
        self._check()
        everything = self._reader.in_sessions(self._scopes, None, PAPER_POOL)
        visible = {str(place.session) for place in self._reader.places(everything)}
        scope = paper.stage_one(facts, raw, visible, self._settings.retrieval.sessions)
        sessions = [int(session) for session in scope]
        rows = self._reader.in_sessions(self._scopes, sessions, PAPER_POOL) if scope else everything
        entries = self._documents(rows)
        self._check()
        scores = paper.okapi([document.words for document in entries], words)
        weights = asdict(self._settings.paper.weights)
        settings = self._settings.retrieval
        pool = [*zip(entries, scores, strict=True)]
        pool += [(f, s) for f, s in zip(facts, raw, strict=True) if s > 0]
        ranked = paper.rank(
            [
                paper.score(
                    document,
                    score,
                    scope,
                    weights,
                    rate=settings.decay_lambda,
                    threshold=settings.decay_bypass,
                )
                for document, score in pool
            ]
        )
        rows_of = self._reader.rows_of(scored.document.id for scored in ranked)
        self.found.postings += len(pool)
        self.found.ranked = [(rows_of[s.document.id], s.score, s.signals) for s in ranked]

    def _documents(self, rows: Sequence[int]) -> list[paper.Document]:
        places = {place.row: place for place in self._reader.places(rows)}
        found = []
        for row, stored in self._reader.stored(rows).items():
            place, item = places[row], stored.item
            fact = isinstance(item, Fact)
            sessions = (
                tuple(map(str, self._reader.sessions_of(item.id, self._scopes)))
                if fact
                else (str(place.session),)
            )
            age = (self._asker.at.timestamp() - place.observed) / ranking.DAY
            found.append(
                paper.Document(
                    id=item.id,
                    words=plain_words(item.text if isinstance(item, Fact) else item.content),
                    sessions=sessions,
                    age_days=max(0.0, age),
                    weight=place.weight,
                    tier=place.tier,
                    newer=item.timestamp.timestamp(),
                )
            )
        # In a fixed order: rank-bm25 adds floats in the order of its corpus.
        return sorted(found, key=lambda document: document.id)


def _best(scores: Mapping[int, float], limit: int) -> list[int]:
    # By score, ties by row: a stable sort keeps the order of the first one, also in reverse.
    return sorted(sorted(scores), key=scores.__getitem__, reverse=True)[:limit]
