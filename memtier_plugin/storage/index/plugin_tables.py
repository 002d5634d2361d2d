"""Tables of the index that plugins keep by the events of the journal (`memtier_index_tables`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core import plugins
from memtier_plugin.core.records import JournalEvent, decode_event

if TYPE_CHECKING:
    import apsw

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
