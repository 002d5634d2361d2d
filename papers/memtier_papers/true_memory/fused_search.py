"""Rank one query by weighted reciprocal ranks, as published in True Memory (sections 4, 6-9).

Words and vectors each rank up to 200 items, and the ranks are fused (eq. 3).  Then, as in eq. 4,
statements from a time that the query names gain 30 %; a question about what somebody is like brings
in that person's profile and the lines most in their style; the salience guard drops mere
acknowledgements; and what says what no line said before gains up to 20 %.

Vectors here include the speaker beside the words, like those of the paper's separation list.  There
is no second set without the speaker, so with more than five speakers their ranking counts twice: as
the dense list and, with its lower weight, as the separation list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heappop, heappush, nlargest
from typing import Final, NamedTuple

from memtier_papers.memtier.scorer import RRF_CONSTANT, fuse_ranks
from memtier_papers.true_memory.profile_search import find_styled_lines
from memtier_papers.true_memory.settings import PeopleSettings, Rrf
from memtier_papers.true_memory.surprise_search import measure_surprise
from memtier_plugin.core import plugins
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.retrieval.candidates import SearchView
from memtier_plugin.retrieval.query import ParsedQuery, QueryVector, asks_overview
from memtier_plugin.storage.index.candidate_reader import Candidate
from memtier_plugin.text.phrases import only_acknowledges

WEIGHTS: Final[Mapping[str, float]] = {
    "words": 1.0,
    "dense": 1.0,
    "separation": 0.8,
    "hypothetical": 1.0,
}
# What the best result of each kind about a person has of the best score (f_L0 in eq. 4).
PRIOR: Final[Mapping[str, float]] = {"profile": 0.8, "style": 0.9}
LISTED: Final = 200  # candidates of each source
WINDOW_FACTOR: Final = 1.3  # for statements from the time that the query names
_SEPARATED: Final = 5  # maximum number of speakers for which the separation list is pointless
_OPENING: Final = 200  # characters; items with the same opening are duplicates
_FIRST: Final = RRF_CONSTANT + 1  # scales the reciprocal rank of a first place
_BATCH: Final = 100  # rows whose records are read together


class Scored(NamedTuple):
    """A row with its score and signals.

    Attributes:
        prior: the least score that it has as a result about a person, whatever its surprise.
    """

    row: int
    score: float
    signals: Mapping[str, float]
    prior: float = 0.0


@dataclass(frozen=True, slots=True)
class FusedRanking:
    """Rows with score and signals, best first, and the counts of what was read.

    A score is that of eq. 3 times 61, so that a first rank in a list of weight 1 counts 1.
    """

    ranked: list[tuple[int, float, Mapping[str, float]]]
    postings: int
    vectors: int
    terms: Mapping[str, float]


class FusedSearch:
    """The `rrf` profile for one viewer."""

    def __init__(self, view: SearchView) -> None:
        self._view = view
        self._reader = view.reader
        self._settings = view.settings
        self._scopes = [*view.scopes, *view.shared]

    def rank(
        self,
        query: ParsedQuery,
        vector: QueryVector | None,
        hypothetical: QueryVector | None = None,
    ) -> FusedRanking:
        """Rank facts and entries together.

        Args:
            vector: None to rank by words only.
            hypothetical: the vector of a made-up answer, whose neighbours form one more list.
        """
        retrieval = self._settings.retrieval
        match = self._reader.match_words(self._scopes, query.terms, retrieval.postings_cap)
        sources: dict[str, Mapping[int, float]] = {"words": match.scores()}
        self._view.check()
        read = 0
        for name, searched in (("dense", vector), ("hypothetical", hypothetical)):
            if searched is not None:
                near, pieces = self._reader.vectors.nearest(
                    searched.model, self._scopes, searched.vector, retrieval.vectors_cap, LISTED
                )
                sources[name], read = near, read + pieces
            self._view.check()
        rows = {row for scores in sources.values() for row in _best(scores)}
        by_row = {candidate.row: candidate for candidate in self._reader.candidates(rows)}
        lists = {name: _listed(scores, by_row) for name, scores in sources.items()}
        if "dense" in lists and len({c.speaker for c in by_row.values()}) > _SEPARATED:
            lists["separation"] = lists["dense"]
        scored = inject_prior(score_lists(query, by_row, lists), self._find_prior(query))
        new = [hit.row for hit in scored if hit.row not in by_row]
        by_row |= {each.row: each for each in self._reader.candidates(new)}
        kept = self._keep_salient(query, self._read(query, scored, by_row), by_row)
        return FusedRanking([*kept], match.postings, read, match.idfs)

    def _find_prior(self, query: ParsedQuery) -> Mapping[str, Mapping[int, float]]:
        """Return the results about the people whose character a query asks for, by kind and row."""
        if not self._settings.of(PeopleSettings).profiles:
            return {}
        kinds = plugins.find_overview_rows(query, self._view)
        profiles = [row for row, kind in kinds.items() if kind == "profile"]
        if not profiles:
            return {}
        styled = find_styled_lines(profiles, self._reader, self._settings.of(Rrf).k)
        return {"profile": dict.fromkeys(profiles, 1.0), "style": styled}

    def _read(
        self, query: ParsedQuery, scored: Sequence[Scored], by_row: Mapping[int, Candidate]
    ) -> Iterator[tuple[Scored, Entry | Fact]]:
        """Yield rows with their surprise counted and their items, best first.

        Surprise raises a score to at most 1 + alpha times, so once a row is better than that of
        every row that is still to be read, it is yielded.
        """
        alpha = self._settings.of(Rrf).surprise
        ceilings = [(max(boost(hit.score, 1.0, alpha), hit.prior), hit) for hit in scored]
        ceilings.sort(key=lambda pair: (-pair[0], by_row[pair[1].row].id))
        waiting: list[tuple[float, str, Scored, Entry | Fact]] = []
        for start in range(0, len(ceilings), _BATCH):
            batch = [hit for _, hit in ceilings[start : start + _BATCH]]
            stored = self._reader.items_by_row([hit.row for hit in batch])
            items = {row: each.item for row, each in stored.items()}
            texts = {row: item.text for row, item in items.items() if isinstance(item, Entry)}
            words, scopes = query.tokenizer.words, self._view.scopes
            news = measure_surprise(texts, self._reader, scopes, words) if alpha else {}
            self._view.check()
            for hit in batch:
                if hit.row in items:
                    counted = _with_surprise(hit, news.get(hit.row, 0.0), alpha)
                    order = -counted.score, by_row[hit.row].id
                    heappush(waiting, (*order, counted, items[hit.row]))
            following = ceilings[start + _BATCH : start + _BATCH + 1]
            reachable = following[0][0] if following else -1.0
            while waiting and -waiting[0][0] > reachable:
                yield heappop(waiting)[2:]

    def _keep_salient(
        self,
        query: ParsedQuery,
        hits: Iterator[tuple[Scored, Entry | Fact]],
        by_row: Mapping[int, Candidate],
    ) -> Iterator[tuple[int, float, Mapping[str, float]]]:
        """Yield the best rows, each text once, without those of too little salience.

        The paper's guard drops items that score below .05, and below .02 if the query asks for an
        overview; only a mere acknowledgement (.02) does.  Statements of a person whom the query
        names are exempt.
        """
        guards = self._settings.of(Rrf).guard and not asks_overview(query.text)
        limit, openings = self._settings.retrieval.candidates, set[str]()
        for hit, item in hits:
            if len(openings) >= limit:
                return
            speaker, opening = by_row[hit.row].speaker, item.text[:_OPENING]
            is_entry = isinstance(item, Entry)
            exempt = not guards or not is_entry or (speaker and query.names(speaker))
            if opening in openings or not (exempt or not only_acknowledges(item.text)):
                continue
            openings.add(opening)
            yield hit.row, hit.score, hit.signals


def boost(score: float, surprise: float, alpha: float) -> float:
    """Return a score multiplied for a line's surprise (True Memory, section 4.1, stage 9)."""
    return score * (1.0 + alpha * surprise)


