"""Index items and events with their derived data: postings, statistics, current states.

The state of an item (weight, forgotten, superseded) is folded from all its events whenever one of
them is added or removed, so it does not depend on the order in which processes wrote or files were
read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memtier_plugin.core.events import ConsolidateEvent, PromoteEvent, RestoreEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import (
    Entry,
    Fact,
    JournalEvent,
    decode_entry,
    decode_event,
    decode_fact,
)
from memtier_plugin.providers.embedding.load import quantise
from memtier_plugin.providers.embedding.static import StaticEmbedder
from memtier_plugin.storage.index.postings import IndexedText, IndexSources, PluginTables, Postings
from memtier_plugin.storage.index.records import Stored, read_states, to_utf8, to_utf8_all
from memtier_plugin.storage.index.vectors import IndexVectors, Vectors
from memtier_plugin.storage.ledger.jsonl import LedgerLine
from memtier_plugin.storage.state import State, fold, touched_items
from memtier_plugin.text.passages import chunk_text
from memtier_plugin.text.phrases import is_quotable, standing_kind
from memtier_plugin.text.tokenizer import Tokenizer, normalise

if TYPE_CHECKING:
    import apsw

    from memtier_plugin.core.hookspecs import Embedder

PRIVATE_SHELF: Final = "private"  # confidences: an agent's own, not for whoever reads all
PIECE_CHARS: Final = 400  # characters of text that one vector represents
MAX_PIECES: Final = 12  # vectors per text; the rest is found only by its words

Record = Entry | Fact | JournalEvent
Prepared = tuple[Record, LedgerLine, IndexedText]
EmbeddingInput = tuple[Sequence[str], Sequence[bytes] | None]  # pieces; vectors if precomputed

_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_NO_TEXT: Final = IndexedText((), frozenset(), ())
_CROCKFORD: Final = str.maketrans("ABCDEFGHJKMNPQRSTVWXYZ", "abcdefghijklmnopqrstuv")


class _Item(NamedTuple):
    """The columns of a new item, common to entries and facts."""

    id: str
    tier: str
    scope: int
    role: str
    observed: float
    retrievable: bool
    text: IndexedText
    line: LedgerLine
    session: int | None = None
    turn: int = 0
    speaker: str | None = None
    key: str | None = None
    standing: int = 0
    quotable: bool = False


@dataclass(slots=True)
class Batch:
    """The work that a transaction settles before its commit."""

    postings: Postings
    touched: set[str] = field(default_factory=set)
    dropped: bool = False  # whether a file's rows were removed
    numbers: dict[tuple[str, ...], int] = field(default_factory=dict)  # of scopes, sessions
    texts: dict[int, IndexedText] = field(default_factory=dict)  # of new items, analysed once
    shown: dict[int, EmbeddingInput] = field(default_factory=dict)  # rows that need vectors


class IndexItems:
    """Adds items and events to one project's index, and removes them."""

    def __init__(
        self,
        connection: apsw.Connection,
        tokenizer: Tokenizer,
        embedder: Embedder | None = None,
    ) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection
        self._tokens = tokenizer
        self.vectors = IndexVectors(connection)
        self.sources = IndexSources(connection)
        self._plugin_tables = PluginTables(connection)
        # Only a static model is fast enough to embed items as they are indexed.
        self._embedder = embedder if isinstance(embedder, StaticEmbedder) else None

    def prepare(self, records: Sequence[tuple[Record, LedgerLine]]) -> list[Prepared]:
        """Compute words, n-grams and vectors before the index is locked."""
        texts = [self._text(record) for record, _ in records]
        pieces = {number: text.pieces for number, text in enumerate(texts) if text.pieces}
        if self._embedder and pieces:  # none of events
            for number, vectors in embed_texts(self._embedder, pieces).items():
                texts[number] = texts[number]._replace(vectors=vectors)
        return [(*record, text) for record, text in zip(records, texts, strict=True)]

    def _text(self, record: Record) -> IndexedText:
        if isinstance(record, Entry):
            return self._entry_text(record)
        return self._fact_text(record) if isinstance(record, Fact) else _NO_TEXT

    def add_entries(
        self, entries: Sequence[tuple[Entry, LedgerLine, IndexedText]], file: int, batch: Batch
    ) -> None:
        """Add entries; `[system]` entries are stored for the log but never retrieved."""
        ids = to_utf8_all(entry.id for entry, _, _ in entries)
        scopes, sessions = dict[tuple[Any, ...], int](), dict[tuple[str, str], int]()
        for entry, _, _ in entries:
            agent, sender = entry.agent_id, entry.sender or ""
            if (scope := (agent, sender, entry.private)) not in scopes:
                shelf = PRIVATE_SHELF if entry.private else ""
                scopes[scope] = self._number(
                    "scopes", batch, agent=agent, sender=sender, shelf=shelf
                )
            if (session := (agent, entry.session_id)) not in sessions:
                sessions[session] = self._number("sessions", batch, agent=agent, name=session[1])
        items = [
            _Item(
                id=identity,
                tier="episodic",
                scope=scopes[entry.agent_id, entry.sender or "", entry.private],
                role=entry.role,
                observed=entry.observed_at.timestamp(),
                retrievable=entry.retrievable,
                text=text,
                line=line,
                session=sessions[entry.agent_id, entry.session_id],
                turn=entry.turn,
                speaker=to_utf8(entry.speaker) if entry.speaker else None,
                key=entry.key,
                standing=standing_kind(entry),
                quotable=is_quotable(entry) and not entry.private,
            )
            for identity, (entry, line, text) in zip(ids, entries, strict=True)
        ]
        self._insert(items, file, batch)

    def add_fact(
        self, fact: Fact, line: LedgerLine, text: IndexedText, file: int, batch: Batch
    ) -> None:
        """Add a fact with its sources; a proposed fact is stored but not retrieved."""
        agent, sender = fact.audience
        identity, *stated = to_utf8_all(
            [fact.id, *normalise(fact.subject, fact.relation, fact.value)]
        )
        item = _Item(
            id=identity,
            tier=fact.tier,
            scope=self._number("scopes", batch, agent=agent, sender=sender, shelf=fact.shelf),
            role=fact.origin,
            speaker=to_utf8(fact.subject),  # lets a question's names match the fact's subject
            observed=(fact.valid_from or fact.timestamp).timestamp(),
            retrievable=fact.status == "active",
            text=text,
            line=line,
            standing=standing_kind(fact),
        )
        [row] = self._insert([item], file, batch)
        self._db.execute("INSERT INTO facts VALUES(?, ?, ?, ?, ?)", (identity, row, *stated))
        self.sources.add(fact)

    def _insert(self, items: Sequence[_Item], file: int, batch: Batch) -> list[int]:
        """Insert items and return their rows; entries without events are indexed at once."""
        preferred = [row_number(item.id) for item in items]
        looked_up = self._db.executemany(
            """SELECT EXISTS(SELECT 1 FROM items WHERE id = ?1),
                      EXISTS(SELECT 1 FROM items WHERE row = ?2),
                      EXISTS(SELECT 1 FROM touches WHERE item = ?1)""",
            [(item.id, row) for item, row in zip(items, preferred, strict=True)],
        ).fetchall()
        rows: dict[int, _Item] = {}
        shown: set[int] = set()
        ids: set[str] = set()
        for item, row, (exists, taken, eventful) in zip(items, preferred, looked_up, strict=True):
            if exists or item.id in ids:
                raise ValueError(f"the id {item.id} was seen before")
            ids.add(item.id)
            while taken or row in rows:
                row += 1
                taken = self._db.execute("SELECT 1 FROM items WHERE row = ?", (row,)).fetchone()
            rows[row] = item
            if item.tier == "episodic" and item.retrievable and not eventful:
                shown.add(row)
        self._db.executemany(
            """INSERT INTO items(row, id, tier, scope, session, file, line, turn, role, speaker,
                 observed, key, standing, retrievable, indexed, length, data, quotable)
               VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            [
                (
                    row,
                    item.id,
                    item.tier,
                    item.scope,
                    item.session,
                    file,
                    item.line.number,
                    item.turn,
                    item.role,
                    item.speaker,
                    item.observed,
                    item.key,
                    item.standing,
                    item.retrievable,
                    row in shown,
                    len(item.text.words),
                    item.line.data,
                    item.quotable,
                )
                for row, item in rows.items()
            ],
        )
        for row, item in rows.items():
            if row in shown:
                batch.postings.add(item.scope, row, item.text)
                batch.shown[row] = item.text.pieces, item.text.vectors
            else:
                batch.touched.add(item.id)
                batch.texts[row] = item.text
        return list(rows)

    def add_event(self, event: JournalEvent, line: LedgerLine, file: int, batch: Batch) -> None:
        identity, agent, run, *items = to_utf8_all(
            [event.id, event.agent_id, event.run_id or "", *touched_items(event)]
        )
        new = self._db.execute(
            "INSERT OR IGNORE INTO events VALUES(?, ?, ?, ?, ?, ?, ?, ?) RETURNING 1",
            (
                identity,
                to_iso(event.timestamp),
                event.kind,
                agent,
                run if event.run_id is not None else None,
                file,
                line.number,
                line.data,
            ),
        ).fetchone()
        if new is None:
            raise ValueError(f"the id {event.id} was seen before")
        self._db.executemany(
            "INSERT OR IGNORE INTO touches VALUES(?, ?)",
            [(item, identity) for item in items],
        )
        batch.touched.update(items)
        if event.kind == PromoteEvent.KIND:
            batch.touched |= self.sources.add_promotion(event)
        elif event.kind == RestoreEvent.KIND:
            batch.touched |= self.sources.undo_promotions(event)
        elif event.kind == ConsolidateEvent.KIND:
            self._add_cursors(event)
        else:
            self._plugin_tables.add(event)

    def _add_cursors(self, event: JournalEvent) -> None:
        # Ordered by the number of the pass, not its time: a clock may be set back.
        consolidated = ConsolidateEvent.of(event)
        number, stamp = consolidated.number or 0, to_iso(event.timestamp)
        for path, offset in (consolidated.cursors or {}).items():
            self._db.execute(
                """INSERT INTO cursors VALUES(?, ?, ?, ?, ?) ON CONFLICT(extractor, path)
                   DO UPDATE SET offset = excluded.offset, pass = excluded.pass,
                     stamp = excluded.stamp
                   WHERE (excluded.pass, excluded.stamp, excluded.offset)
                       > (cursors.pass, cursors.stamp, cursors.offset)""",
                (to_utf8(consolidated.extractor), to_utf8(path), offset, number, stamp),
            )

    def _remove_unused(self) -> None:
        """Delete unused names and recompute the cursors after a file was dropped."""
        for table, used in (("sessions", "session"), ("scopes", "scope")):
            self._db.execute(
                f"""DELETE FROM {table} WHERE NOT EXISTS
                    (SELECT 1 FROM items WHERE {used} = {table}.id)"""  # noqa: S608
            )
        self._db.execute("DELETE FROM cursors")
        for (data,) in self._db.execute("SELECT data FROM events WHERE kind = 'consolidate'"):
            self._add_cursors(decode_event(data))
        self._plugin_tables.rebuild()

    # -- settling: states, postings, statistics ------------------------------------------------

    def settle(self, batch: Batch) -> None:
        waiting = set(batch.touched)
        before = read_states(self._db, batch.touched)
        for identity in batch.touched:
            if self._refold(identity, before[identity]):
                # Facts depend on entries, and timelines on facts too: withdrawing or reinstating a
                # source may hide or show its dependants.
                waiting.update(
                    str(fact)
                    for (fact,) in self._db.execute(
                        "SELECT DISTINCT fact FROM sources WHERE entry = ?", (identity,)
                    )
                )
        states = read_states(self._db, waiting)
        for identity in sorted(waiting):
            self._show_or_hide(identity, states[identity], batch)
        batch.postings.write()
        if batch.shown and self._embedder:
            self.vectors.put(self._embedder.name, self._vectors(batch.shown))
        if batch.dropped:
            self._remove_unused()

    def _vectors(self, shown: Mapping[int, EmbeddingInput]) -> Vectors:
        assert self._embedder
        ready = {row: vectors for row, (_, vectors) in shown.items() if vectors is not None}
        rest = {row: pieces for row, (pieces, _) in shown.items() if row not in ready}
        return ready | embed_texts(self._embedder, rest) if rest else ready

    def _refold(self, identity: str, before: State) -> bool:
        """Refold an item's events; return whether it was withdrawn or reinstated."""
        events = [
            decode_event(data)
            for (data,) in self._db.execute(
                "SELECT data FROM touches JOIN events ON events.id = event WHERE item = ?",
                (identity,),
            )
        ]
        state = fold(events) if events else State()
        if state == before:
            return False
        if state == State():
            self._db.execute("DELETE FROM states WHERE item = ?", (identity,))
        else:
            self._db.execute(
                "INSERT OR REPLACE INTO states VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    identity,
                    state.weight,
                    state.promoted,
                    state.forgotten,
                    to_utf8(state.superseded_by) if state.superseded_by else None,
                    state.valid_to,
                    state.reviewed,
                    state.reverted,
                    state.private,
                    state.words_only,
                    json.dumps(state.calls.to_json()) if state.calls.last else None,
                ),
            )
        return (state.withdrawn, state.private) != (before.withdrawn, before.private)

    def _show_or_hide(self, identity: str, state: State, batch: Batch) -> None:
        for row, tier, retrievable, indexed, words_only in self._db.execute(
            "SELECT row, tier, retrievable, indexed, words_only FROM items WHERE id = ?",
            (identity,),
        ).fetchall():
            show = state.is_retrievable(bool(retrievable))
            if tier == "episodic" and state.words_only != bool(words_only):
                self.set_indexed(int(row), False, batch)
                indexed = False
                self._db.execute(
                    "UPDATE items SET words_only = ? WHERE row = ?", (state.words_only, row)
                )
            if state.private and tier == "episodic" and self._make_private(int(row), batch):
                indexed = False
            if show and tier != "episodic":
                # Sources not indexed yet count as present: the next file may contain them.
                sources, withdrawn, shelf = self._db.execute(
                    """SELECT count(*), coalesce(sum(forgotten OR reverted OR private
                         OR reviewed IS 'rejected'), 0),
                         (SELECT shelf FROM items JOIN scopes ON scopes.id = scope WHERE row = ?2)
                       FROM sources LEFT JOIN states ON item = entry WHERE fact = ?1""",
                    (identity, row),
                ).fetchone()
                # Shelved facts quote their sources: withdrawing one source hides the fact.
                show = withdrawn == 0 if shelf else not sources or withdrawn < sources
            if show != bool(indexed):
                self.set_indexed(int(row), show, batch)

    def _make_private(self, row: int, batch: Batch) -> bool:
        """Move an entry to the shelf of confidences; return whether it was elsewhere."""
        agent, sender, shelf = self._db.execute(
            "SELECT agent, sender, shelf FROM items JOIN scopes ON scopes.id = scope WHERE row = ?",
            (row,),
        ).fetchone()
        if shelf == PRIVATE_SHELF:
            return False
        self.set_indexed(row, False, batch)
        scope = self._number("scopes", batch, agent=agent, sender=sender, shelf=PRIVATE_SHELF)
        self._db.execute("UPDATE items SET scope = ?, quotable = 0 WHERE row = ?", (scope, row))
        return True

    def set_indexed(self, row: int, show: bool, batch: Batch) -> None:
        tier, scope, indexed, words_only, data = self._db.execute(
            "SELECT tier, scope, indexed, words_only, data FROM items WHERE row = ?", (row,)
        ).fetchone()
        if show == bool(indexed):
            return
        text = batch.texts.pop(row, None) or self._text_of(tier, scope, data)
        if words_only:  # it counts as embedded, with no piece
            text = text._replace(grams=frozenset(), pieces=(), vectors=())
        if show:
            batch.postings.add(int(scope), row, text)
            batch.shown[row] = text.pieces, text.vectors
        else:
            batch.postings.remove(int(scope), row, text)
            batch.shown.pop(row, None)
            self.vectors.drop(row, int(scope))
        self._db.execute("UPDATE items SET indexed = ? WHERE row = ?", (show, row))

    # -- small parts ---------------------------------------------------------------------------

    def _text_of(self, tier: str, scope: int, data: bytes) -> IndexedText:
        if tier != "episodic":
            return self._fact_text(decode_fact(data))
        row = self._db.execute("SELECT agent FROM scopes WHERE id = ?", (scope,)).fetchone()
        return self._entry_text(decode_entry(data, owner=str(row[0])))

    def _entry_text(self, entry: Entry) -> IndexedText:
        if not entry.retrievable:
            return _NO_TEXT
        words, grams = self._tokens.words_and_ngrams(
            entry.content, speaker=entry.speaker, date=entry.observed_at
        )
        return IndexedText(words, grams, embedding_texts(entry))

    def _fact_text(self, fact: Fact) -> IndexedText:
        words, grams = self._tokens.words_and_ngrams(fact.text, date=fact.valid_from)
        return IndexedText(words, grams, embedding_texts(fact))

    def _number(self, table: str, batch: Batch, **names: str) -> int:
        """Return the number of a scope (agent, sender, shelf) or a session (agent, name)."""
        key = (table, *names.values())
        number = batch.numbers.get(key)
        if number is None:
            columns = {"shelf": "", **names} if table == "scopes" else names
            values = to_utf8_all(columns.values())
            number = self._numbered(table, dict(zip(columns, values, strict=True)))
            batch.numbers[key] = number
        return number

    def _numbered(self, table: str, columns: Mapping[str, str]) -> int:
        which = " AND ".join(f"{name} = :{name}" for name in columns)
        for (number,) in self._db.execute(f"SELECT id FROM {table} WHERE {which}", columns):  # noqa: S608
            return int(number)
        names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
        self._db.execute(f"INSERT INTO {table}({names}) VALUES({values})", columns)
        return int(self._db.last_insert_rowid())


