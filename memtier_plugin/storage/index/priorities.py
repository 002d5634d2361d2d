"""Read importance, headers and tiers from the index, within one agent's and sender's entries."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memtier_plugin.core.records import JournalEvent
from memtier_plugin.storage.index.priority_writer import USES
from memtier_plugin.storage.index.records import (
    parse_event,
    settle_events,
    to_utf8,
    to_utf8_all,
)

if TYPE_CHECKING:
    import apsw

_SESSIONS: Final = 500  # the newest of an agent, among which the latest are looked for


class ScoredEntry(NamedTuple):
    """An entry with what its priority rests on; ``tier`` is 3 where it has no pointer."""

    id: str
    row: int
    observed: float
    importance: int
    tier: int = 3
    alignment: float = 0.0
    uses: int = 0
    used: str | None = None


class UnreadRecall(NamedTuple):
    """A journalled recall whose uses were not counted yet, and its line."""

    path: str
    line: int
    event: JournalEvent


class PriorityReader:
    """Queries for the priorities and tiers of one project."""

    def __init__(self, connection: apsw.Connection) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection

    def audiences(self) -> list[tuple[str, str]]:
        """Return every agent and sender that has entries."""
        rows = self._db.execute(
            "SELECT agent, sender FROM scopes WHERE agent <> '' AND shelf = '' ORDER BY 1, 2"
        )
        return [(str(agent), str(sender)) for agent, sender in rows]

    def unrated(self, limit: int) -> dict[tuple[str, str], list[int]]:
        """Return rows of a user's or the assistant's words without an importance, newest first.

        Confidences and what rests on external text are left out.
        """
        rows = self._db.execute(
            """SELECT agent, sender, row FROM (
                 SELECT row, scope FROM items
                 WHERE tier = 'episodic' AND indexed AND quotable
                   AND NOT EXISTS (SELECT 1 FROM importance WHERE item = items.id)
                 ORDER BY row DESC LIMIT ?)
               JOIN scopes ON scopes.id = scope ORDER BY row DESC""",
            (limit,),
        )
        grouped: dict[tuple[str, str], list[int]] = {}
        for agent, sender, row in rows:
            grouped.setdefault((str(agent), str(sender)), []).append(int(row))
        return grouped

    def relations_of(self, rows: Sequence[int]) -> dict[int, set[str]]:
        """Return the (normalised) relations of the current facts that rest on these entries."""
        relations: dict[int, set[str]] = {}
        for row, relation in self._db.execute(
            """SELECT entries.row, facts.relation FROM items AS entries
               JOIN sources ON sources.entry = entries.id
               JOIN facts ON facts.id = sources.fact
               JOIN items AS stated ON stated.row = facts.row AND stated.indexed
               WHERE entries.row IN (SELECT value FROM json_each(?))""",
            (json.dumps(list(rows)),),
        ):
            relations.setdefault(int(row), set()).add(str(relation))
        return relations

    def active(self, agent: str, sender: str) -> list[ScoredEntry]:
        """Return the entries in the cache and the buffer, by id."""
        rows = self._db.execute(
            """SELECT id, row, observed, score, headers.tier, alignment, uses, used FROM headers
               JOIN items ON items.id = headers.item JOIN importance ON importance.item = items.id
               WHERE agent = ? AND sender = ? AND headers.tier < 3 AND indexed ORDER BY id""",
            (to_utf8(agent), to_utf8(sender)),
        )
        return [ScoredEntry(*row) for row in rows]

    def scored(self, ids: Collection[str], agent: str, sender: str) -> list[ScoredEntry]:
        """Return those of these entries of an agent and sender that were rated, by id."""
        rows = self._db.execute(
            """SELECT items.id, row, observed, score, coalesce(headers.tier, 3),
                      coalesce(alignment, 0.0), coalesce(uses, 0), used
               FROM items JOIN importance ON importance.item = items.id
               JOIN scopes ON scopes.id = scope LEFT JOIN headers ON headers.item = items.id
               WHERE items.id IN (SELECT value FROM json_each(?)) AND indexed
                 AND scopes.agent = ? AND scopes.sender = ? ORDER BY items.id""",
            (json.dumps(to_utf8_all(ids)), to_utf8(agent), to_utf8(sender)),
        )
        return [ScoredEntry(*row) for row in rows]

    def recent_rows(self, scopes: Sequence[int], sessions: int, limit: int) -> list[int]:
        """Return the newest rows of the latest sessions of these scopes."""
        only = json.dumps(list(scopes))
        rows = self._db.execute(
            f"""SELECT row FROM items WHERE session IN (
                  SELECT id FROM (
                    SELECT id, (SELECT observed FROM items WHERE session = sessions.id AND indexed
                                  AND scope IN (SELECT value FROM json_each(?1))
                                ORDER BY observed DESC LIMIT 1) AS last
                    FROM sessions WHERE agent IN (
                      SELECT agent FROM scopes WHERE id IN (SELECT value FROM json_each(?1)))
                    ORDER BY id DESC LIMIT {_SESSIONS})
                  WHERE last IS NOT NULL ORDER BY last DESC, id DESC LIMIT ?2)
                AND indexed AND scope IN (SELECT value FROM json_each(?1))
                ORDER BY observed DESC, turn DESC, id DESC LIMIT ?3""",  # noqa: S608
            (only, sessions, limit),
        )
        return [int(row) for (row,) in rows]

    def tier_rows(self, scopes: Sequence[int], tier: int) -> list[int]:
        """Return the rows of these scopes that a pointer puts into a tier."""
        rows = self._db.execute(
            """SELECT row FROM headers JOIN items ON items.id = item
               JOIN scopes ON scopes.id = scope
               WHERE (headers.agent, headers.sender) IN (
                   SELECT agent, sender FROM scopes
                   WHERE id IN (SELECT value FROM json_each(?1)))
                 AND headers.tier = ?2 AND indexed
                 AND scope IN (SELECT value FROM json_each(?1)) ORDER BY row""",
            (json.dumps(list(scopes)), tier),
        )
        return [int(row) for (row,) in rows]

    def last_number(self, agent: str) -> int:
        """Return the number of an agent's last pass that wrote a header; 0 before the first."""
        [(number,)] = self._db.execute(
            "SELECT coalesce(max(number), 0) FROM headers WHERE agent = ?", (to_utf8(agent),)
        )
        return int(number)

    def unread_recalls(self, agent: str, limit: int) -> list[UnreadRecall]:
        """Return an agent's recalls whose uses were not counted, in the order of their lines."""
        rows = self._db.execute(
            """SELECT files.path, line, data FROM events JOIN files ON files.id = file
               LEFT JOIN cursors ON cursors.path = files.path AND extractor = ?
               WHERE kind = 'recall' AND agent = ? AND line > coalesce(cursors.offset, 0)
               ORDER BY files.path, line LIMIT ?""",
            (USES, to_utf8(agent), limit),
        ).fetchall()
        events = settle_events(self._db, [parse_event(data) for _, _, data in rows])
        return [
            UnreadRecall(str(path), int(line), event)
            for (path, line, _), event in zip(rows, events, strict=True)
        ]

    def counts(self) -> Mapping[str, int]:
        """Return how many entries are rated, and how many each active tier points at."""
        [(rated,)] = self._db.execute(
            "SELECT count(*) FROM importance JOIN items ON items.id = item WHERE indexed"
        )
        tiers = dict(
            self._db.execute(
                """SELECT headers.tier, count(*) FROM headers JOIN items ON items.id = item
                   WHERE indexed GROUP BY 1"""
            )
        )
        return {"rated": int(rated), "cache": tiers.get(1, 0), "buffer": tiers.get(2, 0)}
