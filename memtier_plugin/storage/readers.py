"""Read the index: all the queries of an operation, and the journal's events and positions."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final, TypeVar

from memtier_plugin.core.records import JournalEvent, decode_event
from memtier_plugin.storage.index.candidate_reader import CandidateReader
from memtier_plugin.storage.index.item_reader import ItemReader
from memtier_plugin.storage.index.overviews import OverviewReader, SessionPages
from memtier_plugin.storage.index.records import (
    RecordReader,
    join_conditions,
    settle_events,
    to_utf8,
    to_utf8_all,
)
from memtier_plugin.storage.index.vector_coverage import VectorCoverage

# -- Read journal events, cursors and ledger positions from the index

_TOUCHING: Final = (
    "id IN (SELECT event FROM touches WHERE item IN (SELECT value FROM json_each(?)))"
)


class JournalReader(RecordReader):
    """Queries for the journal events, cursors and ledger positions of one project."""

    def event(self, identity: str) -> JournalEvent | None:
        """Return a journal event by its id."""
        for (data,) in self._db.execute("SELECT data FROM events WHERE id = ?", (identity,)):
            return self.settle([decode_event(data)])[0]
        return None

    def settle(self, events: Sequence[JournalEvent]) -> list[JournalEvent]:
        """Return events, the offers among them that a host acknowledged as injected.

        All that a reader returns is settled; ``events`` may be ones that the index has not read.
        """
        return settle_events(self._db, events)

    def recalls_ending(self, end: str) -> list[JournalEvent]:
        """Return the journalled recalls whose ids end so."""
        rows = self._db.execute(
            "SELECT data FROM events WHERE kind = 'recall' AND substr(id, -length(?1)) = ?1",
            (to_utf8(end),),
        )
        return self.settle([decode_event(data) for (data,) in rows])

    def events(
        self,
        kinds: Collection[str] = (),
        *,
        agent: str | None = None,
        run: str | None = None,
        item: str | None = None,
        items: Collection[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        before: datetime | None = None,
        newest: int | None = None,
    ) -> list[JournalEvent]:
        """Return the journal events that meet every condition, oldest first.

        Args:
            kinds: the kinds to return; all if empty.
            item: only events that may change the state of this item, or of any of ``items``.
            since: the earliest time, inclusive, as is ``until``; ``before`` is exclusive.
            newest: the most events to return, newest first.
        """
        several = json.dumps(list(kinds)) if len(kinds) > 1 else None
        any_of = json.dumps(to_utf8_all(items)) if items else None
        condition, values = join_conditions(
            {
                "item = ?": item,
                _TOUCHING: any_of,
                "kind = ?": next(iter(kinds)) if len(kinds) == 1 else None,
                "kind IN (SELECT value FROM json_each(?))": several,
                "agent = ?": agent,
                "run = ?": run,
                "stamp >= ?": since,
                "stamp <= ?": until,
                "stamp < ?": before,
            }
        )
        table = "events" if item is None else "touches JOIN events ON events.id = event"
        order = "stamp, id" if newest is None else f"stamp DESC, id DESC LIMIT {newest:d}"
        rows = self._db.execute(
            f"SELECT data FROM {table} WHERE {condition} ORDER BY {order}",  # noqa: S608
            values,
        )
        return self.settle([decode_event(data) for (data,) in rows])

    def outcomes_of_calls(self, calls: Collection[str], newest: int) -> list[JournalEvent]:
        """Return the newest credits and outcomes of calls with these arguments, newest first."""
        rows = self._db.execute(
            """SELECT data FROM events WHERE kind IN ('credit', 'call')
                 AND data ->> 'call' IN (SELECT value FROM json_each(?))
               ORDER BY stamp DESC, id DESC LIMIT ?""",
            (json.dumps(to_utf8_all(calls)), newest),
        )
        return [decode_event(data) for (data,) in rows]

    def outcomes_of_runs(self, runs: Collection[str]) -> list[JournalEvent]:
        """Return the credits and calls of these runs, of whichever agent, oldest first."""
        rows = self._db.execute(
            """SELECT data FROM events WHERE kind IN ('credit', 'call')
                 AND run IN (SELECT value FROM json_each(?)) ORDER BY stamp, id""",
            (json.dumps(to_utf8_all(runs)),),
        )
        return [decode_event(data) for (data,) in rows]

    def reverts_after_recall_drop(self) -> list[JournalEvent]:
        """Return the reverts of consolidations that lowered recall, oldest first."""
        rows = self._db.execute(
            """SELECT data FROM events WHERE kind = 'revert' AND data ->> 'probes' IS NOT NULL
               ORDER BY stamp, id"""
        )
        return [decode_event(data) for (data,) in rows]

    def existing_events(self, ids: Collection[str]) -> set[str]:
        """Return the subset of these ids that identify journal events."""
        rows = self._db.execute(
            "SELECT id FROM events WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        return {str(row[0]) for row in rows}

    def cursors(self, extractor: str = "rules") -> dict[str, int]:
        """Return the offset up to which each episodic ledger file was consolidated, in bytes.

        A file that is now shorter than its offset was rewritten outside MemTier: it restarts at 0.
        """
        rows = self._db.execute(
            """SELECT cursors.path, iif(cursors.offset > files.offset, 0, cursors.offset)
               FROM cursors JOIN files ON files.path = cursors.path WHERE extractor = ?""",
            (extractor,),
        )
        return {str(path): int(at) for path, at in rows}

    def last_pass(self, extractor: str) -> int:
        """Return the number of an extractor's last consolidation pass; 0 before the first."""
        return self._count(
            "SELECT coalesce(max(pass), 0) FROM cursors WHERE extractor = ?", (extractor,)
        )

    def offsets(self) -> dict[str, int]:
        """Return the offset up to which each ledger file is indexed, in bytes."""
        rows = self._db.execute("SELECT path, offset FROM files")
        return {str(path): int(at) for path, at in rows}

    def line_counts(self) -> dict[str, int]:
        """Return the number of indexed lines of each ledger file."""
        rows = self._db.execute("SELECT path, lines FROM files")
        return {str(path): int(count) for path, count in rows}

    def counts(self) -> dict[str, int]:
        """Return the totals that `status` shows, by name."""
        count = self._count
        return {
            "entries": count("SELECT count(*) FROM items WHERE tier = 'episodic'"),
            "facts": count(
                """SELECT count(*) FROM items JOIN scopes ON scopes.id = scope
                   WHERE tier <> 'episodic' AND indexed AND shelf = ''"""
            ),
            "summaries": count(
                """SELECT count(*) FROM items JOIN scopes ON scopes.id = scope
                   WHERE tier <> 'episodic' AND indexed AND shelf <> ''"""
            ),
            "sessions": count("SELECT count(*) FROM sessions"),
            "forgotten": count("SELECT count(*) FROM states WHERE forgotten"),
            "files": count("SELECT count(*) FROM files"),
            "bad_lines": count("SELECT count(*) FROM bad_lines"),
        }

    def bad_lines(self, limit: int = 50) -> list[tuple[str, int, str]]:
        """Return (path, line number, reason) of up to ``limit`` unreadable ledger lines."""
        lines: list[tuple[str, int, str]] = self._db.execute(
            """SELECT path, line, reason FROM bad_lines JOIN files ON files.id = file
               ORDER BY path, line LIMIT ?""",
            (limit,),
        ).fetchall()
        return lines

    def notices(self, limit: int = 20) -> list[tuple[str, str, str]]:
        """Return (time, path, change) of the newest unexpected ledger changes."""
        notices: list[tuple[str, str, str]] = self._db.execute(
            "SELECT at, path, what FROM notices ORDER BY at DESC LIMIT ?", (limit,)
        ).fetchall()
        return notices

    def last_activity(self) -> list[tuple[str, str, str]]:
        """Return (agent, "stored" or "recalled", time) of each agent's newest entry and recall."""
        stored = self._db.execute(
            """SELECT agent, 'stored', max(observed) FROM items
               JOIN sessions ON sessions.id = session GROUP BY agent"""
        ).fetchall()
        recalled = self._db.execute(
            "SELECT agent, 'recalled', max(stamp) FROM events WHERE kind = 'recall' GROUP BY agent"
        ).fetchall()
        return [*stored, *recalled]

    def build_id(self) -> str:
        """Return the id of this build of the index; "" for one never rebuilt."""
        for (value,) in self._db.execute("SELECT value FROM meta WHERE key = 'built'"):
            return str(value)
        return ""


# -- Read the index: all the queries of an operation, on one thread's connection

T = TypeVar("T")


class Reader(CandidateReader, ItemReader, JournalReader):
    """Queries against one project's index."""

    @cached_property
    def pages(self) -> SessionPages:
        """Page queries on the same connection."""
        return SessionPages(self._db)

    @cached_property
    def overviews(self) -> OverviewReader:
        """Shelf and overview queries on the same connection."""
        return OverviewReader(self._db)

    def plugin_tables(self, reader: Callable[[Any], T]) -> T:
        """Return a plugin's reader of its tables (`memtier_index_tables`), on this connection."""
        return reader(self._db)

    @cached_property
    def coverage(self) -> VectorCoverage:
        """Vector coverage queries on the same connection."""
        return VectorCoverage(self._db)
