"""From a query to ranked rows: the two profiles, on one reader (design 6, seeds 1.3).

`rank_recall_first`: words, n-grams and vectors find candidates; their neighbours in the session,
the facts that rest on them, the speaker and the sessions of matching facts add to the score.
`paper`: MemTier as published (`paper_search`).  Cost of a recall: at most ``postings_cap`` word
postings, a quarter of that for facts and for n-grams, ``vectors_cap`` packed signs, and a fixed
number of reads for each of the candidates, however large the store is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Final

from memtier_plugin.core.results import Signal
from memtier_plugin.core.settings.load import Settings
from memtier_plugin.retrieval import query_terms, ranking
from memtier_plugin.retrieval.intent import MAX_QUERY_CHARS, wants_kind
from memtier_plugin.retrieval.paper_search import PaperSearch
from memtier_plugin.storage.index.bm25 import idf, saturation
from memtier_plugin.storage.index.reader import Candidate, IndexReader, Match, RowLengths
from memtier_plugin.storage.store import DeadlineExceeded
from memtier_plugin.text.dates.spans import TimeSpan, best_nearness, find_time_spans
from memtier_plugin.text.tokenizer import Tokenizer, ngrams

_CONTEXT: Final = 40  # best rows whose neighbours become candidates too
_BESIDE: Final = 2  # of their neighbours on either side
_REACH: Final = 4  # turns on either side that a window looks at
_FACTS: Final = 80  # facts that take part in a ranking
_SIGNS: Final = 200  # pieces, the nearest by their signs, that are compared exactly
_NEAREST: Final = 50  # of these the rows that become candidates
MIN_COSINE: Final = 0.3  # cosine below which an item is not found by its meaning alone
_NO_WORDS: Final[Mapping[str, int]] = {}
_NEWEST: Final = 20  # summaries that take part whatever their words, of all and of each time named
_MANY_SESSIONS: Final = 12  # among the candidates, or which one it is says nothing
_TOGETHER: Final = 3  # candidates of a session, on average, or that they meet there says nothing


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who asks, and when: what decides which rows are visible and how old they are."""

    agent: str
    sender: str | None
    read_all: bool
    at: datetime


@dataclass(slots=True)
class SearchResult:
    """The best ranking so far, and what was read for it; `late` when it is not the whole."""

    ranked: list[tuple[int, float, Mapping[str, float]]] = field(default_factory=list)
    postings: int = 0
    vectors: int = 0
    late: bool = False
    partly_embedded: bool = False  # too few vectors of the current model, so none is used
    terms: dict[str, float] = field(default_factory=dict)  # what each word of the query counts


