"""The signals of `recall_first`, one value a candidate each, their weights and their sum.  Pure."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from memtier_plugin.core.settings.schema import Retrieval, Weights
from memtier_plugin.retrieval.query import ParsedQuery
from memtier_plugin.storage.index.candidate_reader import Candidate, Match
from memtier_plugin.storage.index.postings import idf, saturation
from memtier_plugin.storage.index.records import RowLengths
from memtier_plugin.text.dates.spans import best_nearness

# Each signal returns values in the order of the pool's candidates, or None where it has nothing to
# say about the query.  The values of those in `SCALED` have no upper bound: `score_signals` divides
# them by their largest, so that every signal lies in [0, 1].  `retrieval.weights` has one key for
# each of them; the signals of plugins are added under their own names.

_MIN_SESSIONS: Final = 12  # up to so many sessions, which one it is says nothing
_MIN_PER_SESSION: Final = 3  # candidates, on average; with fewer they share a session by chance
_NO_TERMS: Final[Mapping[str, int]] = {}
_NO_TURNS: Final[tuple[RowLengths, RowLengths]] = ([], [])

Around = Mapping[int, tuple[RowLengths, RowLengths]]  # by row: the turns before it and after it
Adjacent = tuple[int, int]  # the rows of the turn before and of the one after; 0 for none
ScoredRow = tuple[int, float, Mapping[str, float]]  # row, score, signals
Signals = dict[str, Sequence[float]]  # by name: one value a candidate


class WordScores(Struct, frozen=True):
    """What rows share with a query by its words and n-grams.

    Attributes:
        entries, facts: the words of the query in the entries and in the facts.
        bm25: the lexical score of every row that was reached, by row.
        terms: by row, the words of the query in each candidate and in the turns around it.
        ngrams: the score by n-grams, by row.
    """

    entries: Match
    facts: Match
    bm25: Mapping[int, float]
    terms: Mapping[int, Mapping[str, int]]
    ngrams: Mapping[int, float] = {}


class FactLinks(Struct, frozen=True):
    """What facts say of the entries they rest on, and which of them are overviews.

    Attributes:
        strength: of an entry's row, how strong the best fact is that rests on it.
        times: of a fact's row, when each of its sources was said.
        sessions: those that the best facts come from (Stage 1; MemTier, section 3.2).
        kinds: of a row that is a summary or a timeline, which of the two.
    """

    strength: Mapping[int, float] = {}
    times: Mapping[int, Sequence[float]] = {}
    sessions: Collection[int] = ()
    kinds: Mapping[int, str] = {}


class Pool(Struct, frozen=True):
    """The candidates of one query in the order of their rows, and what was read about them.

    Attributes:
        bm25: the lexical score of each candidate.
        adjacent: for each candidate, the rows of the turns directly before and after it.
        around: the turns next to an entry, by row.
        similarity: by row, the cosine to the query's vector; None where there is no vector.
        expansion: the name of the signal of another text that is searched for, and by row the
            cosine to its vector.
        first: by row, the first score: how good a candidate is by itself.
    """

    query: ParsedQuery
    settings: Retrieval
    candidates: Sequence[Candidate]
    words: WordScores
    bm25: Sequence[float]
    adjacent: Sequence[Adjacent]
    around: Around = {}
    facts: FactLinks = FactLinks()
    similarity: Mapping[int, float] | None = None
    expansion: tuple[str, Mapping[int, float]] | None = None
    first: Mapping[int, float] = {}

    @property
    def documents(self) -> int:
        """How many entries and facts the viewer may see."""
        return self.words.entries.documents + self.words.facts.documents

    def values(self, scores: Mapping[int, float]) -> list[float]:
        """Return each candidate's score, 0 for those without one."""
        if not scores:
            return [0.0] * len(self.candidates)
        return [scores.get(candidate.row, 0.0) for candidate in self.candidates]


