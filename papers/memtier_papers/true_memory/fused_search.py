"""Rank one query by weighted reciprocal ranks, as published in True Memory (sections 4, 6-9).

Words and vectors each rank up to 200 items, the ranks are fused (eq. 3), statements from a time
that the query names gain 30 % (eq. 4), and the salience guard drops mere acknowledgements. Vectors
here include the speaker beside the words, like those of the paper's separation list.  There is no
second set without the speaker, so with more than five speakers their ranking counts twice: as the
dense list and, with its lower weight, as the separation list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import nlargest
from typing import Final

from memtier_papers.memtier.scorer import RRF_CONSTANT, fuse_ranks
from memtier_papers.true_memory.settings import Rrf
from memtier_plugin.core.records import Entry
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.retrieval.query import ParsedQuery, QueryVector, asks_overview
from memtier_plugin.storage.index.candidate_reader import Candidate
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.phrases import only_acknowledges

WEIGHTS: Final[Mapping[str, float]] = {
    "words": 1.0,
    "dense": 1.0,
    "separation": 0.8,
    "hypothetical": 1.0,
}
LISTED: Final = 200  # candidates of each source
WINDOW_FACTOR: Final = 1.3  # for statements from the time that the query names
_SEPARATED: Final = 5  # maximum number of speakers for which the separation list is pointless
_OPENING: Final = 200  # characters; items with the same opening are duplicates
_FIRST: Final = RRF_CONSTANT + 1  # scales the reciprocal rank of a first place


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

    def __init__(
        self,
        reader: Reader,
        settings: Settings,
        scopes: Sequence[int],
        check: Callable[[], None],
    ) -> None:
        """Bind to the viewer's view.

        Args:
            scopes: of the entries and facts that the viewer may see.
            check: called between the steps; raises once the deadline has passed.
        """
        self._reader = reader
        self._settings = settings
        self._scopes = scopes
        self._check = check

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
        self._check()
        read = 0
        for name, searched in (("dense", vector), ("hypothetical", hypothetical)):
            if searched is not None:
                near, pieces = self._reader.vectors.nearest(
                    searched.model, self._scopes, searched.vector, retrieval.vectors_cap, LISTED
                )
                sources[name], read = near, read + pieces
            self._check()
        rows = {row for scores in sources.values() for row in _best(scores)}
        by_row = {candidate.row: candidate for candidate in self._reader.candidates(rows)}
        lists = {name: _listed(scores, by_row) for name, scores in sources.items()}
        if "dense" in lists and len({c.speaker for c in by_row.values()}) > _SEPARATED:
            lists["separation"] = lists["dense"]
        scored = score_lists(query, by_row, lists)
        kept = self._keep_salient(query, scored, by_row)
        return FusedRanking([*kept], match.postings, read, match.idfs)

    def _keep_salient(
        self,
        query: ParsedQuery,
        scored: Sequence[tuple[int, float, Mapping[str, float]]],
        by_row: Mapping[int, Candidate],
    ) -> Iterator[tuple[int, float, Mapping[str, float]]]:
        """Yield the best rows, each text once, without those of too little salience.

        The paper's guard drops items that score below .05, and below .02 if the query asks for an
        overview; only a mere acknowledgement (.02) does.  Statements of a person whom the query
        names are exempt.
        """
        guards = self._settings.of(Rrf).guard and not asks_overview(query.text)
        limit, openings = self._settings.retrieval.candidates, set[str]()
        for start in range(0, len(scored), limit):
            batch = scored[start : start + limit]
            stored = self._reader.items_by_row([row for row, _, _ in batch])
            self._check()
            for hit in batch:
                row = hit[0]
                if row not in stored or len(openings) >= limit:
                    continue
                item, speaker = stored[row].item, by_row[row].speaker
                opening = item.text[:_OPENING]
                is_entry = isinstance(item, Entry)
                exempt = not guards or not is_entry or (speaker and query.names(speaker))
                if opening in openings or not (exempt or not only_acknowledges(item.text)):
                    continue
                openings.add(opening)
                yield hit


def score_lists(
    query: ParsedQuery, by_row: Mapping[int, Candidate], lists: Mapping[str, Sequence[int]]
) -> list[tuple[int, float, Mapping[str, float]]]:
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
        scored.append((row, _FIRST * score, signals))
    return sorted(scored, key=lambda hit: (-hit[1], by_row[hit[0]].id))


def _best(scores: Mapping[int, float]) -> list[int]:
    """Return the best rows of one source, including ties with the last."""
    least = nlargest(LISTED, scores.values())[-1:]
    return [row for row, score in scores.items() if score >= least[0]]


def _listed(scores: Mapping[int, float], by_row: Mapping[int, Candidate]) -> list[int]:
    """Return the best rows of one source, best first; ties go by id."""
    rows = [row for row in scores if row in by_row]
    return sorted(rows, key=lambda row: (-scores[row], by_row[row].id))[:LISTED]