PluginSignals = Callable[[str, Sequence[int]], Sequence[Signal]]


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query as the int8 vector of a model; only vectors of the same model are compared."""

    model: str
    vector: bytes


class Search:
    """One query of one asker against one project."""

    def __init__(
        self,
        reader: IndexReader,
        tokenizer: Tokenizer,
        settings: Settings,
        asker: Viewer,
        until: float | None = None,
        near: QueryVector | None = None,
    ) -> None:
        self._reader = reader
        self._tokens = tokenizer
        self._settings = settings
        self._asker = asker
        self._until = until
        self._scopes = reader.scopes(asker.agent, asker.sender, read_all=asker.read_all)
        self._shared = reader.shared_scopes()
        self._facts: Sequence[int] = self._shared  # and the shelves that the query opens
        self._lexical: tuple[Sequence[Candidate], Mapping[int, float]] = ((), {})
        self.result = SearchResult()
        self._near = near if near and self._is_embedded(near.model) else None
        self._like: dict[int, float] = {}  # how near the rows are that were compared exactly

    def _is_embedded(self, model: str) -> bool:
        """Tell whether enough is embedded; while a new model is at work, recall goes by words."""
        enough = self._reader.vectors.is_covered(model, [*self._scopes, *self._shared])
        self.result.partly_embedded = not enough
        return enough

    def _check(self) -> None:
        if self._until is not None and time.monotonic() > self._until:
            raise DeadlineExceeded("the deadline has passed")

    # -- recall_first --------------------------------------------------------------------------

    def rank_recall_first(self, query: str, *, extra: PluginSignals | None) -> None:
        """Rank into ``found``; if the deadline interrupts, `rank_by_words` can serve."""
        self.result.late = True
        settings, query = self._settings.retrieval, query[:MAX_QUERY_CHARS]
        terms = query_terms.weigh_terms(self._tokens.words(query), self._tokens.language)
        words = self._reader.match_words(self._scopes, terms, settings.postings_cap)
        self._facts = [*self._shared, *self._opened(query)]
        facts = self._reader.match_words(self._facts, terms, settings.postings_cap // 4)
        parts, gram_scores = self._grams(query) if settings.weights.grams else (0, {})
        self.result.postings += words.postings + facts.postings + parts
        self.result.terms = facts.idfs | words.idfs

        scores = words.scores()
        fact_scores = facts.scores()
        pool = _best({**scores, **fact_scores}, settings.candidates)
        places = {place.row: place for place in self._reader.candidates(pool)}
        self._lexical = ([*places.values()], {**scores, **fact_scores})
        self._check()

        near, near_facts = self._nearest(self._scopes), self._nearest(self._facts)
        strength = ranking.add_scaled(fact_scores, near_facts)
        best_facts = _best(strength, _FACTS)
        spans = find_time_spans(query, self._asker.at)
        shelved = self._shelved([*best_facts, *near_facts, *gram_scores], spans)
        best_facts = [row for row in best_facts if row not in shelved]
        told = [*shelved][: 2 * _NEAREST]  # of the others it counts when they begin
        sources = self._sources([*best_facts, *told])
        links: dict[int, float] = {}
        for row in best_facts:  # of the facts that rest on an entry, the best one counts
            for entry in sources.get(row, ()):
                links[entry] = max(links.get(entry, 0.0), strength[row])
        more = [*_best(gram_scores, _FACTS), *_best(near | near_facts, _NEAREST)]
        more += [*links, *shelved, *(row for one in told for row in sources.get(one, ()))]
        more = [row for row in dict.fromkeys(more) if row not in places]
        places |= {place.row: place for place in self._reader.candidates(more)}
        self.result.postings += self._reader.complete_match(words, self._scopes, [*pool, *more])
        scores = words.scores() if words.left_out else scores
        like = self._likenesses(places) if self._near else {}
        asked = dict.fromkeys(shelved, 1.0)
        first = ranking.add_scaled(
            scores | fact_scores, gram_scores, links, _only(like, places), asked
        )
        said = {  # a fact was said when its sources were
            row: [places[source].observed for source in found] for row, found in sources.items()
        }
        places, around = self._with_neighbours(places, first)
        self._check()

        rows = sorted(places)
        found = [places[row] for row in rows]
        bm25 = [scores.get(row, fact_scores.get(row, 0.0)) for row in rows]
        signals = self._context(found, words, {**fact_scores, **scores}, around)
        signals["words"] = ranking.scale_by_max(bm25)
        signals["grams"] = ranking.scale_by_max([gram_scores.get(row, 0.0) for row in rows])
        signals["source"] = ranking.scale_by_max([links.get(row, 0.0) for row in rows])
        signals["session"] = self._sessions(found, best_facts)
        signals["session_words"] = self._session_words(found, words)
        signals["speaker"] = self._named(found, terms)
        signals["user"] = [float(place.role == "user") for place in found]
        signals["standing"] = [float(place.standing) for place in found]
        signals["time"] = _asked_about(spans, found, said)
        if shelved:
            shelves = [shelved.get(row, "") for row in rows]
            times = signals["time"] if spans else ()
            moments = [place.observed for place in found]
            signals["overview"] = ranking.overview_signal(shelves, times, moments, bm25)
        signals |= self._standing(found, bm25)
        signals |= self._dense(rows, around)
        weights = asdict(settings.weights)
        for signal in extra(query, rows) if extra else ():
            signals[signal.name] = list(signal.values)
            weights[signal.name] = signal.weight
        self._rank(found, signals, weights)

    def _opened(self, query: str) -> list[int]:
        """Return the scopes of the shelves that a query opens: nothing of them is found else."""
        opened: list[int] = []
        asker, scopes = self._asker, self._reader.scopes
        if wants_kind(query, "summary"):
            opened += scopes(asker.agent, asker.sender, read_all=asker.read_all, shelf="summary")
        if wants_kind(query, "timeline"):
            opened += self._reader.shared_scopes(shelf="timeline")
        return opened

    def _shelved(self, found: Collection[int], spans: Sequence[TimeSpan]) -> dict[int, str]:
        """Return the shelf of each row found on one, first those of the time asked about."""
        if len(self._facts) == len(self._shared):
            return {}
        overviews = self._reader.overviews
        rows: list[int] = []
        for span in spans:
            start, end = span.start.timestamp() - ranking.DAY_SECONDS, span.end.timestamp()
            rows += overviews.shelf_rows("summary", self._facts, _NEWEST, start, end)
        rows += [*overviews.shelf_rows("summary", self._facts, _NEWEST), *found]
        shelves = overviews.shelves_of(rows)
        return {row: shelves[row] for row in rows if row in shelves}

    def _grams(self, query: str) -> tuple[int, dict[int, float]]:
        parts = ngrams(query)
        scores: dict[int, float] = {}
        read = 0
        for scopes in (self._scopes, self._facts):
            found, postings = self._reader.match_ngrams(
                scopes, parts, self._settings.retrieval.postings_cap // 4
            )
            scores.update(found)
            read += postings
        return read, scores

    def _nearest(self, scopes: Sequence[int]) -> dict[int, float]:
        """Return the rows nearest to the query, found by their signs, and how near they are."""
        if self._near is None:
            return {}
        cap, vectors = self._settings.retrieval.vectors_cap, self._reader.vectors
        rows, read = vectors.nearest(self._near.model, scopes, self._near.vector, cap, _SIGNS)
        self.result.vectors += read
        near = self._likenesses(rows)
        return {row: near[row] for row in rows if near.get(row, 0.0) >= MIN_COSINE}

    def _likenesses(self, rows: Collection[int]) -> Mapping[int, float]:
        assert self._near is not None  # or else there is nothing to compare with
        fresh = sorted({*rows} - self._like.keys())
        like = self._reader.vectors.similarity(self._near.model, self._near.vector, fresh)
        self.result.vectors += len(like)
        self._like |= like
        return self._like

    def _dense(
        self, rows: Sequence[int], around: Mapping[int, tuple[RowLengths, RowLengths]]
    ) -> dict[str, list[float]]:
        """Return how near each candidate is to the query, and how near it and its neighbours."""
        if self._near is None:
            return {}
        beside = {row: [turns[0][0] for turns in around.get(row, ()) if turns] for row in rows}
        wanted = {*rows, *(other for near in beside.values() for other in near)}
        near = self._likenesses(wanted)
        own = [near.get(row, 0.0) for row in rows]
        together = [
            (value + sum(near.get(other, 0.0) for other in beside[row])) / (1 + len(beside[row]))
            for row, value in zip(rows, own, strict=True)
        ]
        return {"dense": ranking.scale_by_max(own), "dense_window": ranking.scale_by_max(together)}

    def rank_by_words(self) -> None:
        """Rank by words alone, as far as that is ready: what a recall serves when it is late."""
        places, scores = self._lexical
        values = ranking.scale_by_max([scores.get(place.row, 0.0) for place in places])
        self._rank(places, {"words": values}, {"words": 1.0})
        self.result.late = True

    def _rank(
        self,
        places: Sequence[Candidate],
        signals: Mapping[str, Sequence[float]],
        weights: Mapping[str, float],
    ) -> None:
        limit = self._settings.retrieval.candidates
        ranked = ranking.rank([place.id for place in places], signals, weights, limit)
        self.result.ranked = [(places[r.index].row, r.score, r.signals) for r in ranked]
        self.result.late = False

    def _sources(self, facts: Sequence[int]) -> dict[int, list[int]]:
        """Return, for each of these facts, the entries it rests on that the asker may see."""
        ids = {place.row: place.id for place in self._reader.candidates(facts)}
        linked = self._reader.fact_sources([ids[row] for row in facts if row in ids], self._scopes)
        return {row: linked[ids[row]] for row in facts if row in ids}

    def _with_neighbours(
        self, places: Mapping[int, Candidate], first: Mapping[int, float]
    ) -> tuple[dict[int, Candidate], dict[int, tuple[RowLengths, RowLengths]]]:
        """Return the best candidates, those next to the very best too, and the turns around them.

        Args:
            first: how good a candidate is by itself.
        """
        order = sorted(places.values(), key=lambda p: (-first.get(p.row, 0.0), p.id))
        kept = {place.row: place for place in order[: self._settings.retrieval.candidates]}
        entries = [row for row, place in kept.items() if place.tier == "episodic"]
        best, rest = entries[:_CONTEXT], entries[_CONTEXT:]
        around = self._reader.neighbours(rest, self._scopes, _REACH)
        wide = self._reader.neighbours(best, self._scopes, _REACH + _BESIDE)
        for row, (before, after) in wide.items():
            own = (row, kept[row].length)
            around[row] = (before[:_REACH], after[:_REACH])
            for one, other in ((before, after), (after, before)):
                for place, (beside, _) in enumerate(one[:_BESIDE]):
                    # What lies around the turn beside it, read off the same line of turns.
                    back = [*reversed(one[:place]), own, *other][:_REACH]
                    on = one[place + 1 : place + 1 + _REACH]
                    around.setdefault(beside, (on, back) if one is before else (back, on))
        near = [row for row in around if row not in kept]
        kept |= {place.row: place for place in self._reader.candidates(near)}
        return kept, around

    def _context(
        self,
        places: Sequence[Candidate],
        words: Match,
        scores: Mapping[int, float],
        around: Mapping[int, tuple[RowLengths, RowLengths]],
    ) -> dict[str, list[float]]:
        """Score the turns next to each candidate, and the turns around it as one text."""
        found: dict[str, list[float]] = {"previous": [], "next": [], "window": []}
        near = {row for sides in around.values() for side in sides for row, _ in side}
        in_row = words.terms_of(near.union(place.row for place in places))
        for place in places:
            before, after = around.get(place.row, ([], []))
            if place.tier != "episodic":  # it stands alone
                found["window"].append(scores.get(place.row, 0.0))
                found["previous"].append(0.0)
                found["next"].append(0.0)
                continue
            found["previous"].append(scores.get(before[0][0], 0.0) if before else 0.0)
            found["next"].append(scores.get(after[0][0], 0.0) if after else 0.0)
            turns = [*before, (place.row, place.length), *after]
            matching = [in_row[row] for row, _ in turns if row in in_row]
            if not matching:
                found["window"].append(0.0)
                continue
            together = dict(matching[0])
            for tfs in matching[1:]:
                for term, tf in tfs.items():
                    together[term] = together.get(term, 0) + tf
            # Compared with the average turn, so that long windows pay no more than short ones.
            length = sum(size for _, size in turns) / len(turns)
            found["window"].append(words.score(together, length))
        return {name: ranking.scale_by_max(values) for name, values in found.items()}

    def _sessions(self, places: Sequence[Candidate], facts: Sequence[int]) -> list[float]:
        """Mark the entries of Stage 1's sessions: a bonus, not a wall."""
        chosen: dict[int, float] = {}
        limit = self._settings.retrieval.sessions
        for place in self._in_order(facts):
            if len(chosen) >= limit:
                break
            for session in self._reader.fact_sessions(place.id, self._scopes):
                if len(chosen) < limit:
                    chosen.setdefault(session, 1.0)
        return [chosen.get(place.session, 0.0) if place.session else 0.0 for place in places]

    def _session_words(self, places: Sequence[Candidate], words: Match) -> list[float]:
        """Score each session by the candidates' words in it, as if it were one text.

        A word counts by how few of the candidates' sessions have it.  Nothing where there are few
        sessions, as which of them it is then says too little, nor where the candidates are so
        scattered that what meets in a session meets by chance.
        """
        sessions = {place.session for place in places if place.session}
        if not _MANY_SESSIONS < len(sessions) <= len(places) / _TOGETHER:
            return [0.0] * len(places)
        together: dict[str, Counter[int]] = {}
        in_row = words.terms_of([place.row for place in places])
        for place in places:
            for term, tf in in_row.get(place.row, _NO_WORDS).items():
                if place.session:
                    together.setdefault(term, Counter())[place.session] += tf
        scores = dict.fromkeys(sessions, 0.0)
        for term in sorted(together):
            counts = together[term]
            value = words.weights[term] * idf(len(sessions), len(counts))
            for session, tf in counts.items():
                scores[session] += value * saturation(tf, 1.0, 1.0)
        return ranking.scale_by_max([scores.get(place.session or 0, 0.0) for place in places])

    def _in_order(self, rows: Sequence[int]) -> list[Candidate]:
        places = {place.row: place for place in self._reader.candidates(rows)}
        return [places[row] for row in rows if row in places]

    def _named(self, places: Sequence[Candidate], terms: Mapping[str, float]) -> list[float]:
        """Mark what was said by, or states something of, a speaker whose name is in the query."""
        # What only a fact is about names nobody: a question about a port names "port" as well.
        speakers = {p.speaker for p in places if p.speaker and p.tier == "episodic"}
        named = {s for s in speakers if any(word in terms for word in self._tokens.words(s))}
        if named == speakers:
            named = set()  # all of them, or nobody: it says nothing
        return [float(place.speaker in named) for place in places]

    def _standing(
        self, places: Sequence[Candidate], bm25: Sequence[float]
    ) -> dict[str, list[float]]:
        """Return what does not depend on the words: age, learned weight and tier."""
        settings, now = self._settings.retrieval, self._asker.at.timestamp()
        return {
            "decay": [
                ranking.decay(
                    (now - place.observed) / ranking.DAY_SECONDS,
                    settings.decay_lambda,
                    bypass=score > settings.decay_bypass,
                )
                for place, score in zip(places, bm25, strict=True)
            ],
            "weight": [ranking.weight_signal(place.weight) for place in places],
            "tier": [ranking.tier_signal(place.tier, place.confidence) for place in places],
        }

    # -- paper ---------------------------------------------------------------------------------

    def rank_as_published(self, query: str) -> None:
        """Rank as published: facts choose sessions, their entries are scored by eq. 2."""
        asked = PaperSearch(self._reader, self._settings, self._scopes, self._asker.at, self._check)
        found = asked.rank(query[:MAX_QUERY_CHARS], self._likeness if self._near else None)
        self.result.ranked = found.ranked
        self.result.postings += found.postings
        self.result.vectors += found.vectors

    def _likeness(self, query: str, rows: Sequence[int]) -> Mapping[int, float]:
        assert self._near is not None  # or else not handed on
        found = self._reader.vectors.similarity(self._near.model, self._near.vector, rows)
        return {row: max(0.0, value) for row, value in found.items()}


def _asked_about(
    spans: Sequence[TimeSpan],
    found: Sequence[Candidate],
    said: Mapping[int, Sequence[float]],
) -> list[float]:
    """Return how near each candidate was said to the time that the query names, if any."""
    if not spans:
        return [0.0] * len(found)
    return [
        max(
            best_nearness(spans, datetime.fromtimestamp(moment, UTC))
            for moment in said.get(place.row) or [place.observed]
        )
        for place in found
    ]


def _only(scores: Mapping[int, float], rows: Collection[int]) -> dict[int, float]:
    return {row: scores[row] for row in rows if row in scores}


def _best(scores: Mapping[int, float], limit: int) -> list[int]:
    # By score, ties by row: a stable sort keeps the order of the first one, also in reverse.
    return sorted(sorted(scores), key=scores.__getitem__, reverse=True)[:limit]
