"""Items, events and their consequences in the index: postings, statistics, current states.

What an item is now (weight, forgotten, superseded) is folded from all its events whenever one of
them comes or goes, so the result does not depend on the order in which processes wrote or files
were read.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memtier_plugin.embedding import StaticEmbedder, quantise
from memtier_plugin.folding import State, fold, touched
from memtier_plugin.index_records import utf8
from memtier_plugin.ledger import Line
from memtier_plugin.records import Entry, Fact, JournalEvent, to_iso
from memtier_plugin.tokens import Tokenizer, grams

if TYPE_CHECKING:
    import apsw

    from memtier_plugin.hookspecs import Embedder


@dataclass(frozen=True, slots=True)
class _Text:
    """What an item is found by: its words in order, and the text its n-grams are made of."""

    words: list[str]
    content: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """The columns of a new item that differ between entries and facts."""

    id: str
    tier: str
    scope: int
    session: int | None = None
    turn: int = 0
    role: str
    speaker: str | None = None
    observed: float
    key: str | None = None
    retrievable: bool


@dataclass(slots=True)
class Batch:
    """What one transaction has to settle at its end."""

    df: Counter[tuple[str, int, str]] = field(default_factory=Counter)  # table, scope, term
    scopes: Counter[tuple[int, str]] = field(default_factory=Counter)  # scope, column
    touched: set[str] = field(default_factory=set)
    dropped: bool = False  # whether a file's rows were taken out
    texts: dict[int, _Text] = field(default_factory=dict)  # of new items, to be read but once
    shown: dict[int, str] = field(default_factory=dict)  # row to what is embedded of it


class IndexItems:
    """Puts items and events into one project's index, and takes them out again."""

    def __init__(
        self,
        connection: apsw.Connection,
        tokenizer: Tokenizer,
        embedder: Embedder | None = None,
    ) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection
        self._tokens = tokenizer
        # Only a static model is quick enough to embed what is written while it is written.
        self._embedder = embedder if isinstance(embedder, StaticEmbedder) else None

    def add_entry(self, entry: Entry, file: int, line: Line, batch: Batch) -> None:
        """Put an entry in; what is `[system]` is kept for the log but never found."""
        item = _Item(
            id=entry.id,
            tier="episodic",
            scope=self._scope(entry.agent_id, entry.sender),
            session=self._session(entry.agent_id, entry.session_id),
            turn=entry.turn,
            role=entry.role,
            speaker=entry.speaker,
            observed=entry.observed_at.timestamp(),
            key=entry.key,
            retrievable=entry.retrievable,
        )
        self._insert(item, self._entry_text(entry), file, line, batch)

    def add_fact(self, fact: Fact, file: int, line: Line, batch: Batch) -> None:
        """Put a fact in, with what it rests on; a proposed one is kept but not found."""
        item = _Item(
            id=fact.id,
            tier=fact.tier,
            scope=self._scope("", None),
            role=fact.origin,
            observed=(fact.valid_from or fact.timestamp).timestamp(),
            retrievable=fact.status == "active",
        )
        row = self._insert(item, self._fact_text(fact), file, line, batch)
        self._db.execute(
            "INSERT INTO facts VALUES(?, ?, ?, ?, ?)",
            (utf8(fact.id), row, *map(utf8, normal(fact.subject, fact.relation, fact.value))),
        )
        for place, source in enumerate(fact.sources):
            self._add_source(fact.id, source.entry, source.agent, source.session, fact.id, place)

    def _insert(self, item: _Item, text: _Text, file: int, line: Line, batch: Batch) -> int:
        identity = utf8(item.id)
        if next(iter(self._db.execute("SELECT 1 FROM items WHERE id = ?", (identity,))), None):
            raise ValueError(f"the id {identity} was seen before")
        row = self._free_row(identity)
        self._db.execute(
            """INSERT INTO items(row, id, tier, scope, session, file, line, turn, role, speaker,
                 observed, key, retrievable, length, data)
               VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                row, identity, item.tier, item.scope, item.session, file, line.number, item.turn,
                item.role, utf8(item.speaker) if item.speaker else None, item.observed, item.key,
                item.retrievable, len(text.words), line.data,
            ),
        )  # fmt: skip
        batch.touched.add(identity)
        batch.texts[row] = text
        return row

    def add_event(self, event: JournalEvent, file: int, line: Line, batch: Batch) -> None:
        items = touched(event)
        new = self._db.execute(
            "INSERT OR IGNORE INTO events VALUES(?, ?, ?, ?, ?, ?, ?, ?) RETURNING 1",
            (
                utf8(event.id), to_iso(event.timestamp), event.kind, utf8(event.agent_id),
                utf8(event.run_id) if event.run_id is not None else None, file, line.number,
                line.data,
            ),
        ).fetchone()  # fmt: skip
        if new is None:
            raise ValueError(f"the id {event.id} was seen before")
        self._db.executemany(
            "INSERT OR IGNORE INTO touches VALUES(?, ?)",
            [(utf8(item), utf8(event.id)) for item in items],
        )
        batch.touched.update(map(utf8, items))
        if event.kind == "promote":
            for fact in event.data.get("facts", ()):
                for place, entry in enumerate(event.data["items"]):
                    agent, session = str(event.data["agent"]), str(event.data["session"])
                    self._add_source(fact, entry, agent, session, event.id, 1000 + place)
                batch.touched.add(utf8(fact))
        elif event.kind == "consolidate":
            self._add_cursors(event)

    def _add_source(
        self, fact: str, entry: str, agent: str, session: str, via: str, place: int
    ) -> None:
        self._db.execute(
            "INSERT OR IGNORE INTO sources VALUES(?, ?, ?, ?, ?, ?)",
            (*map(utf8, (fact, entry, agent, session, via)), place),
        )

    def _add_cursors(self, event: JournalEvent) -> None:
        for path, offset in event.data.get("cursors", {}).items():
            self._db.execute(
                """INSERT INTO cursors VALUES(?, ?, ?) ON CONFLICT(path) DO UPDATE SET
                     offset = excluded.offset, stamp = excluded.stamp
                   WHERE (excluded.stamp, excluded.offset) > (cursors.stamp, cursors.offset)""",
                (utf8(path), int(offset), to_iso(event.timestamp)),
            )

    def _tidy(self) -> None:
        """After a file was dropped: let go of names nobody uses, and find the cursors anew."""
        for table, used in (("sessions", "session"), ("scopes", "scope")):
            self._db.execute(
                f"""DELETE FROM {table} WHERE NOT EXISTS
                    (SELECT 1 FROM items WHERE {used} = {table}.id)"""  # noqa: S608
            )
        self._db.execute("DELETE FROM cursors")
        for (data,) in self._db.execute("SELECT data FROM events WHERE kind = 'consolidate'"):
            self._add_cursors(JournalEvent.from_json(json.loads(data)))

    # -- settling: states, postings, statistics ------------------------------------------------

    def settle(self, batch: Batch) -> None:
        waiting = set(batch.touched)
        for identity in batch.touched:
            if self._refold(identity):
                # A fact rests on its entries: one forgotten or back may hide or show it.
                waiting.update(
                    str(fact)
                    for (fact,) in self._db.execute(
                        "SELECT DISTINCT fact FROM sources WHERE entry = ?", (identity,)
                    )
                )
        for identity in sorted(waiting):
            self._show_or_hide(identity, batch)
        for table in ("terms", "gram_terms"):
            self._count_terms(table, batch.df)
        for (scope, column), change in batch.scopes.items():
            self._db.execute(
                f"UPDATE scopes SET {column} = {column} + ? WHERE id = ?",  # noqa: S608
                (change, scope),
            )
        if batch.shown and self._embedder:
            self.put_vectors(vectors_of(self._embedder, batch.shown))
        if batch.dropped:
            self._tidy()

    def put_vectors(self, vectors: Iterable[tuple[int, str, bytes]]) -> None:
        """Keep (row, model, vector) of rows that are still there to be found."""
        self._db.executemany(
            """INSERT OR REPLACE INTO vectors
               SELECT row, ?2, ?3 FROM items WHERE row = ?1 AND indexed""",
            vectors,
        )

    def _refold(self, identity: str) -> bool:
        """Fold an item's events anew; return whether its being forgotten changed."""
        before = self.state(identity)
        events = [
            JournalEvent.from_json(json.loads(data))
            for (data,) in self._db.execute(
                "SELECT data FROM touches JOIN events ON events.id = event WHERE item = ?",
                (identity,),
            )
        ]
        state = fold(events)
        if state == before:
            return False
        if state == State():
            self._db.execute("DELETE FROM states WHERE item = ?", (identity,))
        else:
            self._db.execute(
                "INSERT OR REPLACE INTO states VALUES(?, ?, ?, ?, ?, ?)",
                (
                    identity, state.weight, state.promoted, state.forgotten,
                    utf8(state.superseded_by) if state.superseded_by else None, state.valid_to,
                ),
            )  # fmt: skip
        return state.forgotten != before.forgotten

    def state(self, identity: str) -> State:
        """Return an item's folded state."""
        for row in self._db.execute(
            """SELECT weight, promoted, forgotten, superseded_by, valid_to FROM states
               WHERE item = ?""",
            (identity,),
        ):
            weight, promoted, forgotten, by, until = row
            return State(float(weight), bool(promoted), bool(forgotten), by, until)
        return State()

    def _show_or_hide(self, identity: str, batch: Batch) -> None:
        for row, tier, retrievable, indexed in self._db.execute(
            "SELECT row, tier, retrievable, indexed FROM items WHERE id = ?", (identity,)
        ).fetchall():
            state = self.state(identity)
            show = bool(retrievable) and not state.forgotten and state.superseded_by is None
            if show and tier != "episodic":
                # Sources not read yet count as there: they may come with the next file.
                rests_on = self._db.execute(
                    """SELECT count(*), sum(coalesce(forgotten, 0)) FROM sources
                       LEFT JOIN states ON item = entry WHERE fact = ?""",
                    (identity,),
                ).fetchone()
                show = rests_on is None or rests_on[0] != rests_on[1]
            if show != bool(indexed):
                self.set_indexed(int(row), show, batch)

    def set_indexed(self, row: int, show: bool, batch: Batch) -> None:
        tier, scope, indexed, length, data = self._db.execute(
            "SELECT tier, scope, indexed, length, data FROM items WHERE row = ?", (row,)
        ).fetchone()
        if show == bool(indexed):
            return
        text = batch.texts.pop(row, None) or self._text_of(tier, scope, data)
        counts = Counter(text.words)
        parts = grams(text.content)
        if show:
            self._db.executemany(
                "INSERT INTO postings VALUES(?, ?, ?, ?, ?)",
                [(scope, term, row, tf, length) for term, tf in sorted(counts.items())],
            )
            self._db.execute(
                "INSERT INTO grams(rowid, text) VALUES(?, ?)",
                (row, " ".join(f"{scope}.{part}" for part in sorted(parts))),
            )
            batch.shown[row] = text.meaning
        else:
            self._db.executemany(
                "DELETE FROM postings WHERE scope = ? AND term = ? AND item = ?",
                [(scope, term, row) for term in counts],
            )
            self._db.execute("DELETE FROM grams WHERE rowid = ?", (row,))
            batch.shown.pop(row, None)
            self._db.execute("DELETE FROM vectors WHERE item = ?", (row,))
        self._db.execute("UPDATE items SET indexed = ? WHERE row = ?", (show, row))
        sign = 1 if show else -1
        batch.df.update({("terms", int(scope), term): sign for term in counts})
        batch.df.update({("gram_terms", int(scope), part): sign for part in parts})
        batch.scopes.update(
            {(int(scope), "entries"): sign, (int(scope), "length"): sign * int(length)}
        )

    def _count_terms(self, table: str, df: Counter[tuple[str, int, str]]) -> None:
        changes = sorted(
            (scope, term, change) for (of, scope, term), change in df.items() if of == table
        )
        self._db.executemany(
            f"""INSERT INTO {table} VALUES(?, ?, ?) ON CONFLICT(scope, term)
                DO UPDATE SET df = df + excluded.df""",
            changes,
        )
        self._db.executemany(
            f"DELETE FROM {table} WHERE scope = ? AND term = ? AND df = 0",  # noqa: S608
            [(scope, term) for scope, term, change in changes if change <= 0],
        )

    # -- small parts ---------------------------------------------------------------------------

    def _text_of(self, tier: str, scope: int, data: bytes) -> _Text:
        record = json.loads(data)
        if tier != "episodic":
            fact = Fact.from_json(record)
            return self._fact_text(fact)
        row = self._db.execute("SELECT agent FROM scopes WHERE id = ?", (scope,)).fetchone()
        entry = Entry.from_json(record, owner=str(row[0]))
        return self._entry_text(entry)

    def _entry_text(self, entry: Entry) -> _Text:
        words, date = self._tokens.words, self._tokens.date_words(entry.observed_at)
        found = [*map(utf8, words(entry.content)), *words(entry.speaker or ""), *date]
        return _Text(found if entry.retrievable else [], entry.content, meaning_of(entry))

    def _fact_text(self, fact: Fact) -> _Text:
        date = self._tokens.date_words(fact.valid_from) if fact.valid_from else []
        found = [*map(utf8, self._tokens.words(fact.text)), *date]
        return _Text(found, fact.text, meaning_of(fact))

    def _scope(self, agent: str, sender: str | None) -> int:
        return self._number("scopes(agent, sender)", utf8(agent), utf8(sender or ""))

    def _session(self, agent: str, name: str) -> int:
        return self._number("sessions(agent, name)", utf8(agent), utf8(name))

    def _number(self, table: str, first: str, second: str) -> int:
        name, _, columns = table.rstrip(")").partition("(")
        one, two = columns.split(", ")
        for (number,) in self._db.execute(
            f"SELECT id FROM {name} WHERE {one} = ? AND {two} = ?",  # noqa: S608
            (first, second),
        ):
            return int(number)
        self._db.execute(f"INSERT INTO {table} VALUES(?, ?)", (first, second))
        return int(self._db.last_insert_rowid())

    def _free_row(self, identity: str) -> int:
        row = row_of(identity)
        while next(iter(self._db.execute("SELECT 1 FROM items WHERE row = ?", (row,))), None):
            row += 1
        return row


def row_of(identity: str) -> int:
    """Return the row number of an item, a function of its id: 48 bits of time, 15 of chance.

    So the newest rows of a term are the newest items, in a rebuilt index as in the first one.
    """
    try:
        from ulid import ULID

        value = int(ULID.from_str(identity))
    except ValueError:  # an id that somebody else made
        value = int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=16).digest(), "big")
    return (value >> 80 & (1 << 48) - 1) << 15 | value & 0x7FFF


def meaning_of(item: Entry | Fact) -> str:
    """Return what is embedded of an item: who says something is a part of what is meant."""
    if isinstance(item, Fact):
        return item.text
    return f"{item.speaker or item.role}: {item.content}"


def vectors_of(embedder: Embedder, texts: Mapping[int, str]) -> list[tuple[int, str, bytes]]:
    """Return (row, model, vector) of each text; empty where the model knows nothing of it."""
    vectors = quantise(embedder.encode(list(texts.values())))
    return [
        (row, embedder.name, vector if any(vector) else b"")
        for row, vector in zip(texts, vectors, strict=True)
    ]


def normal(*parts: str) -> tuple[str, ...]:
    """Return subject, relation or value as facts are compared: casefolded, one space."""
    return tuple(" ".join(part.casefold().split()) for part in parts)
