"""Reading the index: candidates and their context.

Isolation is here, in the query: words and n-grams are stored by scope (an agent and a sender, or
the shared tier), and only the scopes of the asker are ever opened.  Every read has a bound.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from memtier_plugin.storage.index import bm25
from memtier_plugin.storage.index.items import embedding_texts
from memtier_plugin.storage.index.records import (
    IndexRecords,
    Stored,
    to_utf8,
    to_utf8_all,
)
from memtier_plugin.storage.index.vectors import IndexVectors

MAX_TERMS: Final = 64  # distinct words of a query that are looked up, rarest first
_SIMILAR: Final = 10  # facts that words, and meaning, each put forward as similar to another
_SIMILAR_POSTINGS: Final = 1_000
_SIMILAR_VECTORS: Final = 10_000
RowLengths = list[tuple[int, int]]  # row and length


@dataclass(slots=True)
class Match:
    """What the words of a query found in some scopes.

    ``weights`` says how much each word is asked for; ``idfs`` and ``rows`` have the words that
    were looked up, rarest first, ``rows`` with the occurrences in each row that was reached;
    ``postings`` counts what was read.
    """

    average: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    idfs: dict[str, float] = field(default_factory=dict)
    rows: dict[str, dict[int, int]] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    postings: int = 0
    left_out: tuple[str, ...] = ()

    def score_documents(
        self, documents: Iterable[tuple[Mapping[str, float], float]]
    ) -> list[float]:
        """Return the BM25 scores of documents, each with its occurrences and its length."""
        return bm25.score_documents(self.idfs, documents, self.average)

    def scores(self) -> dict[int, float]:
        """Return the BM25 score of every row that was reached."""
        total: dict[int, float] = {}
        for term, found in self.rows.items():
            bm25.add_term(total, found, self.lengths, self.idfs[term], self.average)
        return total

    def terms_of(self, rows: Collection[int]) -> dict[int, dict[str, int]]:
        """Return the query's words in each of these rows that has some."""
        wanted = set(rows)
        found: dict[int, dict[str, int]] = {}
        for term, tfs in self.rows.items():
            for row in wanted.intersection(tfs):
                found.setdefault(row, {})[term] = tfs[row]
        return found


class Candidate(NamedTuple):
    """Where an item stands: what ranking needs to know of it besides its words."""

    row: int
    id: str
    tier: str
    session: int | None
    turn: int
    role: str
    speaker: str | None
    standing: bool
    observed: float
    length: int
    weight: float
    confidence: float


