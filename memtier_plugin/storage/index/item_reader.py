"""Read entries and facts with their current state, and the sources of facts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import Source
from memtier_plugin.storage.index.items import row_number
from memtier_plugin.storage.index.records import (
    RecordReader,
    Stored,
    from_blob,
    join_conditions,
    read_states,
    to_utf8,
    to_utf8_all,
)
from memtier_plugin.storage.state import State

_VECTORS: Final = """SELECT count(*) FROM vectors JOIN items ON row = item
    WHERE id IN (SELECT value FROM json_each(?))"""
_NGRAMS: Final = """SELECT count(*) FROM grams WHERE rowid IN
    (SELECT row FROM items WHERE id IN (SELECT value FROM json_each(?)))"""
_ID_CHARACTERS: Final = 64  # compared at the end of an id
_STANDING: Final[Mapping[Standing, str]] = {
    "current": "indexed",
    "past": "NOT indexed",
    "waiting": "NOT retrievable AND reviewed IS NULL AND NOT coalesce(reverted, 0)"
    " AND NOT coalesce(forgotten, 0) AND superseded_by IS NULL",
    "reverted": "reverted AND NOT forgotten",
    "remembered": "NOT coalesce(forgotten, 0)",
}
# current: retrieved by recalls.  past: superseded, forgotten, reverted or still proposed.
# waiting: proposed and not yet decided on.  reverted: from a consolidation that was rolled back.
# remembered: all except forgotten facts.
Standing = Literal["current", "past", "waiting", "reverted", "remembered"]


class Confirmation(NamedTuple):
    """A source that a later promotion added to a fact, with its event and run, if any."""

    source: Source
    event: str
    run: str | None


class ListedItem(NamedTuple):
    """An item and its owner; ``agent`` and ``sender`` are "" for a shared fact."""

    id: str
    tier: str
    agent: str
    sender: str
    text: str


class SessionSpan(NamedTuple):
    """A session with how many entries it has, and when the first and the last were said."""

    agent: str
    session: str
    entries: int
    first: datetime
    last: datetime


class ItemReader(RecordReader):
    """The entries and facts of one project's index, hidden ones included."""

    def items(self, ids: Iterable[str]) -> dict[str, Stored]:
        """Return the items of these ids that are in the index, oldest first."""
        inside = "items.id IN (SELECT value FROM json_each(?))"
        values = json.dumps(to_utf8_all(ids))
        return {item.item.id: item for item in self._items(inside, values).values()}

    def facts(
        self,
        *,
        run: str | None = None,
        subject: str | None = None,
        relation: str | None = None,
        value: str | None = None,
        standing: Standing | None = None,
        audience: tuple[str, str] | None = None,
        readable_by: str | None = None,
        written_since: datetime | None = None,
        written_until: datetime | None = None,
        valid_since: float | None = None,
        valid_until: float | None = None,
    ) -> list[Stored]:
        """Return the facts that meet every condition, oldest first.

        Args:
            run: the consolidation that recorded them.
            subject: normalised, like ``relation`` and ``value``.
            audience: as `Fact.audience` has it; summaries and timelines are left out.
            readable_by: leave out facts private to other agents.
            written_since: inclusive, like all time limits.
            valid_since: bound on the start of validity, in seconds since 1970.
        """
        agent, sender = audience or (None, None)
        condition, values = join_conditions(
            {
                "items.data ->> 'run' = ?": run,
                "subject = ?": subject,
                "relation = ?": relation,
                "value = ?": value,
                "agent = ?": agent,
                "sender = ?": sender,
                "agent IN ('', ?)": readable_by,
                "items.data ->> 'timestamp' >= ?": written_since,
                "items.data ->> 'timestamp' <= ?": written_until,
                "observed >= ?": valid_since,
                "observed <= ?": valid_until,
            },
            _STANDING[standing] if standing else "true",
            "shelf = ''" if audience else "true",
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
        stored = self.items_by_row(rows) if rows else {}
        return [stored[row] for row in rows]

    def entries(
        self,
        *,
        agent: str | None = None,
        sender: str | None = None,
        session: str | None = None,
        run: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[str]:
        """Return the ids of the entries that meet every condition, oldest first.

        Args:
            since: bound on the observation time, in seconds since 1970; inclusive, like ``until``.
        """
        condition, values = join_conditions(
            {
                "scopes.agent = ?": agent,
                "sender = ?": sender,
                "name = ?": session,
                "items.data ->> 'run_id' = ?": run,
                "observed >= ?": since,
                "observed <= ?": until,
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

    def people(self) -> dict[str, tuple[int, int]]:
        """Return every sender with the number of their lines and of their own facts.

        The sender "" is the user where none is named.
        """
        rows = self._db.execute(
            """SELECT CASE agent WHEN '' THEN substr(sender, 2) ELSE sender END AS person,
                 sum(CASE agent WHEN '' THEN 0 ELSE entries END),
                 sum(CASE agent WHEN '' THEN entries ELSE 0 END)
               FROM scopes WHERE shelf = '' AND (agent <> '' OR sender <> '')
               GROUP BY person HAVING sum(entries) > 0 ORDER BY person"""
        )
        return {str(person): (int(lines), int(facts)) for person, lines, facts in rows}

    def list_items(self, ids: Collection[str]) -> Iterator[ListedItem]:
        """Yield these items with their texts."""
        rows: Any = self._db.execute(
            """SELECT items.id, tier, agent, sender,
                 CAST(coalesce(data ->> 'content', data ->> 'text', '') AS BLOB)
               FROM items JOIN scopes ON scopes.id = scope
               WHERE items.id IN (SELECT value FROM json_each(?)) ORDER BY items.id""",
            (json.dumps([to_utf8(identity) for identity in ids]),),
        )
        for identity, tier, agent, sender, text in rows:
            yield ListedItem(identity, tier, agent, sender, from_blob(text))

    def ids_in_session(self, agent: str, session: str) -> list[str]:
        """Return the ids of an agent's entries of one session, in order."""
        rows = self._db.execute(
            """SELECT items.id FROM items JOIN sessions ON sessions.id = session
               WHERE agent = ? AND name = ? ORDER BY observed, turn, items.id""",
            (to_utf8(agent), to_utf8(session)),
        )
        return [str(row[0]) for row in rows]

    def user_entries(self, session: int, most: int) -> list[Stored]:
        """Return the first retrievable user entries of a session, ordered by id."""
        rows = [
            int(row)
            for (row,) in self._db.execute(
                """SELECT row FROM (SELECT row, id FROM items
                     WHERE session = ? AND indexed AND role = 'user' AND tier = 'episodic'
                     ORDER BY observed, turn, id LIMIT ?) ORDER BY id""",
                (session, most),
            )
        ]
        stored = self.items_by_row(rows)
        return [stored[row] for row in rows]

    def all_sessions(self) -> dict[str, list[int]]:
        """Return the sessions of each agent, ordered by name."""
        sessions: dict[str, list[int]] = {}
        for number, agent in self._db.execute(
            "SELECT id, agent FROM sessions ORDER BY agent, name"
        ):
            sessions.setdefault(str(agent), []).append(int(number))
        return sessions

    def session_spans(self, agent: str | None = None) -> list[SessionSpan]:
        """Return every session, of one agent or of all, with what was said last first."""
        condition, values = join_conditions({"sessions.agent = ?": agent}, "tier = 'episodic'")
        rows = self._db.execute(
            f"""SELECT sessions.agent, name, count(*), min(observed), max(observed) FROM sessions
                JOIN items ON session = sessions.id LEFT JOIN states ON item = items.id
                WHERE {condition} AND NOT coalesce(forgotten, 0)
                GROUP BY sessions.id ORDER BY max(observed) DESC, sessions.id DESC""",  # noqa: S608
            values,
        )
        return [
            SessionSpan(
                str(owner),
                str(name),
                int(entries),
                datetime.fromtimestamp(first, UTC),
                datetime.fromtimestamp(last, UTC),
            )
            for owner, name, entries, first, last in rows
        ]

    def newest_ids(
        self, limit: int, *, tier: str | None = None, forgotten: bool = False
    ) -> list[str]:
        """Return the newest items of a tier, or of all, that are forgotten or are not."""
        condition, values = join_conditions(
            {"tier = ?": tier, "coalesce(forgotten, 0) = ?": int(forgotten)}, "true"
        )
        rows = self._db.execute(
            f"""SELECT id FROM items LEFT JOIN states ON item = id WHERE {condition}
                ORDER BY id DESC LIMIT ?""",  # noqa: S608
            (*values, limit),
        )
        return [str(row[0]) for row in rows]

    def ids_ending(self, end: str, limit: int, *, forgotten: bool = False) -> list[str]:
        """Return ids that end in these characters, of items that are forgotten or are not."""
        end = to_utf8(end)[-_ID_CHARACTERS:]
        rows = self._db.execute(
            """SELECT id FROM items LEFT JOIN states ON item = id
               WHERE substr(id, -?) = ? AND coalesce(forgotten, 0) = ? LIMIT ?""",
            (len(end), end, forgotten, limit),
        )
        return [str(row[0]) for row in rows]

    def state(self, identity: str) -> State:
        """Return an item's current state."""
        return self.states([identity])[identity]

    def states(self, ids: Collection[str]) -> dict[str, State]:
        """Return the current state of each of these items."""
        return read_states(self._db, ids)

    def sources(self, fact: str) -> list[Source]:
        """Return a fact's sources, its own first, then those of later promotions."""
        rows = self._db.execute(
            """SELECT sources.agent, sources.session, entry, path, line FROM sources
               LEFT JOIN items ON items.id = entry LEFT JOIN files ON files.id = file
               WHERE fact = ? GROUP BY entry ORDER BY min(place), entry""",
            (fact,),
        )
        return [Source(agent=a, session=s, entry=e, file=f, line=n) for a, s, e, f, n in rows]

    def confirmations(self, fact: str) -> list[Confirmation]:
        """Return the sources that later promotions added to a fact, in promotion order."""
        rows = self._db.execute(
            """SELECT sources.agent, session, entry, events.id, run FROM sources
               JOIN events ON events.id = via WHERE fact = ? ORDER BY stamp, events.id, entry""",
            (to_utf8(fact),),
        )
        return [Confirmation(Source(agent=a, session=s, entry=e), i, r) for a, s, e, i, r in rows]

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

    def facts_citing(self, items: Collection[str]) -> list[str]:
        """Return the facts that have any of these items among their sources."""
        rows = self._db.execute(
            """SELECT DISTINCT fact FROM sources
               WHERE entry IN (SELECT value FROM json_each(?)) ORDER BY fact""",
            (json.dumps([to_utf8(item) for item in items]),),
        )
        return [str(row[0]) for row in rows]

    def excluded_from_facts(self, entries: Collection[str]) -> set[str]:
        """Return the entries that are forgotten, private, or were promoted on request."""
        rows = self._db.execute(
            """SELECT item FROM states JOIN json_each(?1) ON item = value
               WHERE forgotten OR private
               UNION SELECT item FROM json_each(?1) JOIN touches ON item = value
               JOIN events ON events.id = event WHERE kind = 'promote' AND run IS NULL""",
            (json.dumps(list(entries)),),
        )
        return {str(row[0]) for row in rows}

    def evidence_ids(self, rows: Collection[int]) -> dict[int, list[str]]:
        """Return the evidence of each row: the entry itself, or the sources of a fact."""
        evidence: dict[int, list[str]] = {}
        for row, entry in self._db.execute(
            """SELECT row, coalesce(entry, id) FROM items LEFT JOIN sources ON fact = id
               WHERE row IN (SELECT value FROM json_each(?)) ORDER BY row, place, entry""",
            (json.dumps(list(rows)),),
        ):
            evidence.setdefault(int(row), []).append(str(entry))
        return evidence

    def superseded_by(self, facts: Collection[str]) -> list[str]:
        """Return the items that these facts supersede now."""
        rows = self._db.execute(
            """SELECT item FROM states
               WHERE superseded_by IN (SELECT value FROM json_each(?)) ORDER BY item""",
            (json.dumps([to_utf8(fact) for fact in facts]),),
        )
        return [str(row[0]) for row in rows]

    def superseded_entries(self, entries: Collection[str]) -> list[tuple[str, str]]:
        """Return pairs of these entries: one whose fact was superseded, and one that it is by."""
        rows = self._db.execute(
            """SELECT DISTINCT old.entry, new.entry FROM json_each(?1) AS wanted
               CROSS JOIN sources AS old ON old.entry = wanted.value
               JOIN states ON item = old.fact AND superseded_by IS NOT NULL AND NOT forgotten
               JOIN sources AS new ON new.fact = superseded_by
               WHERE new.entry != old.entry
                 AND new.entry IN (SELECT value FROM json_each(?1))""",
            (json.dumps([to_utf8(entry) for entry in entries]),),
        )
        return [(str(old), str(new)) for old, new in rows]

    def replacement_facts(self, about: Collection[Sequence[str]]) -> set[str]:
        """Return the facts of these (normalised) subjects and relations that replaced an older one.

        Forgotten facts do not count: their former existence must not be revealed.
        """
        rows = self._db.execute(
            """SELECT DISTINCT superseded_by FROM json_each(?) AS wanted
               CROSS JOIN facts ON subject = wanted.value ->> 0 AND relation = wanted.value ->> 1
               JOIN states ON item = facts.id WHERE superseded_by IS NOT NULL AND NOT forgotten""",
            (json.dumps([[to_utf8(part) for part in pair] for pair in about]),),
        )
        return {str(row[0]) for row in rows}

    def contested_facts(self, relations: Collection[str]) -> list[Stored]:
        """Return the current facts of these relations of which a subject has several values.

        Subjects, relations and values are compared normalised, within one audience.
        """
        rows = [
            int(row)
            for (row,) in self._db.execute(
                f"""WITH held AS (
                      SELECT items.row AS row, scope, subject, relation, value
                      FROM facts CROSS JOIN items ON items.row = facts.row
                      WHERE {_STANDING["current"]}
                        AND relation IN (SELECT value FROM json_each(?)))
                    SELECT row FROM held JOIN (
                      SELECT scope, subject, relation FROM held
                      GROUP BY scope, subject, relation HAVING count(DISTINCT value) > 1)
                    USING (scope, subject, relation)""",  # noqa: S608
                (json.dumps(list(relations)),),
            )
        ]
        stored = self.items_by_row(rows) if rows else {}
        return [stored[row] for row in sorted(rows)]

    def subjects_like(self, part: str, limit: int) -> list[str]:
        """Return the (normalised) subjects that contain a text, those with most facts first."""
        rows = self._db.execute(
            """SELECT subject FROM facts WHERE instr(subject, ?) GROUP BY subject
               ORDER BY count(*) DESC, subject LIMIT ?""",
            (to_utf8(part), limit),
        )
        return [str(row[0]) for row in rows]

    def ids_of_keys(self, keys: Collection[str]) -> dict[str, str]:
        """Return the ids of the entries that exist, by key."""
        rows = self._db.execute(
            "SELECT key, id FROM items WHERE key IN (SELECT value FROM json_each(?))",
            (json.dumps(list(keys)),),
        )
        return {str(key): str(identity) for key, identity in rows}

    def last_turn(self, agent: str, session: str) -> int:
        """Return the highest turn of a session; 0 when it has none."""
        return self._count(
            """SELECT coalesce(max(turn), 0) FROM items JOIN sessions ON sessions.id = session
               WHERE agent = ? AND name = ?""",
            (to_utf8(agent), to_utf8(session)),
        )

    def last_stored_turn(self, agent: str, session: str) -> int:
        """Return the same of the entries that do not wait for the server of a shared ledger."""
        return self._count(
            """SELECT coalesce(max(turn), 0) FROM items JOIN sessions ON sessions.id = session
               JOIN files ON files.id = file WHERE agent = ? AND name = ?
               AND path NOT LIKE '%-spool.jsonl'""",
            (to_utf8(agent), to_utf8(session)),
        )

    def count_since(self, event: str, scopes: Collection[int]) -> int:
        """Count the retrievable items of these scopes written after a journal event."""
        return self._count(
            """SELECT count(*) FROM items WHERE row > ? AND indexed
               AND scope IN (SELECT value FROM json_each(?))""",
            (row_number(event), json.dumps(list(scopes))),
        )

    def count_entries(
        self, since: datetime, until: datetime, *, written: bool = False
    ) -> dict[str, int]:
        """Count the entries of each agent said, or written, after ``since`` and up to ``until``."""
        when = "data ->> 'timestamp'" if written else "observed"
        limits = [to_iso(moment) if written else moment.timestamp() for moment in (since, until)]
        rows = self._db.execute(
            f"""SELECT agent, count(*) FROM items JOIN scopes ON scopes.id = scope
                WHERE tier = 'episodic' AND {when} > ? AND {when} <= ?
                GROUP BY agent ORDER BY agent""",  # noqa: S608
            limits,
        )
        return {str(agent): int(count) for agent, count in rows}

    def said_times(self) -> dict[str, datetime]:
        """Return when each fact was said: when the last of the entries that it rests on was."""
        rows = self._db.execute(
            """SELECT fact, max(observed) FROM sources JOIN items ON items.id = entry
               GROUP BY fact"""
        )
        return {str(fact): datetime.fromtimestamp(seconds, UTC) for fact, seconds in rows}

    def count_sessions(self, ids: Collection[str]) -> int:
        """Count the sessions that contain these entries."""
        return self._count(
            """SELECT count(DISTINCT session) FROM items
               WHERE id IN (SELECT value FROM json_each(?))""",
            (json.dumps([to_utf8(identity) for identity in ids]),),
        )

    def derived_counts(self, ids: Collection[str]) -> dict[str, int]:
        """Count the vectors and n-gram rows that the index has of these items."""
        values = (json.dumps([to_utf8(identity) for identity in ids]),)
        return {
            "vectors": self._count(_VECTORS, values),
            "ngrams": self._count(_NGRAMS, values),
        }
