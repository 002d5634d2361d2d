"""What each fact rests on in the index: its own sources, and those that promotions add to it."""

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

_LATER: Final = 1000  # the place of the first source that a promotion adds


class IndexSources:
    """The sources of facts; whoever changes them is told which facts that touches."""

    def __init__(self, connection: apsw.Connection) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection

    def add(self, fact: Fact) -> None:
        """Keep what a fact says that it rests on."""
        for place, source in enumerate(fact.sources):
            self._add(fact.id, source.entry, source.agent, source.session, fact.id, place)

    def add_promotion(self, event: JournalEvent) -> set[str]:
        """Let the facts that a promotion names rest on its entries too, unless it was undone."""
        promoted = PromoteEvent.of(event)
        facts = {to_utf8(fact) for fact in promoted.facts}
        for fact in facts:
            for place, entry in enumerate(promoted.items, _LATER):
                self._add(fact, entry, promoted.agent, promoted.session, event.id, place)
        if event.run_id is not None:
            for (data,) in self._db.execute(
                "SELECT data FROM events INDEXED BY events_kind WHERE kind = 'restore' AND run = ?",
                (to_utf8(event.run_id),),
            ).fetchall():
                self.undo_promotions(parse_event(data))
        return facts

    def undo_promotions(self, event: JournalEvent) -> set[str]:
        """Take out what the run that is undone had added for the entries that are restored."""
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
        """Take out what a fact's line, or a promotion, said; either is gone from the ledger."""
        rows = self._db.execute("DELETE FROM sources WHERE via = ? RETURNING fact", (via,))
        return {str(fact) for (fact,) in rows.fetchall()}

    def reapply_promotions(self, runs: Iterable[str]) -> set[str]:
        """Let the promotions of runs stand again, an undoing of which is gone from the ledger."""
        rows = self._db.execute(
            """SELECT data FROM events WHERE kind = 'promote'
               AND run IN (SELECT value FROM json_each(?))""",
            (json.dumps([to_utf8(run) for run in runs]),),
        ).fetchall()
        return {fact for (data,) in rows for fact in self.add_promotion(parse_event(data))}

    def _add(self, fact: str, entry: str, agent: str, session: str, via: str, place: int) -> None:
        self._db.execute(
            "INSERT OR IGNORE INTO sources VALUES(?, ?, ?, ?, ?, ?)",
            (*map(to_utf8, (fact, entry, agent, session, via)), place),
        )