def score_signals(pool: Pool) -> Signals:
    """Return the values in [0, 1] of every signal that applies to the query."""
    scored = ((name, signal(pool)) for name, signal in SIGNALS.items())
    signals = {name: values for name, values in scored if values is not None}
    signals |= {name: scale_by_max(signals[name]) for name in SCALED & signals.keys()}
    if pool.expansion:
        name, likeness = pool.expansion
        signals[name] = scale_by_max(pool.values(likeness))
    return signals


# -- words -----------------------------------------------------------------------------------------


def words(pool: Pool) -> Sequence[float]:
    """Score the words that a candidate shares with the query (BM25)."""
    return pool.bm25


def ngrams(pool: Pool) -> list[float]:
    """Score the n-grams that a candidate shares with the query: names, codes, other languages."""
    return pool.values(pool.words.ngrams)


def adjacent_turn(pool: Pool, side: int) -> list[float]:
    """Score the turn before an entry (side 0), or the one after it (1)."""
    score = pool.words.bm25.get
    return [score(sides[side], 0.0) for sides in pool.adjacent]


def window(pool: Pool) -> list[float]:
    """Score the turns around an entry, and itself, as one text."""
    around, score, terms = pool.around, pool.words.entries.score_document, pool.words.terms.get
    values = []
    for candidate, bm25 in zip(pool.candidates, pool.bm25, strict=True):
        if candidate.tier != "episodic":
            values.append(bm25)
            continue
        before, after = around.get(candidate.row, _NO_TURNS)
        together: dict[str, int] = {}
        length = 0
        for turns in (before, [(candidate.row, candidate.length)], after):
            for row, words in turns:
                length += words
                if counts := terms(row):
                    for term, count in counts.items():
                        together[term] = together.get(term, 0) + count
        # Compared with the average turn, so that long windows pay no more than short ones.
        many = len(before) + 1 + len(after)
        values.append(score(together, length / many) if together else 0.0)
    return values


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
    by_term: dict[str, Counter[int]] = defaultdict(Counter)
    for candidate in candidates:
        for term, count in pool.words.terms.get(candidate.row, _NO_TERMS).items():
            if candidate.session:
                by_term[term][candidate.session] += count
    scores = dict.fromkeys(sessions, 0.0)
    for term in sorted(by_term):
        counts = by_term[term]
        value = pool.words.entries.weights[term] * idf(len(sessions), len(counts))
        for session, count in counts.items():
            scores[session] += value * saturation(count, 1.0, 1.0)
    return [scores.get(candidate.session or 0, 0.0) for candidate in candidates]


# -- facts -----------------------------------------------------------------------------------------


def source(pool: Pool) -> list[float]:
    """Score an entry by the best matching fact that rests on it."""
    return pool.values(pool.facts.strength)


def session(pool: Pool) -> list[float]:
    """Mark the entries of the best facts' sessions: a bonus, not a wall."""
    return [float(candidate.session in pool.facts.sessions) for candidate in pool.candidates]


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
            for moment in pool.facts.times.get(candidate.row) or [candidate.observed]
        )
        for candidate in pool.candidates
    ]


def overview(pool: Pool) -> list[float] | None:
    """Score the summary or the timeline that the query asks for; see `overview_signal`."""
    if not pool.facts.kinds:
        return None
    kinds = [pool.facts.kinds.get(candidate.row, "") for candidate in pool.candidates]
    times = asked_time(pool) if pool.query.spans else ()
    observed = [candidate.observed for candidate in pool.candidates]
    return overview_signal(kinds, times, observed, pool.bm25)


# -- what does not depend on the query's words -----------------------------------------------------


def decay(pool: Pool) -> list[float]:
    """Score a candidate's age (MemTier, section 3.2, eq. 3)."""
    rate, threshold = pool.settings.decay_lambda, pool.settings.decay_bypass
    now, day = pool.query.at.timestamp(), DAY_SECONDS
    ages = [max(0.0, now - candidate.observed) / day for candidate in pool.candidates]
    return [
        1.0 if score > threshold else math.exp(-rate * age)
        for age, score in zip(ages, pool.bm25, strict=True)
    ]


def weight(pool: Pool) -> list[float]:
    """Score the learned cognitive weight."""
    return [(candidate.weight + 1) / 2 for candidate in pool.candidates]  # from [-1, 1]


