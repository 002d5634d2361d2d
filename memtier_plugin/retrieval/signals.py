"""The signals of `recall_first`: a table of functions from a pool to one value a candidate.  Pure.

Each returns values in [0, 1], in the order of the pool's candidates, or None where it has nothing
to say about the query.  `retrieval.weights` has one key for each of them; the signals of plugins
are added under their own names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from memtier_plugin.core.settings.schema import Retrieval
from memtier_plugin.retrieval import ranking
from memtier_plugin.retrieval.query import ParsedQuery
from memtier_plugin.storage.index.bm25 import idf, saturation
from memtier_plugin.storage.index.candidate_reader import Candidate, Match, RowLengths
from memtier_plugin.text.dates.spans import best_nearness

_MIN_SESSIONS: Final = 12  # up to so many sessions, which one it is says nothing
_MIN_PER_SESSION: Final = 3  # candidates, on average; with fewer they share a session by chance
_NO_TERMS: Final[Mapping[str, int]] = {}

Around = Mapping[int, tuple[RowLengths, RowLengths]]  # by row: the turns before it and after it
Signals = dict[str, Sequence[float]]  # by name: one value a candidate


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of one query in the order of their rows, and what was read about them.

    Attributes:
        match: the words of the query in the entries.
        bm25: the lexical score of each candidate.
        scores: the lexical score of every row that was reached, by row.
        ngram_scores: by row, by the n-grams it shares with the query.
        source_strength: of an entry's row, how strong the best fact is that rests on it.
        source_times: of a fact's row, when each of its sources was said.
        around: the turns next to an entry.
        sessions: those that the best facts come from (Stage 1; MemTier, section 3.2).
        kinds: of a row that is a summary or a timeline, which of the two.
        similarity: by row, the cosine to the query's vector; None where there is no vector.
    """

    query: ParsedQuery
    settings: Retrieval
    candidates: Sequence[Candidate]
    match: Match
    bm25: Sequence[float]
    scores: Mapping[int, float]
    ngram_scores: Mapping[int, float]
    source_strength: Mapping[int, float]
    source_times: Mapping[int, Sequence[float]]
    around: Around
    sessions: Collection[int]
    kinds: Mapping[int, str]
    similarity: Mapping[int, float] | None

    def scale(self, scores: Mapping[int, float]) -> list[float]:
        """Return each candidate's score divided by the best one's."""
        values = [scores.get(candidate.row, 0.0) for candidate in self.candidates]
        return ranking.scale_by_max(values)


def score_signals(pool: Pool) -> Signals:
    """Return the values of every signal that applies to the query."""
    scored = ((name, signal(pool)) for name, signal in SIGNALS.items())
    return {name: values for name, values in scored if values is not None}


# -- words -----------------------------------------------------------------------------------------


def words(pool: Pool) -> list[float]:
    """Score the words that a candidate shares with the query (BM25)."""
    return ranking.scale_by_max(pool.bm25)


def ngrams(pool: Pool) -> list[float]:
    """Score the n-grams that a candidate shares with the query: names, codes, other languages."""
    return pool.scale(pool.ngram_scores)


def previous_turn(pool: Pool) -> list[float]:
    """Score the turn before an entry."""
    return _neighbour(pool, 0)


def next_turn(pool: Pool) -> list[float]:
    """Score the turn after an entry."""
    return _neighbour(pool, 1)


def _neighbour(pool: Pool, side: int) -> list[float]:
    values = []
    for candidate in pool.candidates:
        turns = pool.around[candidate.row][side] if candidate.row in pool.around else ()
        episodic = candidate.tier == "episodic"  # a fact stands alone
        values.append(pool.scores.get(turns[0][0], 0.0) if turns and episodic else 0.0)
    return ranking.scale_by_max(values)


def window(pool: Pool) -> list[float]:
    """Score the turns around an entry, and itself, as one text."""
    near = {row for sides in pool.around.values() for side in sides for row, _ in side}
    terms = pool.match.terms_of(near.union(candidate.row for candidate in pool.candidates))
    windows: dict[int, tuple[dict[str, float], float]] = {}
    for candidate in pool.candidates:
        if candidate.tier != "episodic":
            continue
        before, after = pool.around.get(candidate.row, ([], []))
        turns = [*before, (candidate.row, candidate.length), *after]
        together: dict[str, float] = {}
        for row, _ in turns:
            for term, count in terms.get(row, _NO_TERMS).items():
                together[term] = together.get(term, 0) + count
        if together:
            # Compared with the average turn, so that long windows pay no more than short ones.
            length = sum(size for _, size in turns) / len(turns)
            windows[candidate.row] = together, length
    scores = dict(zip(windows, pool.match.score_documents(windows.values()), strict=True))
    return ranking.scale_by_max(
        [
            scores.get(c.row, 0.0) if c.tier == "episodic" else pool.scores.get(c.row, 0.0)
            for c in pool.candidates
        ]
    )


