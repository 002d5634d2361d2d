"""The schema of the derived index, as the migrations that made it; all DDL is here.

Never edit a released migration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import apsw

_PUNCTUATION: Final = "".join(
    chr(c) for c in range(33, 127) if not chr(c).isalnum() and chr(c) not in "'\""
)


def m001_first(connection: apsw.Connection) -> None:
    """Create the tables of ledger positions, items, postings, vectors, events and states."""
    for statement in (
        "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE files(
            id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, ledger TEXT NOT NULL, owner TEXT,
            device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL,
            mtime_ns INTEGER NOT NULL, offset INTEGER NOT NULL, lines INTEGER NOT NULL,
            tail TEXT NOT NULL)""",
        """CREATE TABLE bad_lines(
            file INTEGER NOT NULL, line INTEGER NOT NULL, reason TEXT NOT NULL,
            PRIMARY KEY(file, line)) WITHOUT ROWID""",
        "CREATE TABLE notices(at TEXT NOT NULL, path TEXT NOT NULL, what TEXT NOT NULL)",
        """CREATE TABLE scopes(
            id INTEGER PRIMARY KEY, agent TEXT NOT NULL, sender TEXT NOT NULL,
            entries INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL DEFAULT 0,
            shelf TEXT NOT NULL DEFAULT '', UNIQUE(agent, sender, shelf))""",
        """CREATE TABLE sessions(
            id INTEGER PRIMARY KEY, agent TEXT NOT NULL, name TEXT NOT NULL,
            UNIQUE(agent, name))""",
        """CREATE TABLE items(
            row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tier TEXT NOT NULL,
            scope INTEGER NOT NULL, session INTEGER, file INTEGER NOT NULL, line INTEGER NOT NULL,
            turn INTEGER NOT NULL, role TEXT NOT NULL, speaker TEXT, observed REAL NOT NULL,
            key TEXT, standing INTEGER NOT NULL, retrievable INTEGER NOT NULL,
            indexed INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL, data BLOB NOT NULL,
            quotable INTEGER NOT NULL DEFAULT 0)""",
        # A covering index: reading neighbours and due summaries touches no rows.
        """CREATE INDEX items_session
            ON items(session, observed, turn, id, scope, indexed, length, quotable)""",
        "CREATE INDEX items_turn ON items(session, turn)",
        "CREATE INDEX items_key ON items(key) WHERE key IS NOT NULL",
        "CREATE INDEX items_file ON items(file)",
        # One row per word and item, clustered by scope: reading one agent's postings of a term
        # never touches another agent's rows.  The item's length is repeated to save a join.
        """CREATE TABLE postings(
            scope INTEGER NOT NULL, term TEXT NOT NULL, item INTEGER NOT NULL,
            tf INTEGER NOT NULL, length INTEGER NOT NULL,
            PRIMARY KEY(scope, term, item)) WITHOUT ROWID""",
        """CREATE TABLE terms(
            scope INTEGER NOT NULL, term TEXT NOT NULL, df INTEGER NOT NULL,
            PRIMARY KEY(scope, term)) WITHOUT ROWID""",
        """CREATE TABLE gram_terms(
            scope INTEGER NOT NULL, term TEXT NOT NULL, df INTEGER NOT NULL,
            PRIMARY KEY(scope, term)) WITHOUT ROWID""",
        # Our own tokenizer produces the n-grams, written as "scope.gram scope.gram ..."; with
        # these characters, FTS5's "ascii" tokenizer splits at white space only.
        f"""CREATE VIRTUAL TABLE grams USING fts5(
            text, content='', contentless_delete=1, detail=none,
            tokenize="ascii tokenchars '{_PUNCTUATION}'")""",
        "CREATE VIRTUAL TABLE gram_postings USING fts5vocab(grams, instance)",
        """CREATE TABLE sources(
            fact TEXT NOT NULL, entry TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
            via TEXT NOT NULL, place INTEGER NOT NULL,
            PRIMARY KEY(fact, entry, via)) WITHOUT ROWID""",
        "CREATE INDEX sources_entry ON sources(entry)",
        "CREATE INDEX sources_via ON sources(via)",
        """CREATE TABLE facts(
            id TEXT PRIMARY KEY, row INTEGER NOT NULL, subject TEXT NOT NULL,
            relation TEXT NOT NULL, value TEXT NOT NULL) WITHOUT ROWID""",
        "CREATE INDEX facts_subject ON facts(subject, relation, value)",
        """CREATE TABLE events(
            id TEXT PRIMARY KEY, stamp TEXT NOT NULL, kind TEXT NOT NULL, agent TEXT NOT NULL,
            run TEXT, file INTEGER NOT NULL, line INTEGER NOT NULL, data BLOB NOT NULL)
            WITHOUT ROWID""",
        "CREATE INDEX events_run ON events(run, agent, kind)",
        "CREATE INDEX events_kind ON events(kind, stamp)",
        "CREATE INDEX events_file ON events(file)",
        """CREATE TABLE touches(
            item TEXT NOT NULL, event TEXT NOT NULL, PRIMARY KEY(item, event)) WITHOUT ROWID""",
        """CREATE TABLE states(
            item TEXT PRIMARY KEY, weight REAL NOT NULL, promoted INTEGER NOT NULL,
            forgotten INTEGER NOT NULL, superseded_by TEXT, valid_to TEXT, reviewed TEXT,
            reverted INTEGER NOT NULL) WITHOUT ROWID""",
        """CREATE TABLE cursors(
            extractor TEXT NOT NULL, path TEXT NOT NULL, offset INTEGER NOT NULL,
            pass INTEGER NOT NULL, stamp TEXT NOT NULL, PRIMARY KEY(extractor, path))
            WITHOUT ROWID""",
        # One int8 vector for each piece of a text, and the packed signs of many vectors.
        # `embedded` counts the items with vectors, which shows how complete a model's are.
        """CREATE TABLE vectors(
            item INTEGER NOT NULL, model TEXT NOT NULL, piece INTEGER NOT NULL,
            vector BLOB NOT NULL, PRIMARY KEY(item, model, piece)) WITHOUT ROWID""",
        """CREATE TABLE vector_signs(
            model TEXT NOT NULL, scope INTEGER NOT NULL, first INTEGER NOT NULL,
            items BLOB NOT NULL, signs BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX vector_signs_first ON vector_signs(model, scope, first)",
        """CREATE TABLE embedded(
            model TEXT NOT NULL, scope INTEGER NOT NULL, items INTEGER NOT NULL,
            PRIMARY KEY(model, scope)) WITHOUT ROWID""",
    ):
        connection.execute(statement)


def m002_standing(connection: apsw.Connection) -> None:
    """Find the standing instructions of a scope without reading its other items."""
    connection.execute("CREATE INDEX items_standing ON items(scope, row) WHERE standing")


def m003_private(connection: apsw.Connection) -> None:
    """Keep which entries became confidences after they were written."""
    connection.execute("ALTER TABLE states ADD COLUMN private INTEGER NOT NULL DEFAULT 0")


def m004_content(connection: apsw.Connection) -> None:
    """Keep a checksum of what was read of each ledger, to recognise a copy of it."""
    connection.execute("ALTER TABLE files ADD COLUMN crc INTEGER")


def m005_priorities(connection: apsw.Connection) -> None:
    """Keep the importance of entries, and what their priority and their tier rest on."""
    connection.execute(
        """CREATE TABLE importance(
            item TEXT PRIMARY KEY, score INTEGER NOT NULL, stamp TEXT NOT NULL,
            event TEXT NOT NULL) WITHOUT ROWID"""
    )
    connection.execute(
        """CREATE TABLE headers(
            item TEXT PRIMARY KEY, agent TEXT NOT NULL, sender TEXT NOT NULL,
            tier INTEGER NOT NULL, alignment REAL NOT NULL, uses INTEGER NOT NULL, used TEXT,
            number INTEGER NOT NULL, stamp TEXT NOT NULL, event TEXT NOT NULL) WITHOUT ROWID"""
    )
    connection.execute("CREATE INDEX headers_tier ON headers(agent, sender, tier)")


def m006_gate(connection: apsw.Connection) -> None:
    """Keep the verdicts of the encoding gate, and which items are indexed by their words alone."""
    connection.execute("ALTER TABLE states ADD COLUMN gate TEXT")
    connection.execute("ALTER TABLE items ADD COLUMN words_only INTEGER NOT NULL DEFAULT 0")


def m007_times(connection: apsw.Connection) -> None:
    """Find what was said in a time without reading what was said at any other."""
    connection.execute("CREATE INDEX items_time ON items(scope, observed) WHERE indexed")


def m008_words_only(connection: apsw.Connection) -> None:
    """Keep of an item only whether it is found by its words alone; plugins know why."""
    for statement in (
        "ALTER TABLE states ADD COLUMN words_only INTEGER NOT NULL DEFAULT 0",
        "UPDATE states SET words_only = gate IS 'left_out'",
        "ALTER TABLE states DROP COLUMN gate",
    ):
        connection.execute(statement)


def m009_calls(connection: apsw.Connection) -> None:
    """Keep how the tool calls went that rested on an item."""
    connection.execute("ALTER TABLE states ADD COLUMN calls TEXT")
    connection.execute(
        "CREATE INDEX events_call ON events(data ->> 'call') WHERE kind IN ('credit', 'call')"
    )


MIGRATIONS: Final[tuple[Callable[[apsw.Connection], None], ...]] = (
    m001_first,
    m002_standing,
    m003_private,
    m004_content,
    m005_priorities,
    m006_gate,
    m007_times,
    m008_words_only,
    m009_calls,
)
