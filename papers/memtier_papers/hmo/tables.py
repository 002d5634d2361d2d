"""The index tables of importance and tiers, built from events and read per audience.

The result does not depend on the order in which lines are read: an entry's first rating and its
header from the last pass win.  Ties are ordered by (timestamp, id); passes are numbered because the
clock may be set back.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from memtier_papers.hmo.events import ImportanceEvent, PrioritiseEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.hookspecs import IndexTables
from memtier_plugin.core.records import JournalEvent, decode_event
from memtier_plugin.storage.index.records import (
    settle_events,
    to_utf8,
    to_utf8_all,
)

USES: Final = "uses"  # the cursors in journals up to which uses were counted
_SESSIONS: Final = 500  # newest sessions of an agent that are searched for the latest


def _create(connection: Any) -> None:
    for statement in (
        """CREATE TABLE IF NOT EXISTS importance(
            item TEXT PRIMARY KEY, score INTEGER NOT NULL, stamp TEXT NOT NULL,
            event TEXT NOT NULL) WITHOUT ROWID""",
        """CREATE TABLE IF NOT EXISTS headers(
            item TEXT PRIMARY KEY, agent TEXT NOT NULL, sender TEXT NOT NULL,
            tier INTEGER NOT NULL, alignment REAL NOT NULL, uses INTEGER NOT NULL, used TEXT,
            number INTEGER NOT NULL, stamp TEXT NOT NULL, event TEXT NOT NULL) WITHOUT ROWID""",
        "CREATE INDEX IF NOT EXISTS headers_tier ON headers(agent, sender, tier)",
    ):
        connection.execute(statement)


def _clear(connection: Any) -> None:
    connection.execute("DELETE FROM importance")
    connection.execute("DELETE FROM headers")
    connection.execute("DELETE FROM cursors WHERE extractor = ?", (USES,))


def _add(connection: Any, event: JournalEvent) -> None:
    if event.kind == ImportanceEvent.KIND:
        _add_importance(connection, event)
    else:
        _add_headers(connection, event)


def _add_importance(connection: Any, event: JournalEvent) -> None:
    scores = ImportanceEvent.of(event).scores
    stamp, identity = to_iso(event.timestamp), to_utf8(event.id)
    connection.executemany(
        """INSERT INTO importance VALUES(?, ?, ?, ?) ON CONFLICT(item) DO UPDATE
           SET score = excluded.score, stamp = excluded.stamp, event = excluded.event
           WHERE (excluded.stamp, excluded.event) < (stamp, event)""",
        [
            (item, score, stamp, identity)
            for item, score in zip(to_utf8_all(scores), scores.values(), strict=True)
        ],
    )


def _add_headers(connection: Any, event: JournalEvent) -> None:
    change = PrioritiseEvent.of(event)
    stamp, identity = to_iso(event.timestamp), to_utf8(event.id)
    agent, sender = to_utf8_all([event.agent_id, change.sender])
    connection.executemany(
        """INSERT INTO headers VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(item) DO UPDATE
           SET agent = excluded.agent, sender = excluded.sender, tier = excluded.tier,
             alignment = excluded.alignment, uses = excluded.uses, used = excluded.used,
             number = excluded.number, stamp = excluded.stamp, event = excluded.event
           WHERE (excluded.number, excluded.stamp, excluded.event) > (number, stamp, event)""",
        [
            (
                to_utf8(header.item),
                agent,
                sender,
                header.tier,
                header.alignment,
                header.uses,
                header.used,
                change.number,
                stamp,
                identity,
            )
            for header in change.headers
        ],
    )
    # Journals only grow, so the furthest line wins, whatever the clock said.
    connection.executemany(
        """INSERT INTO cursors VALUES(?, ?, ?, 0, ?) ON CONFLICT(extractor, path) DO UPDATE
           SET offset = excluded.offset, stamp = excluded.stamp
           WHERE excluded.offset > cursors.offset""",
        [(USES, to_utf8(path), line, stamp) for path, line in (change.cursors or {}).items()],
    )


TABLES: Final = IndexTables(
    name="hmo-1",
    kinds=frozenset({ImportanceEvent.KIND, PrioritiseEvent.KIND}),
    create=_create,
    clear=_clear,
    add=_add,
)


# -- reading ---------------------------------------------------------------------------------------


class ScoredEntry(NamedTuple):
    """An entry with the inputs of its priority; ``tier`` is 3 if it has no pointer."""

    id: str
    row: int
    observed: float
    importance: int
    tier: int = 3
    alignment: float = 0.0
    uses: int = 0
    used: str | None = None


class UnreadRecall(NamedTuple):
    """A journalled recall whose uses were not counted yet, with its line number."""

    path: str
    line: int
    event: JournalEvent


class PriorityReader:
    """Queries for the priorities and tiers of one project."""

    def __init__(self, connection: Any) -> None:
        self._index = connection

    def audiences(self) -> list[tuple[str, str]]:
        """Return every agent and sender with entries."""
        rows = self._index.execute(
            "SELECT agent, sender FROM scopes WHERE agent <> '' AND shelf = '' ORDER BY 1, 2"
        )
        return [(str(agent), str(sender)) for agent, sender in rows]

    def unrated(self, limit: int) -> dict[tuple[str, str], list[int]]:
        """Return unrated rows of a user's or the assistant's words, newest first.

        Confidences and text resting on external sources are excluded.
        """
        rows = self._index.execute(
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
        for row, relation in self._index.execute(
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
        rows = self._index.execute(
            """SELECT id, row, observed, score, headers.tier, alignment, uses, used FROM headers
               JOIN items ON items.id = headers.item JOIN importance ON importance.item = items.id
               WHERE agent = ? AND sender = ? AND headers.tier < 3 AND indexed ORDER BY id""",
            (to_utf8(agent), to_utf8(sender)),
        )
        return [ScoredEntry(*row) for row in rows]

    def scored(self, ids: Collection[str], agent: str, sender: str) -> list[ScoredEntry]:
        """Return the rated ones among these entries of an agent and sender, by id."""
        rows = self._index.execute(
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
        rows = self._index.execute(
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
        """Return the rows of these scopes that pointers assign to a tier."""
        rows = self._index.execute(
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
        """Return the number of an agent's last pass that wrote a header; 0 if none did."""
        [(number,)] = self._index.execute(
            "SELECT coalesce(max(number), 0) FROM headers WHERE agent = ?", (to_utf8(agent),)
        )
        return int(number)

    def unread_recalls(self, agent: str, limit: int) -> list[UnreadRecall]:
        """Return an agent's recalls whose uses were not counted, in line order."""
        rows = self._index.execute(
            """SELECT files.path, line, data FROM events JOIN files ON files.id = file
               LEFT JOIN cursors ON cursors.path = files.path AND extractor = ?
               WHERE kind = 'recall' AND agent = ? AND line > coalesce(cursors.offset, 0)
               ORDER BY files.path, line LIMIT ?""",
            (USES, to_utf8(agent), limit),
        ).fetchall()
        events = settle_events(self._index, [decode_event(data) for _, _, data in rows])
        return [
            UnreadRecall(str(path), int(line), event)
            for (path, line, _), event in zip(rows, events, strict=True)
        ]

    def counts(self) -> Mapping[str, int]:
        """Return how many entries are rated, and how many each active tier has."""
        [(rated,)] = self._index.execute(
            "SELECT count(*) FROM importance JOIN items ON items.id = item WHERE indexed"
        )
        tiers = dict(
            self._index.execute(
                """SELECT headers.tier, count(*) FROM headers JOIN items ON items.id = item
                   WHERE indexed GROUP BY 1"""
            )
        )
        return {"rated": int(rated), "cache": tiers.get(1, 0), "buffer": tiers.get(2, 0)}