def session_words(pool: Pool) -> list[float]:
    """Score each session by the candidates' words in it, as if it were one text.

    A word counts by how few of the candidates' sessions have it.  Nothing where there are few
    sessions, as which of them it is then says too little, nor where the candidates are so
    scattered that what meets in a session meets by chance.
    """
    candidates = pool.candidates
    sessions = {candidate.session for candidate in candidates if candidate.session}
    if not _MIN_SESSIONS < len(sessions) <= len(candidates) / _MIN_PER_SESSION:
        return [0.0] * len(candidates)
    by_term: dict[str, Counter[int]] = {}
    terms = pool.match.terms_of([candidate.row for candidate in candidates])
    for candidate in candidates:
        for term, count in terms.get(candidate.row, _NO_TERMS).items():
            if candidate.session:
                by_term.setdefault(term, Counter())[candidate.session] += count
    scores = dict.fromkeys(sessions, 0.0)
    for term in sorted(by_term):
        counts = by_term[term]
        value = pool.match.weights[term] * idf(len(sessions), len(counts))
        for session, count in counts.items():
            scores[session] += value * saturation(count, 1.0, 1.0)
    values = [scores.get(candidate.session or 0, 0.0) for candidate in candidates]
    return ranking.scale_by_max(values)


# -- facts -----------------------------------------------------------------------------------------


def source(pool: Pool) -> list[float]:
    """Score an entry by the best matching fact that rests on it."""
    return pool.scale(pool.source_strength)


def session(pool: Pool) -> list[float]:
    """Mark the entries of the best facts' sessions: a bonus, not a wall."""
    return [float(candidate.session in pool.sessions) for candidate in pool.candidates]


# -- who, what and when ----------------------------------------------------------------------------


def speaker(pool: Pool) -> list[float]:
    """Mark what was said by, or states something of, a speaker whose name is in the query."""
    # What only a fact is about names nobody: a question about a port names "port" as well.
    speakers = {c.speaker for c in pool.candidates if c.speaker and c.tier == "episodic"}
    named = {name for name in speakers if pool.query.names(name)}
    if named == speakers:
        named = set()  # all of them, or nobody: it says nothing
    return [float(candidate.speaker in named) for candidate in pool.candidates]


def user(pool: Pool) -> list[float]:
    """Mark what the user said."""
    return [float(candidate.role == "user") for candidate in pool.candidates]


def standing(pool: Pool) -> list[float]:
    """Mark standing instructions."""
    return [float(candidate.standing) for candidate in pool.candidates]


def asked_time(pool: Pool) -> list[float]:
    """Score how near a candidate was said to the time that the query names, if any."""
    spans = pool.query.spans
    if not spans:
        return [0.0] * len(pool.candidates)
    return [
        max(
            best_nearness(spans, datetime.fromtimestamp(moment, UTC))
            for moment in pool.source_times.get(candidate.row) or [candidate.observed]
        )
        for candidate in pool.candidates
    ]


def overview(pool: Pool) -> list[float] | None:
    """Score the summary or the timeline that the query asks for; see `ranking.overview_signal`."""
    if not pool.kinds:
        return None
    kinds = [pool.kinds.get(candidate.row, "") for candidate in pool.candidates]
    times = asked_time(pool) if pool.query.spans else ()
    observed = [candidate.observed for candidate in pool.candidates]
    return ranking.overview_signal(kinds, times, observed, pool.bm25)


# -- what does not depend on the query's words -----------------------------------------------------


def decay(pool: Pool) -> list[float]:
    """Score a candidate's age (MemTier, section 3.2, eq. 3)."""
    rate, bypass = pool.settings.decay_lambda, pool.settings.decay_bypass
    now = pool.query.at.timestamp()
    ages = [(now - candidate.observed) / ranking.DAY_SECONDS for candidate in pool.candidates]
    return ranking.decay_signals(ages, pool.bm25, rate, bypass)


def weight(pool: Pool) -> list[float]:
    """Score the learned cognitive weight."""
    return ranking.weight_signals([candidate.weight for candidate in pool.candidates])


def tier(pool: Pool) -> list[float]:
    """Score the tier, and how sure a fact is."""
    return ranking.tier_signals([(c.tier, c.confidence) for c in pool.candidates])


# -- meaning ---------------------------------------------------------------------------------------


def dense(pool: Pool) -> list[float] | None:
    """Score how near a candidate is to the query in meaning."""
    return None if pool.similarity is None else pool.scale(pool.similarity)


def dense_window(pool: Pool) -> list[float] | None:
    """Score how near a candidate and the turns next to it are to the query in meaning."""
    if pool.similarity is None:
        return None
    similarity = pool.similarity
    adjacent = adjacent_rows(pool.around, (candidate.row for candidate in pool.candidates))
    values = []
    for candidate in pool.candidates:
        near = adjacent[candidate.row]
        total = similarity.get(candidate.row, 0.0) + sum(similarity.get(row, 0.0) for row in near)
        values.append(total / (1 + len(near)))
    return ranking.scale_by_max(values)


def adjacent_rows(around: Around, rows: Iterable[int]) -> dict[int, list[int]]:
    """Return, by row, the rows of the turns directly before and after it."""
    return {row: [turns[0][0] for turns in around.get(row, ()) if turns] for row in rows}


SIGNALS: Final[Mapping[str, Callable[[Pool], Sequence[float] | None]]] = {
    "previous": previous_turn,
    "next": next_turn,
    "window": window,
    "words": words,
    "grams": ngrams,
    "source": source,
    "session": session,
    "session_words": session_words,
    "speaker": speaker,
    "user": user,
    "standing": standing,
    "time": asked_time,
    "overview": overview,
    "decay": decay,
    "weight": weight,
    "tier": tier,
    "dense": dense,
    "dense_window": dense_window,
}