class CandidateReader(IndexRecords):
    """What a recall may choose from, in the scopes that its viewer may see."""

    @property
    def vectors(self) -> IndexVectors:
        """The vectors of the same connection."""
        return IndexVectors(self._db)

    def scopes(
        self, agent: str, sender: str | None, *, read_all: bool = False, shelf: str = ""
    ) -> list[int]:
        """Return the scopes whose entries an asker may see; or what stands on one of its shelves.

        What is on a shelf (`Fact.shelf`) has words and counts of its own, so that it changes
        nothing in the recalls that do not open it.
        """
        if read_all:
            rows = self._db.execute(
                "SELECT id FROM scopes WHERE agent <> '' AND shelf = ? ORDER BY agent, sender",
                (shelf,),
            )
        else:
            rows = self._db.execute(
                "SELECT id FROM scopes WHERE agent = ? AND sender = ? AND shelf = ?",
                (to_utf8(agent), to_utf8(sender or ""), shelf),
            )
        return [int(row[0]) for row in rows]

    def shared_scopes(self, shelf: str = "") -> list[int]:
        """Return the scope of the facts that the whole project shares."""
        return self.scopes("", None, shelf=shelf)

    def match_words(self, scopes: Sequence[int], terms: Mapping[str, float], cap: int) -> Match:
        """Look up words in these scopes, the rarest first, until ``cap`` postings are read.

        Args:
            terms: how much each word of the query counts.

        A word that the cap cuts gives its newest rows; it and the words after it are
        ``left_out`` (`complete_match` adds them for the few rows that remain in the end).
        """
        found = Match(weights=terms)
        if not scopes or not terms:
            return found
        documents, length = self._totals(scopes)
        if not documents:
            return found
        found.average = max(1.0, length / documents)
        frequencies = self._frequencies("terms", scopes, terms)
        ordered = sorted(frequencies, key=lambda term: (frequencies[term], term))[:MAX_TERMS]
        found.rows = {term: {} for term in ordered}
        for place, term in enumerate(ordered):
            room = cap - found.postings
            for row, tf, size in self._postings(scopes, term, room):
                found.rows[term][row] = tf
                found.lengths[row] = size
            found.postings += len(found.rows[term])
            if frequencies[term] > room:
                found.left_out = tuple(ordered[place:])
                break
        rarity = bm25.idfs(documents, frequencies)
        found.idfs = {term: terms[term] * rarity[term] for term in ordered}
        return found

    def complete_match(self, found: Match, scopes: Sequence[int], rows: Collection[int]) -> int:
        """Look up, for these rows only, what the cap left out; return the postings read."""
        before = found.postings
        for term in found.left_out:
            for scope in scopes:
                for row in rows:
                    if row in found.rows[term]:
                        continue  # one of the newest, read before the cap
                    for tf, length in self._db.execute(
                        """SELECT tf, length FROM postings
                           WHERE scope = ? AND term = ? AND item = ?""",
                        (scope, term, row),
                    ):
                        found.rows[term][row] = int(tf)
                        found.lengths[row] = int(length)
                        found.postings += 1
        return found.postings - before

    def match_ngrams(
        self, scopes: Sequence[int], parts: Collection[str], cap: int
    ) -> tuple[dict[int, float], int]:
        """Return the summed idf of the n-grams that each row shares, and the postings read."""
        documents, _ = self._totals(scopes) if scopes else (0, 0)
        if not documents or not parts:
            return {}, 0
        frequencies = self._frequencies("gram_terms", scopes, parts)
        rarity = bm25.idfs(documents, frequencies)
        scores: dict[int, float] = {}
        read = 0
        for part in sorted(frequencies, key=lambda part: (frequencies[part], part)):
            if read + frequencies[part] > cap:
                break
            value = rarity[part]
            for scope in scopes:
                rows = self._db.execute(
                    "SELECT doc FROM gram_postings WHERE term = ?", (f"{scope}.{part}",)
                ).fetchall()
                for (row,) in rows:
                    scores[row] = scores.get(row, 0.0) + value
                read += len(rows)
        return scores, read

    def word_frequencies(self, scopes: Collection[int], words: Collection[str]) -> dict[str, int]:
        """Return how many items of these scopes have each of these index words."""
        return self._frequencies("terms", scopes, words)

    def _totals(self, scopes: Sequence[int]) -> tuple[int, int]:
        documents = length = 0
        for scope in scopes:
            for entries, words in self._db.execute(
                "SELECT entries, length FROM scopes WHERE id = ?", (scope,)
            ):
                documents += int(entries)
                length += int(words)
        return documents, length

    def _frequencies(
        self, table: str, scopes: Collection[int], terms: Collection[str]
    ) -> dict[str, int]:
        rows = self._db.execute(
            f"""SELECT term, sum(df) FROM {table}
                WHERE scope IN (SELECT value FROM json_each(?))
                  AND term IN (SELECT value FROM json_each(?)) GROUP BY term""",  # noqa: S608
            (json.dumps(list(scopes)), json.dumps(to_utf8_all(terms))),
        )
        return {str(term): int(df) for term, df in rows}

    def _postings(
        self, scopes: Sequence[int], term: str, limit: int
    ) -> Iterator[tuple[int, int, int]]:
        for scope in scopes:
            rows = self._db.execute(
                """SELECT item, tf, length FROM postings WHERE scope = ? AND term = ?
                   ORDER BY item DESC LIMIT ?""",
                (scope, term, limit),
            )
            for row in rows:
                limit -= 1
                yield row

    def similar_facts(
        self,
        words: Collection[str],
        *,
        private_to: tuple[str, str] | None = None,
        vector: tuple[str, bytes] | None = None,
        limit: int = 3,
    ) -> list[Stored]:
        """Return the facts that hold and are nearest, by words and by meaning, of one audience.

        Both orders count the same; what is read has a bound.

        Args:
            vector: the model's name and the text's int8 vector.
        """
        scopes = self.scopes(*(private_to or ("", "")))
        scores = self.match_words(scopes, dict.fromkeys(words, 1.0), _SIMILAR_POSTINGS).scores()
        orders = [sorted(scores, key=lambda row: (-scores[row], -row))[:_SIMILAR]]
        if vector and scopes:
            model, query = vector
            near, _ = self.vectors.nearest(model, scopes, query, _SIMILAR_VECTORS, _SIMILAR)
            orders.append([*near])
        points: dict[int, float] = {}
        for order in orders:
            for place, row in enumerate(order):
                points[row] = points.get(row, 0.0) + 1 / (_SIMILAR + place)
        best = sorted(points, key=lambda row: (-points[row], -row))[:limit]
        stored = self.items_by_row(best)
        return [stored[row] for row in best]

    def candidates(self, rows: Iterable[int]) -> list[Candidate]:
        """Return what ranking needs to know of these rows."""
        return [
            Candidate(*row)
            for row in self._db.execute(
                """SELECT row, id, tier, session, turn, role, speaker, standing, observed, length,
                          coalesce(weight, 0.0), CASE tier WHEN 'episodic' THEN 1.0
                          ELSE coalesce(CAST(data AS TEXT) ->> 'confidence', 1.0) END
                   FROM items LEFT JOIN states ON item = id
                   WHERE indexed AND row IN (SELECT value FROM json_each(?))""",
                (json.dumps(list(rows)),),
            )
        ]

    def neighbours(
        self, rows: Iterable[int], scopes: Sequence[int], reach: int
    ) -> dict[int, tuple[RowLengths, RowLengths]]:
        """Return the turns before and after each of these rows in its session, nearest first."""
        only = f"scope IN ({', '.join(map(str, scopes))})"
        before, after = (
            f"""(SELECT json_group_array(json_array(row, length)) FROM (
                 SELECT row, length FROM items WHERE session = here.session AND indexed AND {only}
                   AND (observed, turn, id) {sign} (here.observed, here.turn, here.id)
                 ORDER BY observed {order}, turn {order}, id {order} LIMIT {int(reach)}))"""  # noqa: S608
            for sign, order in (("<", "DESC"), (">", "ASC"))
        )
        # One statement for all of them: a thousand small ones cost more than what they read.
        found = self._db.execute(
            f"""SELECT '[' || row || ',' || {before} || ',' || {after} || ']' FROM items AS here
                WHERE row IN (SELECT value FROM json_each(?))""",  # noqa: S608
            (json.dumps(list(rows)),),
        )
        sides = json.loads(f"[{','.join(text for (text,) in found)}]")
        return {row: (one, two) for row, one, two in sides}

    def fact_sources(self, facts: Sequence[str], scopes: Sequence[int]) -> dict[str, list[int]]:
        """Return, for each fact, the rows of its source entries that the asker may see."""
        found: dict[str, list[int]] = {}
        for fact in facts:
            found[fact] = [
                int(row)
                for (row,) in self._db.execute(
                    """SELECT row FROM sources JOIN items ON items.id = entry
                       WHERE fact = ? AND indexed AND scope IN (SELECT value FROM json_each(?))
                       GROUP BY row ORDER BY min(place), row""",
                    (fact, json.dumps(scopes)),
                )
            ]
        return found

    def fact_sessions(self, fact: str, scopes: Sequence[int]) -> list[int]:
        """Return the sessions a fact comes from that hold an entry the asker may see."""
        rows = self._db.execute(
            """SELECT sessions.id FROM sources
               JOIN sessions ON sessions.agent = sources.agent AND name = sources.session
               WHERE fact = ?1 AND EXISTS (
                 SELECT 1 FROM items WHERE session = sessions.id AND indexed
                   AND scope IN (SELECT value FROM json_each(?2)))
               GROUP BY sessions.id ORDER BY min(place), name""",
            (fact, json.dumps(scopes)),
        )
        return [int(row[0]) for row in rows]

    def newest_rows(
        self, scopes: Sequence[int], sessions: Sequence[int] | None, limit: int
    ) -> list[int]:
        """Return the newest visible rows, of some sessions or (None) of all."""
        inside = "" if sessions is None else "AND session IN (SELECT value FROM json_each(?))"
        wanted = () if sessions is None else (json.dumps(sessions),)
        rows = self._db.execute(
            f"""SELECT row FROM items WHERE indexed
                AND scope IN (SELECT value FROM json_each(?)) {inside}
                ORDER BY row DESC LIMIT ?""",  # noqa: S608
            (json.dumps(scopes), *wanted, limit),
        )
        return [int(row[0]) for row in rows]

    def rows_without_vector(
        self, model: str, limit: int, newest: int
    ) -> dict[int, tuple[str, ...]]:
        """Return what is to be embedded of indexed rows that a model has not, newest first.

        Args:
            newest: how many of the newest items are looked at.
        """
        rows = self._db.execute(
            f"""SELECT row FROM (SELECT row FROM items WHERE indexed
                                 ORDER BY row DESC LIMIT {int(newest)})
                WHERE NOT EXISTS (SELECT 1 FROM vectors WHERE item = row AND model = ?)
                LIMIT ?""",  # noqa: S608
            (model, limit),
        )
        stored = self.items_by_row([row for (row,) in rows])
        return {row: embedding_texts(one.item) for row, one in stored.items()}