def tier(pool: Pool) -> list[float]:
    """Score the tier, and how sure a fact is."""
    tiers = [(candidate.tier, candidate.confidence) for candidate in pool.candidates]
    bonus = {key: tier_signal(*key) for key in {*tiers}}  # mostly the entries' alone
    return [bonus[key] for key in tiers]


# -- meaning ---------------------------------------------------------------------------------------


def dense(pool: Pool) -> list[float] | None:
    """Score how near a candidate is to the query in meaning."""
    return None if pool.similarity is None else pool.values(pool.similarity)


def dense_window(pool: Pool) -> list[float] | None:
    """Score how near a candidate and the turns next to it are to the query in meaning."""
    if pool.similarity is None:
        return None
    cosine = pool.similarity.get
    return [
        (cosine(c.row, 0.0) + (cosine(before, 0.0) + cosine(after, 0.0)))
        / (1 + (before > 0) + (after > 0))
        for c, (before, after) in zip(pool.candidates, pool.adjacent, strict=True)
    ]


def dense_previous(pool: Pool) -> list[float] | None:
    """Score how near a candidate and the turn before it are to the query in meaning."""
    if pool.similarity is None:
        return None
    cosine = pool.similarity.get
    return [
        (cosine(c.row, 0.0) + cosine(before, 0.0)) / (1 + (before > 0))
        for c, (before, _) in zip(pool.candidates, pool.adjacent, strict=True)
    ]


SIGNALS: Final[Mapping[str, Callable[[Pool], Sequence[float] | None]]] = {
    "previous": partial(adjacent_turn, side=0),
    "next": partial(adjacent_turn, side=1),
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
    "dense_previous": dense_previous,
}
SCALED: Final = frozenset(
    {
        "previous",
        "next",
        "window",
        "words",
        "grams",
        "source",
        "session_words",
        "dense",
        "dense_window",
        "dense_previous",
    }
)


# -- Ranking of `recall_first`: signals on one scale, added up by weight.  Pure
#
# Raw BM25 dominates every bounded signal (MemTier, section 3.2, "BM25 signal").  Here each signal
# lies in [0, 1] before it is weighted: lexical scores are divided by the query's best, the others
# are bounded by nature.  A signal with the same value for every candidate (a speaker who said it
# all) adds the same to each, so it cannot change the order.  The weighted sum, decay, cognitive
# weight and tier follow MemTier, section 3.2, eq. 2 and 3.

TIER_FACTOR: Final = {"episodic": 1.0, "semantic": 1.2, "procedural": 1.4}  # MemTier, 3.2
DAY_SECONDS: Final = 86_400.0
# Of the best lexical score; below it a timeline is not about what is asked.
MIN_TIMELINE_SHARE: Final = 0.5
# At most, of a summary of another time than the one asked about.
OUTSIDE_SPAN_WEIGHT: Final = 0.25


class Ranked(Struct, frozen=True):
    """A ranked candidate: its index in the pool, its score and its signals."""

    index: int
    score: float
    signals: Mapping[str, float]


def scale_by_max(values: Sequence[float]) -> list[float]:
    """Divide by the largest, so that the best candidate of this query has 1."""
    top = max(values, default=0.0)
    if top <= 0:
        return [0.0] * len(values)
    return [value / top if value > 0 else 0.0 for value in values]


def add_scaled(rows: Iterable[int], *scores: Mapping[int, float]) -> dict[int, float]:
    """Return the sum of several scores of these rows, each scaled so that its best row has 1.

    Args:
        scores: by row; of others than these rows too, the best row may be one of them.
    """
    total = dict.fromkeys(rows, 0.0)
    for by_row in scores:
        top = max(by_row.values(), default=0.0)
        if top > 0:
            for row in total.keys() & by_row.keys():
                total[row] += max(0.0, by_row[row]) / top
    return total


def tier_signal(tier: str, confidence: float) -> float:
    """Return the bonus of a tier in [0, 1] (MemTier, section 3.2), scaled by a fact's confidence.

    A fact that a rule found earns less of it than one that somebody stated to be remembered.
    """
    return (TIER_FACTOR[tier] - 1) / 0.4 * max(0.0, min(1.0, 2 * confidence - 1))


