"""Read what summaries and timelines are made of, and pages of the log around a hit."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import quote, unquote

from memtier_plugin.core.records import Source
from memtier_plugin.storage.index.postings import idf
from memtier_plugin.storage.index.records import from_blob, to_utf8
from memtier_plugin.text.tokenizer import normalise

if TYPE_CHECKING:
    import apsw


# -- Pages: runs of about 1,000 tokens of one session and sender, for reading around a hit
#
# TierMem's immutable pages (section 2.1), computed on demand: a session's entries in turn order,
# closed after the entry that reaches `PAGE_TOKENS`, so a long entry is never split and a page may
# exceed its size by one entry.  A session only grows at its end, and forgotten entries still count,
# so a closed page never changes.  Its id consists of agent, session, sender and first turn, and is
# the same in a rebuilt index.
#
# No page crosses a multiple of `BLOCK_TURNS`, so finding one reads at most one block, regardless of
# the session's length; entries beyond the first `MAX_ENTRIES` of a block (from a ledger without
# turns) are on no page.

PAGE_TOKENS: Final = 1000
BLOCK_TURNS: Final = 256  # turns
MAX_ENTRIES: Final = 1024  # entries read per block
_MARK: Final = "page:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page: its owner and its retrievable rows in conversation order.

    ``number`` is its first turn, plus the count of earlier entries of that turn, if any.
    ``tokens`` counts every entry on the page, hidden ones included; the page is ``open`` while new
    entries may still be added to it.
    """

    agent: str
    session: str
    sender: str
    number: str
    rows: tuple[int, ...]
    tokens: int
    open: bool

    @property
    def id(self) -> str:
        """The page's id, equal in every index of the same ledgers."""
        return page_id(self.agent, self.session, self.sender, self.number)


def page_id(agent: str, session: str, sender: str, number: str) -> str:
    """Build the id of a page."""
    return _MARK + "/".join(quote(part, safe="") for part in (agent, session, sender, number))


class SessionPages:
    """Finds pages in a project's index, within visible scopes, on one thread's connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection
        self._blocks: dict[
            tuple[int, int, int], list[Page]
        ] = {}  # cached for this object's short life

    def pages_of(self, rows: Sequence[int], scopes: Sequence[int]) -> dict[int, Page]:
        """Return the page of each row that is an entry of these scopes and on a page."""
        pages: dict[int, Page] = {}
        for row, session, scope, turn in self._db.execute(
            """SELECT row, session, scope, turn FROM items
               WHERE row IN (SELECT value FROM json_each(?1)) AND tier = 'episodic' AND indexed
                 AND scope IN (SELECT value FROM json_each(?2))""",
            (json.dumps(list(rows)), json.dumps(list(scopes))),
        ).fetchall():
            for page in self._block(session, scope, turn // BLOCK_TURNS):
                if row in page.rows:
                    pages[row] = page
        return pages

    def visible_rows(self, rows: Sequence[int], scopes: Sequence[int]) -> set[int]:
        """Return the rows that are retrievable entries of these scopes."""
        return {
            int(row)
            for (row,) in self._db.execute(
                """SELECT row FROM items
                   WHERE row IN (SELECT value FROM json_each(?1)) AND tier = 'episodic' AND indexed
                     AND scope IN (SELECT value FROM json_each(?2))""",
                (json.dumps(list(rows)), json.dumps(list(scopes))),
            )
        }

    def find_page(self, identity: str, scopes: Sequence[int]) -> Page | None:
        """Return the page of this id, or None if these scopes have no such page."""
        parts = [unquote(part) for part in identity.removeprefix(_MARK).split("/")]
        if not identity.startswith(_MARK) or len(parts) != 4:
            return None
        agent, session, sender, number = parts
        first = number.partition("+")[0]
        if not first.isdecimal() or len(first) > 18:
            return None
        for session_row, scope in self._db.execute(
            """SELECT sessions.id, scopes.id FROM sessions
               JOIN scopes ON scopes.agent = sessions.agent AND sender = ?3
               WHERE sessions.agent = ?1 AND name = ?2
                 AND scopes.id IN (SELECT value FROM json_each(?4))""",
            (to_utf8(agent), to_utf8(session), to_utf8(sender), json.dumps(list(scopes))),
        ).fetchall():
            for page in self._block(session_row, scope, int(first) // BLOCK_TURNS):
                if page.number == number:
                    return page
        return None

    def _block(self, session: int, scope: int, block: int) -> list[Page]:
        key = (session, scope, block)
        if key not in self._blocks:
            self._blocks[key] = [*self._split_block(*key)]
        return self._blocks[key]

    def _split_block(self, session: int, scope: int, block: int) -> Iterator[Page]:
        """Split one block of a session into pages, closing each page when it is full."""
        [(agent, name, sender)] = self._db.execute(
            """SELECT sessions.agent, name, sender FROM sessions, scopes
               WHERE sessions.id = ? AND scopes.id = ?""",
            (session, scope),
        ).fetchall()
        last = self._db.execute(
            "SELECT max(turn) FROM items WHERE session = ?", (session,)
        ).fetchone()[0]
        rows: list[int] = []
        owner = {"agent": agent, "session": name, "sender": sender}
        number, tokens, same = "", 0, 0
        before: int | None = None
        for row, turn, count, shown in self._db.execute(
            """SELECT row, turn, coalesce(CAST(data AS TEXT) ->> '$.tokens', 0), indexed FROM items
               WHERE session = ? AND turn >= ? AND turn < ? AND scope = ? AND tier = 'episodic'
               ORDER BY turn, id LIMIT ?""",
            (session, block * BLOCK_TURNS, (block + 1) * BLOCK_TURNS, scope, MAX_ENTRIES),
        ).fetchall():
            same = same + 1 if turn == before else 0
            before = turn
            if not number:
                number = f"{turn}+{same}" if same else f"{turn}"
            tokens += int(count)
            if shown:
                rows.append(int(row))
            if tokens >= PAGE_TOKENS:
                yield Page(**owner, number=number, rows=tuple(rows), tokens=tokens, open=False)
                rows, number, tokens = [], "", 0
        if number:
            is_last = last // BLOCK_TURNS == block
            yield Page(**owner, number=number, rows=tuple(rows), tokens=tokens, open=is_last)


# -- Read the sources of summaries and timelines: counted in the index, read in parts

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
        condition = "subject = ?2 AND agent = ?3 AND sender = ?4" if about else "true"
        agent, sender, subject = about or ("", "", "")
        rows = self._db.execute(
            f"""SELECT items.id, agent, sender, CAST(CAST(data AS TEXT) ->> 'subject' AS BLOB),
                      relation, CAST(CAST(data AS TEXT) ->> 'value' AS BLOB),
                      indexed, superseded_by IS NOT NULL,
                      coalesce(forgotten OR reverted OR reviewed IS 'rejected', 0)
               FROM facts JOIN items USING (row) JOIN scopes ON scopes.id = items.scope
               LEFT JOIN states ON item = items.id
               WHERE shelf = ?1 AND {condition} ORDER BY items.id""",  # noqa: S608
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
