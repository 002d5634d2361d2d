"""Index tables that follow the journal: the sources of facts, and plugins' own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core import plugins
from memtier_plugin.core.events import PromoteEvent, RestoreEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import Fact, JournalEvent, decode_event
from memtier_plugin.storage.index.records import parse_event, to_utf8, to_utf8_all

if TYPE_CHECKING:
    import apsw


# -- Index the sources of facts: their own, and those that promotions add

_LATER: Final = 1000  # the position of the first source that a promotion adds


class IndexSources:
    """The sources of facts; each change returns the facts it affects."""

    def __init__(self, connection: apsw.Connection) -> None:
        # Any: the types of a row are those of its query, which no checker can read.
        self._db: Any = connection

    def add(self, fact: Fact) -> None:
        """Add a fact's own sources."""
        sources = [(source.entry, source.agent, source.session) for source in fact.sources]
        self._add(fact.id, sources, fact.id)

    def add_promotion(self, event: JournalEvent) -> set[str]:
        """Add a promotion's entries to the sources of its facts, unless it was undone."""
        promoted = PromoteEvent.of(event)
        facts = set(to_utf8_all(promoted.facts))
        sources = [(entry, promoted.agent, promoted.session) for entry in promoted.items]
        for fact in facts:
            self._add(fact, sources, event.id, _LATER)
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
                    json.dumps(to_utf8_all(restored.items)),
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
            (json.dumps(to_utf8_all(runs)),),
        ).fetchall()
        return {fact for (data,) in rows for fact in self.add_promotion(parse_event(data))}

    def _add(
        self, fact: str, sources: Sequence[tuple[str, str, str]], via: str, first: int = 0
    ) -> None:
        """Add sources, given as entry, agent and session, at the positions from ``first`` on."""
        texts = to_utf8_all([fact, via, *chain.from_iterable(sources)])
        self._db.executemany(
            "INSERT OR IGNORE INTO sources VALUES(?, ?, ?, ?, ?, ?)",
            [
                (texts[0], *texts[start : start + 3], texts[1], first + number)
                for number, start in enumerate(range(2, len(texts), 3))
            ],
        )


# -- Tables of the index that plugins keep by the events of the journal (`memtier_index_tables`)

_FILLED: Final = "plugin_tables"  # in `meta`: the names of those that have every event


class PluginTables:
    """Folds events into the tables of the plugins that are installed."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db: Any = connection
        self._by_kind = {
            kind: tables for tables in plugins.find_index_tables() for kind in tables.kinds
        }

    def add(self, event: JournalEvent) -> None:
        """Fold an event, if a plugin has tables for its kind."""
        if tables := self._by_kind.get(event.kind):
            tables.add(self._db, event)

    def rebuild(self) -> None:
        """Fold all events again, after some were removed, or a plugin was installed."""
        for tables in {tables.name: tables for tables in self._by_kind.values()}.values():
            tables.clear(self._db)
        for kind in self._by_kind:
            for (data,) in self._db.execute(
                "SELECT data FROM events WHERE kind = ?", (kind,)
            ).fetchall():
                self.add(decode_event(data))


def follow_plugins(connection: apsw.Connection, metadata: Mapping[str, Any]) -> None:
    """Make and fill the tables of plugins that are new to this index; forget those that left.

    What a plugin's tables say is complete only while each process that writes here has it: without
    it their events are kept, and folded when it is back.
    """
    installed = plugins.find_index_tables()
    names = " ".join(sorted(tables.name for tables in installed))
    if metadata.get(_FILLED, "") == names:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for tables in installed:
            tables.create(connection)
        PluginTables(connection).rebuild()
        connection.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (_FILLED, names))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
