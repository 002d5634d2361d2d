"""Reading the index: whole records with their current state, and what the journal says."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.codecs import decode_entry, decode_event, decode_fact
from memtier_plugin.core.records import Entry, Fact, JournalEvent, Source
from memtier_plugin.core.times import to_iso
from memtier_plugin.storage.filters import EntryFilter, EventFilter, FactFilter, Standing
from memtier_plugin.storage.state import State

if TYPE_CHECKING:
    import apsw


_STANDING: Final[Mapping[Standing, str]] = {
    "current": "indexed",
    "past": "NOT indexed",
    "waiting": "NOT retrievable AND reviewed IS NULL AND NOT coalesce(reverted, 0)"
    " AND NOT coalesce(forgotten, 0) AND superseded_by IS NULL",
    "reverted": "reverted AND NOT forgotten",
    "remembered": "NOT coalesce(forgotten, 0)",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """An item as it is kept, with its ledger line and its current state."""

    item: Entry | Fact
    row: int
    file: str
    line: int
    state: State


class IndexRecords:
    """Records of one project's index, on one thread's connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection

    def items(self, ids: Iterable[str]) -> dict[str, Stored]:
        """Return the items that the index has of these ids, oldest first."""
        inside = "items.id IN (SELECT value FROM json_each(?))"
        values = json.dumps([to_utf8(identity) for identity in ids])
        return {item.item.id: item for item in self._items(inside, values).values()}

    def facts(self, where: FactFilter | None = None) -> list[Stored]:
        """Return the facts that meet every condition, oldest first."""
        where = where or FactFilter()
        agent, sender = where.audience or (None, None)
        condition, values = _all_of(
            {
                "items.data ->> 'run' = ?": where.run,
                "subject = ?": where.subject,
                "relation = ?": where.relation,
                "value = ?": where.value,
                "agent = ?": agent,
                "sender = ?": sender,
                "agent IN ('', ?)": where.readable_by,
                "items.data ->> 'timestamp' >= ?": where.written_since,
                "items.data ->> 'timestamp' <= ?": where.written_until,
                "observed >= ?": where.valid_since,
                "observed <= ?": where.valid_until,
            },
            _STANDING[where.standing] if where.standing else "true",
            "shelf = ''" if where.audience else "true",
        )
        rows = [
            int(row)
            for (row,) in self._db.execute(
                f"""SELECT items.row FROM facts CROSS JOIN items ON items.row = facts.row
                    JOIN scopes ON scopes.id = scope LEFT JOIN states ON item = items.id
                    WHERE {condition} ORDER BY items.id""",  # noqa: S608
                values,
            )
        ]
        stored = self.items_by_row(rows)
        return [stored[row] for row in rows]

    def entries(self, where: EntryFilter) -> list[str]:
        """Return the ids of the entries that meet every condition, oldest first."""
        condition, values = _all_of(
            {
                "scopes.agent = ?": where.agent,
                "sender = ?": where.sender,
                "name = ?": where.session,
                "items.data ->> 'run_id' = ?": where.run,
                "observed >= ?": where.since,
                "observed <= ?": where.until,
            },
            "tier = 'episodic'",
        )
        rows = self._db.execute(
            f"""SELECT items.id FROM items JOIN scopes ON scopes.id = scope
                LEFT JOIN sessions ON sessions.id = session
                WHERE {condition} ORDER BY items.id""",  # noqa: S608
            values,
        )
        return [str(row[0]) for row in rows]

    def events(self, where: EventFilter) -> list[JournalEvent]:
        """Return the journal events that meet every condition."""
        kinds = [*where.kinds]
        condition, values = _all_of(
            {
                "item = ?": where.item,
                "kind = ?": kinds[0] if len(kinds) == 1 else None,
                "kind IN (SELECT value FROM json_each(?))": (
                    json.dumps(kinds) if len(kinds) > 1 else None
                ),
                "agent = ?": where.agent,
                "run = ?": where.run,
                "stamp >= ?": where.since,
                "stamp <= ?": where.until,
                "stamp < ?": where.before,
            }
        )
        table = "events" if where.item is None else "touches JOIN events ON events.id = event"
        order = "stamp, id"
        if where.newest is not None:
            order = f"stamp DESC, id DESC LIMIT {where.newest:d}"
        rows = self._db.execute(
            f"SELECT data FROM {table} WHERE {condition} ORDER BY {order}",  # noqa: S608
            values,
        )
        return [parse_event(data) for (data,) in rows]

    def items_by_row(self, rows: Sequence[int]) -> dict[int, Stored]:
        """Return the records of these rows."""
        return self._items("row IN (SELECT value FROM json_each(?))", json.dumps(list(rows)))

    def _items(self, condition: str, values: str) -> dict[int, Stored]:
        found = {}
        for row, tier, data, owner, path, line, *state in self._db.execute(
            f"""SELECT row, tier, data, files.owner, path, line, weight, promoted, forgotten,
                       superseded_by, valid_to, reviewed, reverted
                FROM items JOIN files ON files.id = file LEFT JOIN states ON item = items.id
                WHERE {condition} ORDER BY row""",  # noqa: S608
            (values,),
        ):
            item: Entry | Fact
            current = _state(state) if state[0] is not None else State()
            if tier == "episodic":
                item = decode_entry(data, owner=owner)
                if (item.promoted, item.cognitive_weight) != (current.promoted, current.weight):
                    item = replace(item, promoted=current.promoted, cognitive_weight=current.weight)
            else:
                item = decode_fact(data, tier=tier)
            found[int(row)] = Stored(item, int(row), str(path), int(line), current)
        return found

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the rows of the ids that the index knows."""
        return {
            str(identity): int(row)
            for identity, row in self._db.execute(
                "SELECT id, row FROM items WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps([to_utf8(i) for i in ids]),),
            )
        }

    def ids_in_session(self, agent: str, session: str) -> list[str]:
        """Return the ids of an agent's entries of one session, in order."""
        rows = self._db.execute(
            """SELECT items.id FROM items JOIN sessions ON sessions.id = session
               WHERE agent = ? AND name = ? ORDER BY observed, turn, items.id""",
            (to_utf8(agent), to_utf8(session)),
        )
        return [str(row[0]) for row in rows]

    def sources(self, fact: str) -> list[Source]:
        """Return a fact's sources, its own first, then those of later promotions."""
        rows = self._db.execute(
            """SELECT sources.agent, sources.session, entry, path, line FROM sources
               LEFT JOIN items ON items.id = entry LEFT JOIN files ON files.id = file
               WHERE fact = ? GROUP BY entry ORDER BY min(place), entry""",
            (fact,),
        )
        return [Source(agent=a, session=s, entry=e, file=f, line=n) for a, s, e, f, n in rows]

    def dependent_facts(self, entries: Collection[str]) -> list[str]:
        """Return the facts all of whose sources are among these entries or already forgotten."""
        rows = self._db.execute(
            """SELECT fact FROM sources LEFT JOIN states ON item = entry
               WHERE fact IN (SELECT fact FROM sources
                              WHERE entry IN (SELECT value FROM json_each(?1)))
               GROUP BY fact
               HAVING sum(entry NOT IN (SELECT value FROM json_each(?1))
                          AND NOT coalesce(forgotten, 0)) = 0
               ORDER BY fact""",
            (json.dumps(list(entries)),),
        )
        return [str(row[0]) for row in rows]

    def facts_about(
        self,
        subject: str,
        relation: str,
        *,
        current: bool = True,
        private_to: tuple[str, str] | None = None,
        value: str | None = None,
    ) -> list[Stored]:
        """Return the facts of a (normalised) subject and relation, oldest first.

        Args:
            current: those that hold; or else those that were superseded, forgotten or proposed.
            private_to: of those that only this agent and sender may see; or else of the shared.
            value: only those of this (normalised) value.
        """
        rows = [
            int(row)
            for (row,) in self._db.execute(
                """SELECT items.row FROM facts JOIN items ON items.row = facts.row
                   JOIN scopes ON scopes.id = scope AND agent = ? AND sender = ? AND shelf = ''
                   WHERE subject = ? AND relation = ? AND indexed = ?
                     AND (?6 IS NULL OR value = ?6) ORDER BY items.id""",
                (
                    *map(to_utf8, (*(private_to or ("", "")), subject, relation)),
                    current,
                    to_utf8(value) if value is not None else None,
                ),
            )
        ]
        stored = self.items_by_row(rows)
        return [stored[row] for row in rows]

    def replacement_facts(self, about: Collection[Sequence[str]]) -> set[str]:
        """Return the facts of these (normalised) subjects and relations that replaced an older one.

        One that was forgotten does not count: nobody may learn that it was there.
        """
        rows = self._db.execute(
            """SELECT DISTINCT superseded_by FROM json_each(?) AS wanted
               CROSS JOIN facts ON subject = wanted.value ->> 0 AND relation = wanted.value ->> 1
               JOIN states ON item = facts.id WHERE superseded_by IS NOT NULL AND NOT forgotten""",
            (json.dumps([[to_utf8(part) for part in pair] for pair in about]),),
        )
        return {str(row[0]) for row in rows}

    def all_facts(
        self, *, include_superseded: bool = False, agent: str | None = None
    ) -> list[Stored]:
        """Return every fact, oldest first; forgotten ones never.

        Args:
            include_superseded: those too that do not hold now: superseded, proposed, reverted.
            agent: leave out what is private to others than this one; None leaves out nothing.
        """
        rows = [
            int(row)
            for (row,) in self._db.execute(
                f"""SELECT row FROM items LEFT JOIN states ON item = items.id
                    JOIN scopes ON scopes.id = scope WHERE tier <> 'episodic'
                    AND coalesce(forgotten, 0) = 0 AND (agent = '' OR ?1 IS NULL OR agent = ?1)
                    AND (indexed OR {int(include_superseded)}) ORDER BY items.id""",  # noqa: S608
                (None if agent is None else to_utf8(agent),),
            )
        ]
        stored = self.items_by_row(rows)
        return [stored[row] for row in rows]

    # -- journal, positions --------------------------------------------------------------------

    def event(self, identity: str) -> JournalEvent | None:
        """Return a journal event by its id."""
        for (data,) in self._db.execute("SELECT data FROM events WHERE id = ?", (identity,)):
            return parse_event(data)
        return None

    def events_of_item(self, identity: str) -> list[JournalEvent]:
        """Return the events that touch an item's state, in order."""
        rows = self._db.execute(
            """SELECT data FROM touches JOIN events ON events.id = event WHERE item = ?
               ORDER BY stamp, id""",
            (to_utf8(identity),),
        )
        return [parse_event(data) for (data,) in rows]

    def credits(
        self, identity: str, agent: str, since: datetime, before: datetime
    ) -> list[JournalEvent]:
        """Return what an agent's runs credited an item with between two moments, in order."""
        rows = self._db.execute(
            """SELECT data FROM touches JOIN events ON events.id = event
               WHERE item = ? AND agent = ? AND kind = 'credit' AND stamp >= ? AND stamp < ?
               ORDER BY stamp, id""",
            (to_utf8(identity), to_utf8(agent), to_iso(since), to_iso(before)),
        )
        return [parse_event(data) for (data,) in rows]

    def count_since(self, row: int, scopes: Collection[int]) -> int:
        """Return how many items of these scopes were written after a row and can be found."""
        return self._count(
            """SELECT count(*) FROM items WHERE row > ? AND indexed
               AND scope IN (SELECT value FROM json_each(?))""",
            (row, json.dumps(list(scopes))),
        )

    def events_of_run(self, agent: str, run: str, kind: str) -> list[JournalEvent]:
        """Return a run's events of one kind, in order."""
        rows = self._db.execute(
            """SELECT data FROM events WHERE agent = ? AND run = ? AND kind = ?
               ORDER BY stamp, id""",
            (to_utf8(agent), to_utf8(run), kind),
        )
        return [parse_event(data) for (data,) in rows]

    def events_of_kind(self, kind: str, limit: int) -> list[JournalEvent]:
        """Return the newest events of a kind, newest first."""
        rows = self._db.execute(
            "SELECT data FROM events WHERE kind = ? ORDER BY stamp DESC, id DESC LIMIT ?",
            (kind, limit),
        )
        return [parse_event(data) for (data,) in rows]

    def events_since(self, kind: str, moment: datetime) -> list[JournalEvent]:
        """Return the events of a kind from a moment on, oldest first."""
        rows = self._db.execute(
            "SELECT data FROM events WHERE kind = ? AND stamp >= ? ORDER BY stamp, id",
            (kind, to_iso(moment)),
        )
        return [parse_event(data) for (data,) in rows]

    def state(self, identity: str) -> State:
        """Return an item's current state."""
        return read_state(self._db, identity)

    def build_id(self) -> str:
        """Return by what a build of the index is known from others; "" for the first one."""
        for (value,) in self._db.execute("SELECT value FROM meta WHERE key = 'built'"):
            return str(value)
        return ""

    def last_turn(self, agent: str, session: str) -> int:
        """Return the highest turn of a session; 0 when it has none."""
        return self._count(
            """SELECT coalesce(max(turn), 0) FROM items JOIN sessions ON sessions.id = session
               WHERE agent = ? AND name = ?""",
            (to_utf8(agent), to_utf8(session)),
        )

    def ids_of_keys(self, keys: Collection[str]) -> dict[str, str]:
        """Return those of these entry keys that are stored, with the entries' ids."""
        rows = self._db.execute(
            "SELECT key, id FROM items WHERE key IN (SELECT value FROM json_each(?))",
            (json.dumps(list(keys)),),
        )
        return {str(key): str(identity) for key, identity in rows}

    def cursors(self, extractor: str = "rules") -> dict[str, int]:
        """Return how far each episodic ledger file was consolidated, in bytes.

        A file that has become shorter than that was rewritten by somebody: it begins anew.
        """
        rows = self._db.execute(
            """SELECT cursors.path, iif(cursors.offset > files.offset, 0, cursors.offset)
               FROM cursors JOIN files ON files.path = cursors.path WHERE extractor = ?""",
            (extractor,),
        )
        return {str(path): int(at) for path, at in rows}

    def last_pass(self, extractor: str) -> int:
        """Return the number of an extractor's last consolidation; 0 before the first."""
        return self._count(
            "SELECT coalesce(max(pass), 0) FROM cursors WHERE extractor = ?", (extractor,)
        )

    def line_counts(self) -> dict[str, int]:
        """Return how many lines of each ledger file are in the index."""
        rows = self._db.execute("SELECT path, lines FROM files")
        return {str(path): int(count) for path, count in rows}

    def excluded_from_facts(self, entries: Collection[str]) -> set[str]:
        """Return those of these entries that are forgotten, or were made facts of by request."""
        rows = self._db.execute(
            """SELECT item FROM states JOIN json_each(?1) ON item = value WHERE forgotten
               UNION SELECT item FROM json_each(?1) JOIN touches ON item = value
               JOIN events ON events.id = event WHERE kind = 'promote' AND run IS NULL""",
            (json.dumps(list(entries)),),
        )
        return {str(row[0]) for row in rows}

    def existing_events(self, ids: Collection[str]) -> set[str]:
        """Return those of these ids that are journal events."""
        rows = self._db.execute(
            "SELECT id FROM events WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        return {str(row[0]) for row in rows}

    def offsets(self) -> dict[str, int]:
        """Return how far each ledger file is in the index, in bytes of whole lines."""
        rows = self._db.execute("SELECT path, offset FROM files")
        return {str(path): int(at) for path, at in rows}

    def counts(self) -> dict[str, int]:
        """Return the numbers that `status` shows."""
        one = self._count
        return {
            "entries": one("SELECT count(*) FROM items WHERE tier = 'episodic'"),
            "facts": one("SELECT count(*) FROM items WHERE tier <> 'episodic' AND indexed"),
            "sessions": one("SELECT count(*) FROM sessions"),
            "forgotten": one("SELECT count(*) FROM states WHERE forgotten"),
            "files": one("SELECT count(*) FROM files"),
            "bad_lines": one("SELECT count(*) FROM bad_lines"),
        }

    def bad_lines(self, limit: int = 50) -> list[tuple[str, int, str]]:
        """Return (file, line, reason) of lines that could not be read."""
        found: list[tuple[str, int, str]] = self._db.execute(
            """SELECT path, line, reason FROM bad_lines JOIN files ON files.id = file
               ORDER BY path, line LIMIT ?""",
            (limit,),
        ).fetchall()
        return found

    def notices(self, limit: int = 20) -> list[tuple[str, str, str]]:
        """Return (when, file, what) of the newest surprises in the ledgers."""
        found: list[tuple[str, str, str]] = self._db.execute(
            "SELECT at, path, what FROM notices ORDER BY at DESC LIMIT ?", (limit,)
        ).fetchall()
        return found

    def last_activity(self) -> list[tuple[str, str, str]]:
        """Return (agent, "stored" or "recalled", when) of each agent's newest run and recall."""
        stored = self._db.execute(
            """SELECT agent, 'stored', max(observed) FROM items
               JOIN sessions ON sessions.id = session GROUP BY agent"""
        ).fetchall()
        recalled = self._db.execute(
            "SELECT agent, 'recalled', max(stamp) FROM events WHERE kind = 'recall' GROUP BY agent"
        ).fetchall()
        return [*stored, *recalled]

    def _count(self, sql: str, values: tuple[Any, ...] = ()) -> int:
        for (number,) in self._db.execute(sql, values):
            return int(number)
        return 0


def _all_of(
    conditions: Mapping[str, datetime | str | float | None], *fixed: str
) -> tuple[str, list[str | float]]:
    """Return the conditions that have a value as SQL, and the values."""
    used = {sql: value for sql, value in conditions.items() if value is not None}
    return " AND ".join([*fixed, *used]) or "true", [*map(_bound, used.values())]


def _bound(value: datetime | str | float) -> str | float:
    """Return a value as the index has it."""
    if isinstance(value, datetime):
        return to_iso(value)
    return to_utf8(value) if isinstance(value, str) else value


def read_state(connection: Any, identity: str) -> State:
    """Return an item's folded state."""
    for row in connection.execute(
        """SELECT weight, promoted, forgotten, superseded_by, valid_to, reviewed, reverted
           FROM states WHERE item = ?""",
        (to_utf8(identity),),
    ):
        return _state(row)
    return State()


def _state(row: Sequence[Any]) -> State:
    weight, promoted, forgotten, by, until, reviewed, reverted = row
    return State(
        float(weight), bool(promoted), bool(forgotten), by, until, reviewed, bool(reverted)
    )


def parse_event(data: Any) -> JournalEvent:
    """Return the event that a row holds."""
    return decode_event(data)


def to_utf8(text: str) -> str:
    """Return text that SQLite takes: without the lone surrogates that JSON allows."""
    return text.encode("utf-8", "replace").decode("utf-8")
