"""Write what the index derives: postings and their BM25, the sources of facts, plugins' tables."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memtier_plugin.core import plugins
from memtier_plugin.core.events import PromoteEvent, RestoreEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import Fact, JournalEvent, decode_event
from memtier_plugin.storage.index.records import to_utf8, to_utf8_all

if TYPE_CHECKING:
    import apsw


# -- Okapi BM25 (Robertson et al. 1994; MemTier, section 3.2) with two variants of the idf
#
# score(q, d) = sum over t in q of idf(t) * f (k1 + 1) / (f + k1 (1 - b + b |d| / avgdl)),
#
# where f is how often t occurs in d and |d| is the length of d in words.

K1: Final = 1.5
B: Final = 0.75


def idf(documents: int, df: int) -> float:
    """Return ln(1 + (N - df + 0.5) / (df + 0.5)), which is never negative (Lucene's variant).

    The `recall_first` profile uses it.
    """
    return math.log1p((documents - df + 0.5) / (df + 0.5))


def idfs(documents: int, frequencies: Mapping[str, int]) -> dict[str, float]:
    """Return the `idf` of each term, given its document frequency."""
    return {term: idf(documents, df) for term, df in frequencies.items()}


def norm(length: float, average: float) -> float:
    """Return the term k1 (1 - b + b |d| / avgdl) of the score.

    Args:
        length: |d|, in words.
        average: avgdl, the mean length of all documents.
    """
    return K1 * (1 - B + B * length / average)


def saturation(tf: float, length: float, average: float) -> float:
    """Return the factor f (k1 + 1) / (f + k1 (1 - b + b |d| / avgdl)) of the score.

    Args:
        tf: f, the term's occurrences in the document.
    """
    return tf * (K1 + 1) / (tf + norm(length, average)) if tf else 0.0


def score_document(
    idfs: Mapping[str, float], occurrences: Mapping[str, float], length: float, average: float
) -> float:
    """Return the score of a document, given its occurrences by term and its length in words."""
    length_norm = norm(length, average)
    return sum(
        [idfs[term] * (tf * (K1 + 1) / (tf + length_norm)) for term, tf in occurrences.items()]
    )


def add_term(
    scores: dict[int, float],
    codes: Mapping[int, int],
    saturations: Mapping[int, float],
    value: float,
) -> None:
    """Add one term's contribution to the score of each row that contains it, in place.

    Args:
        codes: a code of the term's occurrences and the row's length, by row.
        saturations: the `saturation` of each code.
        value: the term's idf, times its weight in the query.
    """
    get = scores.get
    values = {code: value * factor for code, factor in saturations.items()}
    for row, code in codes.items():
        scores[row] = get(row, 0.0) + values[code]


# -- Write postings of words and n-grams, with the document frequencies of both
#
# The changes of a transaction are collected and written at its end in key order, so that each page
# of the index is written once.

_BATCH_ROWS: Final = 16  # rows per INSERT: one by one takes a third longer
_MERGED_PAGES: Final = 500  # written by one step of a merge
_ADD_DF: Final = " ON CONFLICT(scope, term) DO UPDATE SET df = df + excluded.df"


class IndexedText(NamedTuple):
    """An item's search terms: its words in order, its n-grams, and the pieces to embed.

    ``vectors`` has one vector per piece if they were computed beforehand.
    """

    words: Sequence[str]
    grams: Set[str]
    pieces: tuple[str, ...]
    vectors: Sequence[bytes] | None = None


@dataclass(slots=True)
class _Changes:
    """The pending changes of one scope; ``postings`` maps a term to its rows, flattened."""

    postings: dict[str, list[int | str]] = field(default_factory=lambda: defaultdict(list))
    terms: Counter[str] = field(default_factory=Counter)
    grams: Counter[str] = field(default_factory=Counter)
    entries: int = 0
    length: int = 0


class Postings:
    """The changes of one transaction to the inverted index: texts added and removed."""

    def __init__(self, connection: Any) -> None:
        self._db: Any = connection
        self._changes: defaultdict[int, _Changes] = defaultdict(_Changes)
        self._grams: list[tuple[int, str]] = []

    def add(self, scope: int, row: int, text: IndexedText) -> None:
        """Add an item's text; it takes effect when `write` is called."""
        changes = self._changes[scope]
        length = len(text.words)
        counts: dict[str, int] = {}  # for so few words a Counter takes twice as long
        for word in text.words:
            counts[word] = counts.get(word, 0) + 1
        for term, tf in counts.items():
            changes.postings[term] += (scope, term, row, tf, length)
        changes.grams.update(text.grams)
        changes.entries += 1
        changes.length += length
        self._grams.append((row, f"{scope}." + f" {scope}.".join(text.grams) if text.grams else ""))

    def remove(self, scope: int, row: int, text: IndexedText) -> None:
        """Remove an item's postings immediately; it must not be of this transaction."""
        changes = self._changes[scope]
        terms = set(text.words)
        self._db.executemany(
            "DELETE FROM postings WHERE scope = ? AND term = ? AND item = ?",
            [(scope, term, row) for term in terms],
        )
        self._db.execute("DELETE FROM grams WHERE rowid = ?", (row,))
        changes.terms.subtract(terms)
        changes.grams.subtract(text.grams)
        changes.entries -= 1
        changes.length -= len(text.words)

    def write(self) -> None:
        """Write the added postings and the changed document frequencies."""
        for scope, changes in sorted(self._changes.items()):
            postings = changes.postings
            rows = chain.from_iterable(map(postings.__getitem__, sorted(postings)))
            self._insert("postings", 5, [*rows])
            changes.terms.update({term: len(rows) // 5 for term, rows in postings.items()})
            self._count("terms", scope, changes.terms)
            self._count("gram_terms", scope, changes.grams)
            self._db.execute(
                "UPDATE scopes SET entries = entries + ?, length = length + ? WHERE id = ?",
                (changes.entries, changes.length, scope),
            )
        self._db.executemany("INSERT INTO grams(rowid, text) VALUES(?, ?)", self._grams)
        self._changes.clear()
        self._grams.clear()

    def _count(self, table: str, scope: int, changes: Counter[str]) -> None:
        # One flat list: a list of tuples triggers the garbage collector, a tenth of the time.
        ordered = sorted(changes)
        values: list[int | str] = []
        for term in ordered:
            values += (scope, term, changes[term])
        self._insert(table, 3, values, _ADD_DF)
        self._db.executemany(
            f"DELETE FROM {table} WHERE scope = ? AND term = ? AND df = 0",  # noqa: S608
            [(scope, term) for term in ordered if changes[term] <= 0],
        )

    def _insert(
        self, table: str, width: int, values: Sequence[int | str], conflict: str = ""
    ) -> None:
        row = f"({', '.join('?' * width)})"
        step = width * _BATCH_ROWS
        for start in range(0, len(values), step):
            part = values[start : start + step]
            into = ", ".join([row] * (len(part) // width))
            self._db.execute(f"INSERT INTO {table} VALUES {into}{conflict}", part)  # noqa: S608


def merge_ngrams(connection: Any) -> None:
    """Merge the n-grams' segments into one, which a query reads in half the time of several.

    Step by step: others may write in between.
    """
    pages = -_MERGED_PAGES  # below 0: begin
    while True:
        before = connection.total_changes()
        connection.execute("INSERT INTO grams(grams, rank) VALUES('merge', ?)", (pages,))
        if connection.total_changes() - before < 2:  # as FTS5 tells that nothing is left to do
            return
        pages = _MERGED_PAGES


# -- Index tables that follow the journal: the sources of facts, and plugins' own

# -- Index the sources of facts: their own, and those that promotions add

_LATER: Final = 1000  # the position of the first source that a promotion adds


class IndexSources:
    """The sources of facts; each change returns the facts it affects."""

    def __init__(self, connection: apsw.Connection) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection

    def add(self, fact: Fact) -> None:
        """Add a fact's own sources."""
        sources = [(source.entry, source.agent, source.session) for source in fact.sources]
        self._add(fact.id, sources, fact.id)

    def add_promotion(self, event: JournalEvent) -> set[str]:
        """Add a promotion's entries to the sources of its facts, unless it was undone."""
        promoted = PromoteEvent.of(event)
        facts = set(to_utf8_all(promoted.facts))
        sources = [(entry, promoted.agent, promoted.session) for entry in promoted.items]
        for fact in facts:
            self._add(fact, sources, event.id, _LATER)
        if event.run_id is not None:
            for (data,) in self._db.execute(
                "SELECT data FROM events INDEXED BY events_kind WHERE kind = 'restore' AND run = ?",
                (to_utf8(event.run_id),),
            ).fetchall():
                self.undo_promotions(decode_event(data))
        return facts

    def undo_promotions(self, event: JournalEvent) -> set[str]:
        """Remove the sources that the undone run had added for the restored entries."""
        restored = RestoreEvent.of(event)
        return {
            str(fact)
            for (fact,) in self._db.execute(
                """DELETE FROM sources WHERE entry IN (SELECT value FROM json_each(?)) AND via IN
                     (SELECT id FROM events WHERE run = ? AND kind = 'promote'
                        AND (stamp, id) < (?, ?)) RETURNING fact""",
                (
                    json.dumps(to_utf8_all(restored.items)),
                    to_utf8(restored.run),
                    to_iso(event.timestamp),
                    to_utf8(event.id),
                ),
            ).fetchall()
        }

    def drop(self, via: str) -> set[str]:
        """Remove the sources added by a fact or promotion no longer in the ledger."""
        rows = self._db.execute("DELETE FROM sources WHERE via = ? RETURNING fact", (via,))
        return {str(fact) for (fact,) in rows.fetchall()}

    def reapply_promotions(self, runs: Iterable[str]) -> set[str]:
        """Reapply the promotions of runs whose undo is no longer in the ledger."""
        rows = self._db.execute(
            """SELECT data FROM events WHERE kind = 'promote'
               AND run IN (SELECT value FROM json_each(?))""",
            (json.dumps(to_utf8_all(runs)),),
        ).fetchall()
        return {fact for (data,) in rows for fact in self.add_promotion(decode_event(data))}

    def _add(
        self, fact: str, sources: Sequence[tuple[str, str, str]], via: str, first: int = 0
    ) -> None:
        """Add sources, given as entry, agent and session, at the positions from ``first`` on."""
        texts = to_utf8_all([fact, via, *chain.from_iterable(sources)])
        self._db.executemany(
            "INSERT OR IGNORE INTO sources VALUES(?, ?, ?, ?, ?, ?)",
            [
                (texts[0], *texts[start : start + 3], texts[1], first + number)
                for number, start in enumerate(range(2, len(texts), 3))
            ],
        )


# -- Tables of the index that plugins keep by the events of the journal (`memtier_index_tables`)

_FILLED: Final = "plugin_tables"  # in `meta`: the names of those that have every event


class PluginTables:
    """Folds events into the tables of the plugins that are installed."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db: Any = connection
        self._by_kind = {
            kind: tables for tables in plugins.find_index_tables() for kind in tables.kinds
        }

    def add(self, event: JournalEvent) -> None:
        """Fold an event, if a plugin has tables for its kind."""
        if tables := self._by_kind.get(event.kind):
            tables.add(self._db, event)

    def rebuild(self) -> None:
        """Fold all events again, after some were removed, or a plugin was installed."""
        for tables in {tables.name: tables for tables in self._by_kind.values()}.values():
            tables.clear(self._db)
        for kind in self._by_kind:
            for (data,) in self._db.execute(
                "SELECT data FROM events WHERE kind = ?", (kind,)
            ).fetchall():
                self.add(decode_event(data))


def follow_plugins(connection: apsw.Connection, metadata: Mapping[str, Any]) -> None:
    """Make and fill the tables of plugins that are new to this index; forget those that left.

    What a plugin's tables say is complete only while each process that writes here has it: without
    it their events are kept, and folded when it is back.
    """
    installed = plugins.find_index_tables()
    names = " ".join(sorted(tables.name for tables in installed))
    if metadata.get(_FILLED, "") == names:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for tables in installed:
            tables.create(connection)
        PluginTables(connection).rebuild()
        connection.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (_FILLED, names))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
