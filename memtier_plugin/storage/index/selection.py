"""Choosing items by what is known of them: whose, in which session, when, resting on what."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

from memtier_plugin.storage.index.records import IndexRecords, to_utf8

_VECTORS: Final = """SELECT count(*) FROM vectors JOIN items ON row = item
    WHERE id IN (SELECT value FROM json_each(?))"""
_NGRAMS: Final = """SELECT count(*) FROM grams WHERE rowid IN
    (SELECT row FROM items WHERE id IN (SELECT value FROM json_each(?)))"""


class ListedItem(NamedTuple):
    """An item and whose it is: ``agent`` and ``sender`` are "" for a fact that all share."""

    id: str
    tier: str
    agent: str
    sender: str
    text: str


class IndexSelect(IndexRecords):
    """Items of one project's index, on one thread's connection; also what is hidden."""

    def entries_where(
        self,
        *,
        agent: str | None = None,
        sender: str | None = None,
        session: str | None = None,
        run: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[str]:
        """Return the ids of the entries of which all of this is true, oldest first."""
        rows = self._db.execute(
            """SELECT items.id FROM items JOIN scopes ON scopes.id = scope
               LEFT JOIN sessions ON sessions.id = session
               WHERE tier = 'episodic' AND (?1 IS NULL OR scopes.agent = ?1)
                 AND (?2 IS NULL OR sender = ?2) AND (?3 IS NULL OR name = ?3)
                 AND (?4 IS NULL OR items.data ->> 'run_id' = ?4)
                 AND (?5 IS NULL OR observed >= ?5) AND (?6 IS NULL OR observed <= ?6)
               ORDER BY items.id""",
            (*(None if one is None else to_utf8(one) for one in (agent, sender, session, run)),
             since, until),
        )  # fmt: skip
        return [str(row[0]) for row in rows]

    def facts_where(self, since: float | None, until: float | None) -> list[str]:
        """Return the ids of the facts that began to hold in a time, oldest first."""
        rows = self._db.execute(
            """SELECT id FROM items WHERE tier <> 'episodic'
               AND (?1 IS NULL OR observed >= ?1) AND (?2 IS NULL OR observed <= ?2) ORDER BY id""",
            (since, until),
        )
        return [str(row[0]) for row in rows]

    def list_items(self, ids: Collection[str]) -> Iterator[ListedItem]:
        """Yield these items with their texts."""
        rows: Any = self._db.execute(
            """SELECT items.id, tier, agent, sender,
                 coalesce(data ->> 'content', data ->> 'text', '')
               FROM items JOIN scopes ON scopes.id = scope
               WHERE items.id IN (SELECT value FROM json_each(?)) ORDER BY items.id""",
            (json.dumps([to_utf8(one) for one in ids]),),
        )
        for row in rows:
            yield ListedItem(*map(str, row))

    def written_between(self, since: str, until: str) -> dict[str, int]:
        """Return how many entries of each agent were written after one moment, until another."""
        rows = self._db.execute(
            """SELECT agent, count(*) FROM items JOIN scopes ON scopes.id = scope
               WHERE tier = 'episodic' AND data ->> 'timestamp' > ? AND data ->> 'timestamp' <= ?
               GROUP BY agent ORDER BY agent""",
            (since, until),
        )
        return {str(agent): int(count) for agent, count in rows}

    def facts_citing(self, items: Collection[str]) -> list[str]:
        """Return the facts that rest on one of these items, also on others."""
        rows = self._db.execute(
            """SELECT DISTINCT fact FROM sources
               WHERE entry IN (SELECT value FROM json_each(?)) ORDER BY fact""",
            (json.dumps([to_utf8(one) for one in items]),),
        )
        return [str(row[0]) for row in rows]

    def derived_counts(self, ids: Collection[str]) -> dict[str, int]:
        """Return how many vectors, and items with n-grams, the index has of these items."""
        wanted = (json.dumps([to_utf8(one) for one in ids]),)
        return {
            "vectors": self._count(_VECTORS, wanted),
            "ngrams": self._count(_NGRAMS, wanted),
        }

    def count_sessions(self, ids: Collection[str]) -> int:
        """Return of how many sessions the pages show one of these entries."""
        return self._count(
            """SELECT count(DISTINCT session) FROM items
               WHERE id IN (SELECT value FROM json_each(?))""",
            (json.dumps([to_utf8(one) for one in ids]),),
        )