def overview_signal(
    kinds: Sequence[str],
    times: Sequence[float],
    observed: Sequence[float],
    words: Sequence[float],
) -> list[float]:
    """Return how well each candidate is the summary, or the timeline, that a query asks for.

    Any summary of the time asked about will do, and where no time is named the newest; a timeline
    must be about what is asked.

    Args:
        kinds: what each candidate is: "summary", "timeline", "profile" (of somebody who is asked
            about) or none of them.
        times: how near each is to the time that the query names; empty when it names none.
        observed: when each was said.
        words: the lexical score of each.
    """
    top = max(words, default=0.0)
    shares = [score / top if score > MIN_TIMELINE_SHARE * top else 0.0 for score in words]
    recency = [time if time == 1.0 else OUTSIDE_SPAN_WEIGHT * time for time in times]
    if not times:
        newest = {at for at, kind in zip(observed, kinds, strict=True) if kind == "summary"}
        ranks = {at: rank for rank, at in enumerate(sorted(newest, reverse=True))}
        recency = [1.0 / (1.0 + ranks[at] / 4) if at in ranks else 0.0 for at in observed]
    return [
        {"summary": near, "timeline": share, "profile": 1.0}.get(kind, 0.0)
        for kind, share, near in zip(kinds, shares, recency, strict=True)
    ]


def rank(
    ids: Sequence[str],
    signals: Mapping[str, Sequence[float]],
    weights: Mapping[str, float],
    limit: int | None = None,
) -> list[Ranked]:
    """Order candidates by the weighted sum of their signals (MemTier, section 3.2, eq. 2).

    Ties go by id.

    Args:
        ids: one a candidate.
        signals: for each name one value in [0, 1] a candidate.
        weights: for each name its weight; a name without one counts as 0.
        limit: how many are returned, the best; all when None.
    """
    counted = [
        [weight * value for value in values]
        for name, values in signals.items()
        if (weight := weights.get(name)) and any(values)
    ]
    # fsum, so that the order in which signals were collected cannot change the score.
    scores = [*map(math.fsum, zip(*counted, strict=True))] if counted else [0.0] * len(ids)
    # Only what scores as well as the last of them is sorted by id too.
    least = sorted(scores, reverse=True)[limit - 1] if limit and limit < len(ids) else -math.inf
    good = ((-score, ids[index], index) for index, score in enumerate(scores) if score >= least)
    values = [*zip(*signals.values(), strict=True)] if signals else [()] * len(ids)
    return [
        Ranked(index, -score, dict(zip(signals, values[index], strict=True)))
        for score, _, index in sorted(good)[:limit]
    ]


# -- The ranking weights that belong to an embedding model.  Pure
#
# Cosines of another model are spread in another way and say more or less than words do, so that the
# weights fitted with one model rank badly with another.  ``model_weights.json`` holds those that
# were fitted with a model other than the shipped one (``scripts/fit_weights.py``).


def model_title(name: str) -> str:
    """Return the name of an embedder without its dimensions and its hash."""
    return name.rsplit("-", 2)[0]


@lru_cache(16)
def ranking_weights(configured: Weights, model: str | None) -> Weights:
    """Return the weights of a recall: those of its embedding model, where the user set no other.

    Args:
        configured: as configured; what differs from the defaults was set by the user, and stays.
        model: the name of the embedder whose vectors are compared, None where none are.
    """
    fitted = _fitted().get(model_title(model)) if model else None
    if not fitted:
        return configured
    defaults = asdict(Weights())
    chosen = {name for name, value in asdict(configured).items() if value != defaults[name]}
    return replace(
        configured, **{name: value for name, value in fitted.items() if name not in chosen}
    )


@cache
def _fitted() -> Mapping[str, Mapping[str, float]]:
    document: Mapping[str, Mapping[str, float]] = json.loads(
        Path(__file__).with_name("model_weights.json").read_bytes()
    )
    return document