def row_number(identity: str) -> int:
    """Derive an item's row number from its id: 48 bits of time, 15 random bits.

    The newest rows of a term are therefore the newest items, also in a rebuilt index.
    """
    if _ULID.fullmatch(identity):
        value = int(identity.translate(_CROCKFORD), 32)
    else:
        value = _value_of(identity)
    return (value >> 80 & (1 << 48) - 1) << 15 | value & 0x7FFF


def _value_of(identity: str) -> int:
    try:
        from ulid import ULID

        return int(ULID.from_str(identity))
    except ValueError:  # an id from another program
        return int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=16).digest(), "big")


def embedding_texts(item: Entry | Fact) -> tuple[str, ...]:
    """Return the pieces of an item to embed, each with its speaker."""
    if isinstance(item, Fact):
        return chunk_text(item.text, PIECE_CHARS, MAX_PIECES)
    who = item.speaker or item.role
    if len(item.content) <= PIECE_CHARS:
        return (f"{who}: {item.content}",)
    return tuple(f"{who}: {piece}" for piece in chunk_text(item.content, PIECE_CHARS, MAX_PIECES))


def pieces_to_embed(stored: Stored) -> tuple[str, ...]:
    """Return the same of a stored item; none where it is found by its words alone."""
    return () if stored.state.words_only else embedding_texts(stored.item)


def embed_texts(embedder: Embedder, texts: Mapping[int, Sequence[str]]) -> dict[int, list[bytes]]:
    """Embed each row's pieces and return their vectors in order."""
    encode = embedder.encode_many if isinstance(embedder, StaticEmbedder) else embedder.encode
    vectors = iter(quantise(encode([text for row in texts for text in texts[row]])))
    return {row: [next(vectors) for _ in texts[row]] for row in texts}
