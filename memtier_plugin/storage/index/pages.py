"""Pages: runs of about 1,000 tokens of one session and sender, for reading around a hit.

TierMem's immutable pages (section 2.1), computed when they are wanted: a session's entries in the
order of their turns, closed after the entry that reaches `PAGE_TOKENS`, so that a long entry is
never split and a page may exceed its size by one entry.  A session only grows at its end, and what
is forgotten keeps its place in the count, so that a page once closed never changes; its id is made
of agent, session, sender and the turn it begins with, and is the same in a rebuilt index.

No page reaches over a turn that `BLOCK_TURNS` divides, so that finding one reads at most a block,
however long the session is; what comes after `MAX_ENTRIES` entries of one block (a ledger that
gives no turns) stands on no page.
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
MAX_ENTRIES: Final = 1024  # entries of one block that are looked at
_MARK: Final = "page:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page: whose it is, and the rows on it that can be found, in the order they were said.

    ``number`` is the turn that it begins with, and how many entries of that turn come before.
    ``tokens`` counts everything that was written on it, also what is not shown; it is ``open`` as
    long as a new entry may still come onto it.
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
        """What names it, in any index of the same ledgers."""
        return page_id(self.agent, self.session, self.sender, self.number)


def page_id(agent: str, session: str, sender: str, number: str) -> str:
    """Return the id of a page."""
    return _MARK + "/".join(quote(part, safe="") for part in (agent, session, sender, number))


class IndexPages:
    """Finds pages in one project's index, on one thread's connection; only visible scopes."""

    def __init__(self, connection: apsw.Connection) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection
        self._blocks: dict[tuple[int, int, int], list[Page]] = {}  # of this object's short life

    def pages_of(self, rows: Sequence[int], scopes: Sequence[int]) -> dict[int, Page]:
        """Return the page of each of these rows that is an entry of these scopes and on one."""
        found: dict[int, Page] = {}
        for row, session, scope, turn in self._db.execute(
            """SELECT row, session, scope, turn FROM items
               WHERE row IN (SELECT value FROM json_each(?1)) AND tier = 'episodic' AND indexed
                 AND scope IN (SELECT value FROM json_each(?2))""",
            (json.dumps(list(rows)), json.dumps(list(scopes))),
        ).fetchall():
            for page in self._block(session, scope, turn // BLOCK_TURNS):
                if row in page.rows:
                    found[row] = page
        return found

    def visible_rows(self, rows: Sequence[int], scopes: Sequence[int]) -> set[int]:
        """Return those of these rows that are entries of these scopes and can be found."""
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
        """Return a page by its id, or None where these scopes have none of the kind."""
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
        """Walk one block of a session, and close each page that is full."""
        [(agent, name, sender)] = self._db.execute(
            """SELECT sessions.agent, name, sender FROM sessions, scopes
               WHERE sessions.id = ? AND scopes.id = ?""",
            (session, scope),
        ).fetchall()
        last = self._db.execute(
            "SELECT max(turn) FROM items WHERE session = ?", (session,)
        ).fetchone()[0]
        rows: list[int] = []
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
                yield Page(agent=agent, session=name, sender=sender, number=number,
                           rows=tuple(rows), tokens=tokens, open=False)  # fmt: skip
                rows, number, tokens = [], "", 0
        if number:
            yield Page(agent=agent, session=name, sender=sender, number=number, rows=tuple(rows),
                       tokens=tokens, open=last // BLOCK_TURNS == block)  # fmt: skip
