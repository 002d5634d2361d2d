"""Read the sources of summaries and timelines: counted in the index, read in parts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from memtier_plugin.core.records import Source
from memtier_plugin.storage.index.bm25 import idf
from memtier_plugin.storage.index.records import from_blob, to_utf8
from memtier_plugin.text.normalise import normalise

if TYPE_CHECKING:
    import apsw

DAY_SECONDS: Final = 86_400
GroupBy = Literal["day", "month", "speaker"]
_PERSONS: Final = "role = 'user'"
_GROUPED_BY: Final[Mapping[GroupBy, tuple[str, str]]] = {
    "day": (f"CAST(observed / {DAY_SECONDS} AS INTEGER) - (observed < 0)", "TRUE"),
    "month": ("strftime('%Y-%m', observed, 'unixepoch')", "TRUE"),
    "speaker": ("coalesce(speaker, '')", _PERSONS),
}


class LineGroup(NamedTuple):
    """The lines of one agent and sender that one summary covers, and their extent."""

    agent: str
    sender: str
    name: str  # the session's name; for a day, the number of days since 1970
    lines: int
    last: float
    sessions: tuple[int, ...]


class ShelvedFact(NamedTuple):
    """The current state of an item on a shelf; not indexed once a quoted entry is withdrawn."""

    id: str
    agent: str
    sender: str
    subject: str
    relation: str
    value: str
    indexed: bool
    superseded: bool
    withdrawn: bool

    @property
    def in_place(self) -> bool:
        """True unless it is superseded or withdrawn, even if a quoted entry is."""
        return not (self.superseded or self.withdrawn)


class OverviewReader:
    """Reads of one project's index, on one thread's connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection

    # -- what there is to sum up ---------------------------------------------------------------

    def session_groups(self, least: int) -> list[LineGroup]:
        """Return the sessions with at least this many quotable lines, latest activity first."""
        rows = self._db.execute(
            """SELECT scopes.agent, sender, name, lines, last, found.session
               FROM (SELECT session, scope, count(*) AS lines, max(observed) AS last FROM items
                     WHERE session IS NOT NULL AND indexed AND quotable
                     GROUP BY session, scope HAVING lines >= ?) AS found
               JOIN scopes ON scopes.id = scope JOIN sessions ON sessions.id = found.session
               ORDER BY last DESC, scopes.agent, sender, name""",
            (least,),
        )
        return [
            LineGroup(agent, sender, name, lines, last, (session,))
            for agent, sender, name, lines, last, session in rows
        ]

    def session_group(self, agent: str, sender: str, session: str) -> LineGroup | None:
        """Return the quotable lines of one session; None if it has none."""
        rows = self._db.execute(
            """SELECT count(*), max(observed), sessions.id FROM sessions
               JOIN items ON items.session = sessions.id
               WHERE sessions.agent = ?1 AND name = ?3 AND indexed AND quotable AND scope =
                 (SELECT id FROM scopes WHERE agent = ?1 AND sender = ?2 AND shelf = '')
               GROUP BY sessions.id""",
            tuple(map(to_utf8, (agent, sender, session))),
        )
        for lines, last, number in rows:
            return LineGroup(agent, sender, session, lines, last, (number,))
        return None

    def line_groups(self, by: GroupBy, least: int) -> list[LineGroup]:
        """Return the groups with at least this many quotable lines, the latest first.

        A day is named by its number since 1970, a month as "2026-11", both in UTC; a user without a
        name is the speaker "", and no assistant is.
        """
        name, which = _GROUPED_BY[by]
        rows = self._db.execute(
            f"""SELECT agent, sender, name, lines, last, inside
                FROM (SELECT scope, {name} AS name, count(*) AS lines, max(observed) AS last,
                             json_group_array(DISTINCT session) AS inside
                      FROM items WHERE session IS NOT NULL AND indexed AND quotable AND {which}
                      GROUP BY scope, {name} HAVING lines >= ?)
                JOIN scopes ON scopes.id = scope ORDER BY last DESC, agent, sender, name""",  # noqa: S608
            (least,),
        )
        return [
            LineGroup(agent, sender, str(name), lines, last, tuple(json.loads(inside)))
            for agent, sender, name, lines, last, inside in rows
        ]

    def group_rows(
        self,
        group: LineGroup,
        limit: int,
        span: tuple[float, float] = (-1e300, 1e300),
        speaker: str | None = None,
    ) -> list[int]:
        """Return a group's newest rows, up to a limit, in conversation order.

        Args:
            span: when they were said, in seconds since 1970, the end excluded.
            speaker: only theirs, for a group of speakers.
        """
        start, end = span
        rows = self._db.execute(
            f"""SELECT row FROM items WHERE session IN (SELECT value FROM json_each(?))
                 AND observed >= ? AND observed < ? AND indexed AND quotable
                 AND (? OR coalesce(speaker, '') = ? AND {_PERSONS})
                 AND scope = (SELECT id FROM scopes WHERE agent = ? AND sender = ? AND shelf = '')
               ORDER BY observed DESC, (SELECT name FROM sessions WHERE id = session) DESC,
                 turn DESC, items.id DESC LIMIT ?""",  # noqa: S608
            (
                json.dumps(group.sessions),
                start,
                end,
                speaker is None,
                to_utf8(speaker or ""),
                to_utf8(group.agent),
                to_utf8(group.sender),
                limit,
            ),
        )
        return [int(row) for (row,) in rows][::-1]

    def word_rarity(self, agent: str, sender: str, words: Collection[str]) -> dict[str, float]:
        """Return the idf of each word among all lines of an agent and sender."""
        for scope, documents in self._db.execute(
            "SELECT id, entries FROM scopes WHERE agent = ? AND sender = ? AND shelf = ''",
            (to_utf8(agent), to_utf8(sender)),
        ).fetchall():
            rows = self._db.execute(
                """SELECT term, df FROM terms WHERE scope = ?
                   AND term IN (SELECT value FROM json_each(?))""",
                (scope, json.dumps(sorted(map(to_utf8, words)))),
            )
            return {str(term): idf(int(documents), int(df)) for term, df in rows}
        return {}

    # -- what there is already -----------------------------------------------------------------

    def shelved_facts(
        self, shelf: str, about: tuple[str, str, str] | None = None
    ) -> list[ShelvedFact]:
        """Return every fact ever put on a shelf, oldest first.

        Args:
            about: only those of this agent and sender about this subject.
        """
        own = "subject = ?2 AND agent = ?3 AND sender = ?4" if about else "true"
        agent, sender, subject = about or ("", "", "")
        rows = self._db.execute(
            f"""SELECT items.id, agent, sender, CAST(CAST(data AS TEXT) ->> 'subject' AS BLOB),
                      relation, CAST(CAST(data AS TEXT) ->> 'value' AS BLOB),
                      indexed, superseded_by IS NOT NULL,
                      coalesce(forgotten OR reverted OR reviewed IS 'rejected', 0)
               FROM facts JOIN items USING (row) JOIN scopes ON scopes.id = items.scope
               LEFT JOIN states ON item = items.id
               WHERE shelf = ?1 AND {own} ORDER BY items.id""",  # noqa: S608
            (shelf, *map(to_utf8, (normalise(subject)[0], agent, sender)))[: 4 if about else 1],
        )
        return [
            ShelvedFact._make((*row[:3], from_blob(row[3]), row[4], from_blob(row[5]), *row[6:]))
            for row in rows
        ]

    def shelf_rows(
        self,
        shelf: str,
        scopes: Sequence[int],
        limit: int,
        start: float = -1e300,
        end: float = 1e300,
    ) -> list[int]:
        """Return the newest rows on a shelf, in these scopes, observed within a time span."""
        rows = self._db.execute(
            """SELECT row FROM scopes JOIN items ON items.scope = scopes.id
               WHERE shelf = ? AND scopes.id IN (SELECT value FROM json_each(?)) AND indexed
                 AND observed BETWEEN ? AND ? ORDER BY observed DESC, items.id DESC LIMIT ?""",
            (shelf, json.dumps(list(scopes)), start, end, limit),
        )
        return [int(row) for (row,) in rows]

    def shelves_of(self, rows: Collection[int]) -> dict[int, str]:
        """Return the shelf of each row that is on one."""
        shelved = self._db.execute(
            """SELECT row, shelf FROM items JOIN scopes ON scopes.id = scope
               WHERE row IN (SELECT value FROM json_each(?))
                 AND tier <> 'episodic' AND shelf <> ''""",
            (json.dumps(list(rows)),),
        )
        return {int(row): str(shelf) for row, shelf in shelved}

    # -- what replaced what --------------------------------------------------------------------

    def changed_facts(self) -> list[int]:
        """Return the rows of shared facts whose subject and relation have had another value."""
        rows = self._db.execute(
            """WITH changed AS (SELECT DISTINCT subject, relation FROM states
                 JOIN facts ON facts.id = item JOIN items USING (row)
                 JOIN scopes ON scopes.id = scope
                 WHERE superseded_by IS NOT NULL AND agent = '' AND shelf = '')
               SELECT facts.row FROM changed JOIN facts USING (subject, relation)
               JOIN items USING (row) JOIN scopes ON scopes.id = scope
               WHERE agent = '' AND shelf = '' ORDER BY facts.id"""
        )
        return [int(row) for (row,) in rows]

    def remaining_sources(self, facts: Iterable[str]) -> Mapping[str, Sequence[Source]]:
        """Return each fact's sources that are not forgotten; facts without any are left out."""
        sources: dict[str, list[Source]] = {}
        for fact, agent, session, entry in self._db.execute(
            """SELECT fact, sources.agent, sources.session, entry FROM sources
               LEFT JOIN states ON item = entry
               WHERE fact IN (SELECT value FROM json_each(?)) AND NOT coalesce(forgotten, 0)
               GROUP BY fact, entry ORDER BY fact, min(place), entry""",
            (json.dumps(list(map(to_utf8, facts))),),
        ):
            sources.setdefault(str(fact), []).append(
                Source(agent=str(agent), session=str(session), entry=str(entry))
            )
        return sources
