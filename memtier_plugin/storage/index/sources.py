"""Index the sources of facts: their own, and those that promotions add."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.events import PromoteEvent, RestoreEvent
from memtier_plugin.core.records import Fact, JournalEvent
from memtier_plugin.core.times import to_iso
from memtier_plugin.storage.index.records import parse_event, to_utf8

if TYPE_CHECKING:
    import apsw

_LATER: Final = 1000  # the position of the first source that a promotion adds


class IndexSources:
    """The sources of facts; each change returns the facts it affects."""

    def __init__(self, connection: apsw.Connection) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection

    def add(self, fact: Fact) -> None:
        """Add a fact's own sources."""
        for position, source in enumerate(fact.sources):
            self._add(fact.id, source.entry, source.agent, source.session, fact.id, position)

    def add_promotion(self, event: JournalEvent) -> set[str]:
        """Add a promotion's entries to the sources of its facts, unless it was undone."""
        promoted = PromoteEvent.of(event)
        facts = {to_utf8(fact) for fact in promoted.facts}
        for fact in facts:
            for position, entry in enumerate(promoted.items, _LATER):
                self._add(fact, entry, promoted.agent, promoted.session, event.id, position)
        if event.run_id is not None:
            for (data,) in self._db.execute(
                "SELECT data FROM events INDEXED BY events_kind WHERE kind = 'restore' AND run = ?",
                (to_utf8(event.run_id),),
            ).fetchall():
                self.undo_promotions(parse_event(data))
        return facts

    def undo_promotions(self, event: JournalEvent) -> set[str]:
        """Remove the sources that the undone run had added for the restored entries."""
        restored = RestoreEvent.of(event)
        return {
            str(fact)
            for (fact,) in self._db.execute(
                """DELETE FROM sources WHERE entry IN (SELECT value FROM json_each(?)) AND via IN
                     (SELECT id FROM events WHERE run = ? AND kind = 'promote'
                        AND (stamp, id) < (?, ?)) RETURNING fact""",
                (
                    json.dumps([to_utf8(item) for item in restored.items]),
                    to_utf8(restored.run),
                    to_iso(event.timestamp),
                    to_utf8(event.id),
                ),
            ).fetchall()
        }

    def drop(self, via: str) -> set[str]:
        """Remove the sources added by a fact or promotion no longer in the ledger."""
        rows = self._db.execute("DELETE FROM sources WHERE via = ? RETURNING fact", (via,))
        return {str(fact) for (fact,) in rows.fetchall()}

    def reapply_promotions(self, runs: Iterable[str]) -> set[str]:
        """Reapply the promotions of runs whose undo is no longer in the ledger."""
        rows = self._db.execute(
            """SELECT data FROM events WHERE kind = 'promote'
               AND run IN (SELECT value FROM json_each(?))""",
            (json.dumps([to_utf8(run) for run in runs]),),
        ).fetchall()
        return {fact for (data,) in rows for fact in self.add_promotion(parse_event(data))}

    def _add(
        self, fact: str, entry: str, agent: str, session: str, via: str, position: int
    ) -> None:
        self._db.execute(
            "INSERT OR IGNORE INTO sources VALUES(?, ?, ?, ?, ?, ?)",
            (*map(to_utf8, (fact, entry, agent, session, via)), position),
        )
