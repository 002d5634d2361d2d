"""Pages: runs of about 1,000 tokens of one session and sender, for reading around a hit.

TierMem's immutable pages (section 2.1), computed on demand: a session's entries in turn order,
closed after the entry that reaches `PAGE_TOKENS`, so a long entry is never split and a page may
exceed its size by one entry.  A session only grows at its end, and forgotten entries still count,
so a closed page never changes.  Its id consists of agent, session, sender and first turn, and is
the same in a rebuilt index.

No page crosses a multiple of `BLOCK_TURNS`, so finding one reads at most one block, regardless of
the session's length; entries beyond the first `MAX_ENTRIES` of a block (from a ledger without
turns) are on no page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from memtier_plugin.storage.index.records import to_utf8

if TYPE_CHECKING:
    import apsw

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

    def session_pages(self, agent: str, session: str, scopes: Sequence[int]) -> Iterator[Page]:
        """Yield every page of a session that these scopes may see, by sender and turn."""
        for session_row, scope, turn in self._db.execute(
            """SELECT session, scope, turn / ?4 FROM items JOIN sessions ON sessions.id = session
               WHERE agent = ?1 AND name = ?2 AND tier = 'episodic'
                 AND scope IN (SELECT value FROM json_each(?3))
               GROUP BY scope, turn / ?4 ORDER BY scope, turn / ?4""",
            (to_utf8(agent), to_utf8(session), json.dumps(list(scopes)), BLOCK_TURNS),
        ).fetchall():
            yield from self._block(session_row, scope, turn)

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
