"""The verdicts of the encoding gate: their journal event, and their table in the index."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final, Literal

from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.hookspecs import IndexTables
from memtier_plugin.core.records import JournalEvent, StateEvent
from memtier_plugin.storage.index.records import to_utf8, to_utf8_all

Verdict = Literal["admitted", "rejected", "left_out"]


class GateEvent(StateEvent, frozen=True, kw_only=True):
    """The encoding gate judged entries (True Memory, eq. 1).

    ``signals`` maps items to novelty, salience and prediction error, empty if an earlier verdict
    was only converted to the mode; items in ``left_out`` get no vectors and n-grams.
    """

    KIND = "gate"

    verdict: Verdict
    signals: tuple[tuple[float | None, ...], ...] = ()

    @property
    def words_only(self) -> bool:
        """Whether its items are found only by their words from now on."""
        return self.verdict == "left_out"


def _create(connection: Any) -> None:
    connection.execute(
        """CREATE TABLE IF NOT EXISTS verdicts(
            item TEXT PRIMARY KEY, verdict TEXT NOT NULL, stamp TEXT NOT NULL,
            event TEXT NOT NULL) WITHOUT ROWID"""
    )


def _clear(connection: Any) -> None:
    connection.execute("DELETE FROM verdicts")


def _add(connection: Any, event: JournalEvent) -> None:
    judged = GateEvent.of(event)
    stamp, identity = to_iso(event.timestamp), to_utf8(event.id)
    connection.executemany(
        """INSERT INTO verdicts VALUES(?, ?, ?, ?) ON CONFLICT(item) DO UPDATE
           SET verdict = excluded.verdict, stamp = excluded.stamp, event = excluded.event
           WHERE (excluded.stamp, excluded.event) > (stamp, event)""",
        [(item, judged.verdict, stamp, identity) for item in to_utf8_all(judged.items)],
    )


TABLES: Final = IndexTables(
    name="gate-1",
    kinds=frozenset({GateEvent.KIND}),
    create=_create,
    clear=_clear,
    add=_add,
)


class VerdictReader:
    """Queries for the verdicts of one project (see `Reader.plugin_tables`)."""

    def __init__(self, connection: Any) -> None:
        self._index = connection

    def backlog(self, verdicts: Collection[str], limit: int) -> list[tuple[str, str]]:
        """Return the oldest entries with one of these verdicts, or none ("").

        Only what a user or an assistant said is judged.
        """
        rows = self._index.execute(
            """SELECT id, coalesce(verdict, '') FROM items LEFT JOIN verdicts ON item = id
               WHERE tier = 'episodic' AND indexed AND role IN ('user', 'assistant')
                 AND coalesce(verdict, '') IN (SELECT value FROM json_each(?))
               ORDER BY observed, id LIMIT ?""",
            (json.dumps([*verdicts]), limit),
        )
        return [(str(identity), str(verdict)) for identity, verdict in rows]
