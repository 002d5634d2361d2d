"""Read candidates and their context from the index.

Isolation is enforced in the queries: words and n-grams are stored by scope (an agent and a sender,
or the shared tier), and only the viewer's scopes are read.  Every read is bounded.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

from memtier_plugin.core.records import OWN_WORDS, SHARED, Entry, person_audience
from memtier_plugin.core.structs import parse_json
from memtier_plugin.storage.index import postings as bm25
from memtier_plugin.storage.index.items import PRIVATE_SHELF, pieces_to_embed
from memtier_plugin.storage.index.records import NeighbourReader, Stored, decode_kept, to_utf8_all
from memtier_plugin.storage.index.vectors import IndexVectors

MAX_TERMS: Final = 64  # distinct query words looked up, rarest first
_SEPARATOR: Final = re.compile(r"""[\x00-\x20\x7f'"]""")  # of the words of ``grams``
_SIMILAR: Final = 10  # similar facts proposed by words and by vectors, each
_SIMILAR_POSTINGS: Final = 1_000
_SIMILAR_VECTORS: Final = 10_000
# A posting in one number, which takes a third less to read: the occurrences above the length.
_LENGTH_BITS: Final = 24
_MAX_LENGTH: Final = (1 << _LENGTH_BITS) - 1
_POSTING: Final = f"tf << {_LENGTH_BITS} | min(length, {_MAX_LENGTH})"


@dataclass(slots=True)
class Match:
    """The matches of a query's words in some scopes.

    ``documents`` counts the items of the scopes, ``average`` is their mean length in words.
    ``weights`` holds the weight of each query word; ``idfs`` and ``rows`` hold the words looked up,
    rarest first, ``rows`` with a code for each row reached: the word's occurrences there and the
    row's length (`_POSTING`).  ``postings`` counts the postings read.
    """

    documents: int = 0
    average: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    idfs: dict[str, float] = field(default_factory=dict)
    rows: dict[str, dict[int, int]] = field(default_factory=dict)
    postings: int = 0
    left_out: tuple[str, ...] = ()

    def score_document(self, occurrences: Mapping[str, float], length: float) -> float:
        """Return the BM25 score of a document, given its term occurrences and its length."""
        return bm25.score_document(self.idfs, occurrences, length, self.average)

    def scores(self) -> dict[int, float]:
        """Return the BM25 score of every row reached."""
        total: dict[int, float] = {}
        for term, codes in self.rows.items():
            bm25.add_term(total, codes, self._saturations(codes.values()), self.idfs[term])
        return total

    def _saturations(self, codes: Iterable[int]) -> dict[int, float]:
        """Return the saturation of each code: far fewer than there are postings."""
        return {
            code: bm25.saturation(code >> _LENGTH_BITS, code & _MAX_LENGTH, self.average)
            for code in {*codes}
        }

    def terms_of(self, rows: Collection[int]) -> dict[int, dict[str, int]]:
        """Return the query words, with their occurrences, in each row that has any."""
        requested = set(rows)
        occurrences: dict[int, dict[str, int]] = {}
        for term, codes in self.rows.items():
            for row in codes.keys() & requested:
                tf = codes[row] >> _LENGTH_BITS
                if row in occurrences:
                    occurrences[row][term] = tf
                else:
                    occurrences[row] = {term: tf}
        return occurrences


class Candidate(NamedTuple):
    """The properties of an item that ranking uses besides its words."""

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


class CandidateReader(NeighbourReader):
    """Reads a recall's candidates within the scopes that its viewer may see."""

    @cached_property
    def vectors(self) -> IndexVectors:
        """The vectors of the same connection."""
        return IndexVectors(self._db)

    def scopes(
        self, agent: str, sender: str | None, *, read_all: bool = False, shelf: str = ""
    ) -> list[int]:
        """Return the scopes whose entries a viewer may see, or those of one of its shelves.

        A shelf (`Fact.shelf`) has word counts of its own, so recalls that do not open it are not
        affected. Confidences are on a shelf that is open to their own agent alone, also where
        another one reads all entries; no agent ("") is the person at the machine.
        """
        agent_bytes, of = to_utf8_all([agent, sender or ""])
        private = "" if shelf else PRIVATE_SHELF
        if read_all:
            rows = self._db.execute(
                """SELECT id FROM scopes WHERE agent <> ''
                     AND (shelf = ?1 OR (shelf = ?2 AND ?3 IN (agent, '')))
                   ORDER BY agent, sender, shelf""",
                (shelf, private or shelf, agent_bytes),
            )
        else:
            rows = self._db.execute(
                """SELECT id FROM scopes WHERE agent = ? AND sender = ? AND shelf IN (?, ?)
                   ORDER BY shelf""",
                (agent_bytes, of, shelf, private or shelf),
            )
        return [int(row[0]) for row in rows]

    def shared_scopes(self, people: Collection[str] | None = (), shelf: str = "") -> list[int]:
        """Return the scopes of the facts that all agents share, and of those of these people.

        Args:
            people: senders, "" for the user where none is named; None for everybody's.
        """
        audiences = [SHARED, *map(person_audience, people or ())]
        rows = self._db.execute(
            """SELECT id FROM scopes WHERE agent = '' AND shelf = ?
               AND (? OR sender IN (SELECT value FROM json_each(?))) ORDER BY sender""",
            (shelf, people is None, json.dumps(to_utf8_all(sender for _, sender in audiences))),
        )
        return [int(row[0]) for row in rows]

    def match_words(
        self,
        scopes: Sequence[int],
        terms: Mapping[str, float],
        cap: int,
        within: Collection[int] | None = None,
    ) -> Match:
        """Look up words in these scopes, the rarest first, until ``cap`` postings are read.

        Args:
            terms: the weight of each query word.
            within: the only rows to look them up in; None for all.

        A word cut by the cap contributes its newest rows; it and the words after it are
        ``left_out`` (`complete_match` adds them for the final few rows).
        """
        match = Match(weights=terms)
        documents, length = self._totals(scopes)
        if not documents:
            return match
        match.documents, match.average = documents, max(1.0, length / documents)
        by_scope = self._frequencies("terms", scopes, terms)
        frequencies = {term: sum(held.values()) for term, held in by_scope.items()}
        ordered = sorted(frequencies, key=lambda term: (frequencies[term], term))[:MAX_TERMS]
        match.rows = {term: {} for term in ordered}
        only = None if within is None else json.dumps(list(within))
        for position, term in enumerate(ordered):
            room = cap - match.postings
            holding = [scope for scope in scopes if scope in by_scope[term]]
            match.rows[term] = self._postings(holding, term, room, only)
            match.postings += len(match.rows[term])
            if frequencies[term] > room and (only is None or match.postings >= cap):
                match.left_out = tuple(ordered[position:])
                break
        rarity = bm25.idfs(documents, frequencies)
        match.idfs = {term: terms[term] * rarity[term] for term in ordered}
        return match

    def complete_match(self, match: Match, scopes: Sequence[int], rows: Collection[int]) -> int:
        """Look up the words left out by the cap, for these rows only; return the postings read."""
        before = match.postings
        for term in match.left_out:
            reached = match.rows[term]
            missing = json.dumps([row for row in rows if row not in reached])
            for scope in scopes:
                for row, code in self._db.execute(
                    f"""SELECT item, {_POSTING} FROM postings WHERE scope = ? AND term = ?
                        AND item IN (SELECT value FROM json_each(?))""",  # noqa: S608
                    (scope, term, missing),
                ):
                    reached[row] = code
                    match.postings += 1
        return match.postings - before

    def match_ngrams(
        self, scopes: Sequence[int], parts: Collection[str], cap: int
    ) -> tuple[dict[int, float], int]:
        """Return the summed idf of the n-grams that each row shares, and the postings read."""
        documents, _ = self._totals(scopes) if scopes else (0, 0)
        if not documents or not parts:
            return {}, 0
        by_scope = self._frequencies("gram_terms", scopes, parts)
        frequencies = {part: sum(held.values()) for part, held in by_scope.items()}
        rarity = bm25.idfs(documents, frequencies)
        rarest_first = sorted(frequencies, key=lambda part: (frequencies[part], part))
        upto = bisect_right([*accumulate(frequencies[part] for part in rarest_first)], cap)
        terms = [
            (part, f'"{scope}.{part}"')
            for part in rarest_first[:upto]
            if not _SEPARATOR.search(part)  # FTS5 has such a one in pieces, which match nothing
            for scope in by_scope[part]
        ]
        # One statement, and a list of rows for each term: half the time of a row at a time.
        lists = self._db.execute(
            """SELECT (SELECT json_group_array(rowid) FROM grams WHERE grams MATCH value)
               FROM json_each(?) ORDER BY key""",
            (json.dumps([term for _, term in terms]),),
        )
        scores: dict[int, float] = {}
        get, read = scores.get, 0
        for (part, _), (listed,) in zip(terms, lists, strict=True):
            rows, value = parse_json(listed), rarity[part]
            read += len(rows)
            for row in rows:
                scores[row] = get(row, 0.0) + value
        return scores, read

    def word_frequencies(self, scopes: Collection[int], words: Collection[str]) -> dict[str, int]:
        """Return how many items of these scopes have each of these index words."""
        by_scope = self._frequencies("terms", scopes, words)
        return {word: sum(held.values()) for word, held in by_scope.items()}

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
    ) -> dict[str, dict[int, int]]:
        """Return, for each term, how many items of each scope have it, of those that have it."""
        rows = self._db.execute(
            f"""SELECT term, scope, df FROM {table}
                WHERE scope IN (SELECT value FROM json_each(?))
                  AND term IN (SELECT value FROM json_each(?))""",  # noqa: S608
            (json.dumps(list(scopes)), json.dumps(to_utf8_all(terms))),
        )
        by_scope: dict[str, dict[int, int]] = {}
        for term, scope, df in rows:
            by_scope.setdefault(term, {})[scope] = df
        return by_scope

    def _postings(
        self, scopes: Sequence[int], term: str, limit: int, only: str | None
    ) -> dict[int, int]:
        """Return the codes of a term by row, the newest of each scope first.

        Args:
            only: the rows to look at, as JSON; None for all.
        """
        codes: dict[int, int] = {}
        rows = "" if only is None else "AND item IN (SELECT value FROM json_each(?4))"
        for scope in scopes:
            codes |= self._db.execute(
                f"""SELECT item, {_POSTING} FROM postings WHERE scope = ?1 AND term = ?2 {rows}
                    ORDER BY item DESC LIMIT ?3""",  # noqa: S608
                (scope, term, limit - len(codes), *(() if only is None else (only,))),
            )
        return codes

    def similar_facts(
        self,
        words: Collection[str],
        *,
        private_to: tuple[str, str] | None = None,
        vector: tuple[str, bytes] | None = None,
        limit: int = 3,
    ) -> list[Stored]:
        """Return the current facts of one audience that are nearest by words and by vector.

        Both rankings weigh the same; the reads are bounded.

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
            for rank, row in enumerate(order):
                points[row] = points.get(row, 0.0) + 1 / (_SIMILAR + rank)
        best = sorted(points, key=lambda row: (-points[row], -row))[:limit]
        stored = self.items_by_row(best) if best else {}
        return [stored[row] for row in best]

    def candidates(self, rows: Iterable[int]) -> list[Candidate]:
        """Return the ranking properties of these rows."""
        candidates = self._db.execute(
            """SELECT row, id, tier, session, turn, role, speaker, standing = 1, observed, length,
                      coalesce(weight, 0.0), CASE tier WHEN 'episodic' THEN 1.0
                      ELSE coalesce(CAST(data AS TEXT) ->> 'confidence', 1.0) END
               FROM items LEFT JOIN states ON item = id
               WHERE indexed AND row IN (SELECT value FROM json_each(?))""",
            (json.dumps(list(rows)),),
        )
        return [*map(Candidate._make, candidates.fetchall())]

    def fact_sources(self, facts: Sequence[str], scopes: Sequence[int]) -> dict[str, list[int]]:
        """Return, for each fact, the rows of its source entries that the viewer may see."""
        sources: dict[str, list[int]] = {}
        for fact in facts:
            sources[fact] = [
                int(row)
                for (row,) in self._db.execute(
                    """SELECT row FROM sources JOIN items ON items.id = entry
                       WHERE fact = ? AND indexed AND scope IN (SELECT value FROM json_each(?))
                       GROUP BY row ORDER BY min(place), row""",
                    (fact, json.dumps(scopes)),
                )
            ]
        return sources

    def fact_sessions(self, fact: str, scopes: Sequence[int]) -> list[int]:
        """Return the source sessions of a fact that hold an entry the viewer may see."""
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

    def visible_rows(
        self, scopes: Sequence[int], sessions: Sequence[int] | None = None
    ) -> list[int]:
        """Return all visible rows, of some sessions or (None) of all."""
        inside = "" if sessions is None else "AND session IN (SELECT value FROM json_each(?))"
        session_filter = () if sessions is None else (json.dumps(sessions),)
        rows = self._db.execute(
            f"""SELECT row FROM items WHERE indexed
                AND scope IN (SELECT value FROM json_each(?)) {inside}
                ORDER BY row DESC""",  # noqa: S608
            (json.dumps(scopes), *session_filter),
        )
        return [int(row[0]) for row in rows]

    def rows_between(
        self, scopes: Sequence[int], start: float, end: float, limit: int
    ) -> list[int]:
        """Return the newest visible rows of each scope said between two moments."""
        # One scope at a time the index has them in order, so that only as many are read.
        return [
            int(row)
            for scope in scopes
            for (row,) in self._db.execute(
                """SELECT row FROM items WHERE scope = ? AND indexed AND observed BETWEEN ? AND ?
                   ORDER BY observed DESC, id DESC LIMIT ?""",
                (scope, start, end, limit),
            )
        ]

    def newest_in_session(
        self, agent: str, session: str, scopes: Sequence[int], limit: int
    ) -> list[int]:
        """Return the newest visible entries of an agent's session, the last one said first."""
        rows = self._db.execute(
            """SELECT row FROM items
               WHERE session = (SELECT id FROM sessions WHERE agent = ? AND name = ?)
                 AND indexed AND scope IN (SELECT value FROM json_each(?))
               ORDER BY observed DESC, turn DESC, id DESC LIMIT ?""",
            (*to_utf8_all([agent, session]), json.dumps(scopes), limit),
        )
        return [int(row[0]) for row in rows]

    def standing_rows(self, scopes: Sequence[int], limit: int) -> list[int]:
        """Return the newest visible lines of these scopes that are standing instructions."""
        rows = self._db.execute(
            """SELECT row FROM items WHERE standing AND standing = 1 AND indexed
                 AND scope IN (SELECT value FROM json_each(?)) ORDER BY row DESC LIMIT ?""",
            (json.dumps(scopes), limit),
        )
        return [int(row[0]) for row in rows]

    def own_words(self, scopes: Sequence[int], limit: int) -> dict[int, int]:
        """Return the newest visible rules and intentions, and confidences, which may be either.

        Returns:
            by row, how many lines say so; 0 for a line itself.
        """
        rows = self._db.execute(
            """SELECT row, (SELECT count(*) FROM sources WHERE fact = items.id)
               FROM items INDEXED BY items_standing
               WHERE standing AND indexed AND scope IN (SELECT value FROM json_each(?))
                 AND (tier <> 'episodic' OR scope IN (SELECT id FROM scopes WHERE shelf = ?))
               ORDER BY row DESC LIMIT ?""",
            (json.dumps(scopes), PRIVATE_SHELF, limit),
        )
        return {int(row): int(times) for row, times in rows}

    def closed_lines(self, entries: Sequence[str]) -> dict[str, int]:
        """Return which of these entries set a rule or an intention that has ended.

        Returns:
            by entry, the characters of the longest one.
        """
        rows = self._db.execute(
            """SELECT entry, max(length(facts.value)) FROM json_each(?1) AS wanted
               CROSS JOIN sources ON entry = wanted.value
               JOIN facts ON facts.id = fact AND relation IN (SELECT value FROM json_each(?2))
               JOIN states ON item = fact
               WHERE superseded_by IS NOT NULL OR reviewed = 'rejected' GROUP BY entry""",
            (json.dumps(to_utf8_all(entries)), json.dumps(sorted(OWN_WORDS))),
        )
        return {str(entry): int(size) for entry, size in rows}

    def lines_before(self, entries: Sequence[str], most: int) -> dict[str, list[Entry]]:
        """Return, by entry, up to so many lines said before it to the same agent, the last first.

        A confidence is left out before what is none.
        """
        lines: dict[str, list[Entry]] = {}
        for entry, data, owner in self._db.execute(
            """SELECT told.id, earlier.data, scopes.agent FROM json_each(?1) AS wanted
               JOIN items AS told ON told.id = wanted.value
               JOIN scopes ON scopes.id = told.scope
               JOIN items AS earlier ON earlier.session = told.session
                 AND earlier.turn < told.turn AND earlier.turn >= told.turn - ?2
                 AND earlier.indexed
               JOIN scopes AS public ON public.id = earlier.scope
                 AND public.sender = scopes.sender AND public.shelf IN ('', scopes.shelf)
               ORDER BY earlier.turn DESC, earlier.id DESC""",
            (json.dumps(to_utf8_all(entries)), most),
        ):
            lines.setdefault(str(entry), []).append(decode_kept(data, str(owner)))
        return lines

    def rows_without_vector(
        self, model: str, limit: int, newest: int
    ) -> dict[int, tuple[str, ...]]:
        """Return the texts to embed of indexed rows without vectors of a model, newest first.

        Args:
            newest: the number of newest items examined.
        """
        if self._count(
            """SELECT coalesce(sum(entries), 0)
                      <= (SELECT coalesce(sum(items), 0) FROM embedded WHERE model = ?)
               FROM scopes""",
            (model,),
        ):
            return {}  # at once, as mostly every item has its vectors
        rows = self._db.execute(
            f"""SELECT row FROM (SELECT row FROM items WHERE indexed
                                 ORDER BY row DESC LIMIT {int(newest)})
                WHERE NOT EXISTS (SELECT 1 FROM vectors WHERE item = row AND model = ?)
                LIMIT ?""",  # noqa: S608
            (model, limit),
        )
        stored = self.items_by_row([row for (row,) in rows])
        return {row: pieces_to_embed(record) for row, record in stored.items()}