def _with_surprise(hit: Scored, surprise: float, alpha: float) -> Scored:
    signals = {**hit.signals, "surprise": surprise} if surprise else hit.signals
    return Scored(hit.row, max(boost(hit.score, surprise, alpha), hit.prior), signals)


def inject_prior(
    scored: Sequence[Scored], results: Mapping[str, Mapping[int, float]]
) -> list[Scored]:
    """Return rows with those about a person added, which get their share of the best score (eq. 4).

    Args:
        scored: best first.
        results: rows by kind (`PRIOR`), each with how good it is of its kind, the best 1.
    """
    best = scored[0].score if scored else 1.0
    by_row = {hit.row: hit for hit in scored}
    for kind, rows in results.items():
        for row, value in rows.items():
            hit = by_row.get(row, Scored(row, 0.0, {}))
            prior = max(hit.prior, PRIOR[kind] * best * value)
            by_row[row] = Scored(row, hit.score, {**hit.signals, kind: value}, prior)
    return [*by_row.values()]


def score_lists(
    query: ParsedQuery, by_row: Mapping[int, Candidate], lists: Mapping[str, Sequence[int]]
) -> list[Scored]:
    """Return rows with score and signals, best first (True Memory, eq. 3 and 4).

    Args:
        lists: the rows of each source, best first.
    """
    ranks = {name: {row: n for n, row in enumerate(rows, 1)} for name, rows in lists.items()}
    fused = fuse_ranks(
        [[by_row[row].id for row in rows] for rows in lists.values()],
        weights=[WEIGHTS[name] for name in lists],
    )
    row_of = {candidate.id: row for row, candidate in by_row.items()}
    scored = []
    for item_id, score in fused.items():
        row = row_of[item_id]
        signals = {
            name: _FIRST / (RRF_CONSTANT + rank[row]) if row in rank else 0.0
            for name, rank in ranks.items()
        }
        moment = datetime.fromtimestamp(by_row[row].observed, UTC)
        if any(span.start <= moment <= span.end for span in query.spans):
            signals["in_time"], score = 1.0, score * WINDOW_FACTOR
        scored.append(Scored(row, _FIRST * score, signals))
    return sorted(scored, key=lambda hit: (-hit.score, by_row[hit.row].id))


def _best(scores: Mapping[int, float]) -> list[int]:
    """Return the best rows of one source, including ties with the last."""
    least = nlargest(LISTED, scores.values())[-1:]
    return [row for row, score in scores.items() if score >= least[0]]


def _listed(scores: Mapping[int, float], by_row: Mapping[int, Candidate]) -> list[int]:
    """Return the best rows of one source, best first; ties go by id."""
    rows = [row for row in scores if row in by_row]
    return sorted(rows, key=lambda row: (-scores[row], by_row[row].id))[:LISTED]
