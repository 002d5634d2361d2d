"""Fold the events of importance and tiers into the index.

Like every fold it does not depend on the order in which lines are read: the first rating of an
entry stands, and its header of the last pass. Both go
by (timestamp, id) otherwise; passes have numbers because a clock may be set back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.priority_events import ImportanceEvent, PrioritiseEvent
from memtier_plugin.core.records import JournalEvent, decode_event
from memtier_plugin.core.times import to_iso
from memtier_plugin.storage.index.records import to_utf8, to_utf8_all

if TYPE_CHECKING:
    import apsw

USES: Final = "uses"  # the cursor in journals up to which uses were counted


class PriorityWriter:
    """Writes one project's importance, headers and cursors of uses."""

    KINDS: Final = frozenset({ImportanceEvent.KIND, PrioritiseEvent.KIND})

    def __init__(self, connection: apsw.Connection) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection

    def add(self, event: JournalEvent) -> None:
        """Add an event of one of `KINDS`."""
        if event.kind == ImportanceEvent.KIND:
            self._add_importance(event)
        else:
            self._add_headers(event)

    def rebuild(self) -> None:
        """Fold all events again, after some were removed."""
        self._db.execute("DELETE FROM importance")
        self._db.execute("DELETE FROM headers")
        for (data,) in self._db.execute(
            "SELECT data FROM events WHERE kind IN ('importance', 'prioritise')"
        ).fetchall():
            self.add(decode_event(data))

    def _add_importance(self, event: JournalEvent) -> None:
        scores = ImportanceEvent.of(event).scores
        stamp, identity = to_iso(event.timestamp), to_utf8(event.id)
        self._db.executemany(
            """INSERT INTO importance VALUES(?, ?, ?, ?) ON CONFLICT(item) DO UPDATE
               SET score = excluded.score, stamp = excluded.stamp, event = excluded.event
               WHERE (excluded.stamp, excluded.event) < (stamp, event)""",
            [
                (item, score, stamp, identity)
                for item, score in zip(to_utf8_all(scores), scores.values(), strict=True)
            ],
        )

    def _add_headers(self, event: JournalEvent) -> None:
        change = PrioritiseEvent.of(event)
        stamp, identity = to_iso(event.timestamp), to_utf8(event.id)
        agent, sender = to_utf8_all([event.agent_id, change.sender])
        self._db.executemany(
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
        # Journals only grow, so the furthest line counts, whatever the clock said.
        self._db.executemany(
            """INSERT INTO cursors VALUES(?, ?, ?, 0, ?) ON CONFLICT(extractor, path) DO UPDATE
               SET offset = excluded.offset, stamp = excluded.stamp
               WHERE excluded.offset > cursors.offset""",
            [(USES, to_utf8(path), line, stamp) for path, line in (change.cursors or {}).items()],
        )
