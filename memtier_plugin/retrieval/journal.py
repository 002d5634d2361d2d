"""The journal of one agent's recalls, and which of them a run that ends had in its prompt."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from typing import Final

from memtier_plugin.core.errors import IndexProblem, LedgerError
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.storage.store import Store

_RUNS: Final = 512  # that have not ended, whose recalls are kept in mind

_log = logging.getLogger("memtier")


class RecallJournal:
    """Writes recalls down; those of runs not ended are kept in mind.  Safe between threads."""

    def __init__(self, store: Store, agent: str) -> None:
        self._store = store
        self._agent = agent
        self._waiting: dict[tuple[str, str], list[JournalEvent]] = {}
        self._mutex = threading.Lock()

    def write(self, event: JournalEvent) -> None:
        """Write a recall; one that cannot be written serves its run all the same."""
        try:
            self._store.append_events([event], timeout=0.2)
        except LedgerError as error:
            _log.warning("recall %s is not in the journal: %s", event.id, error)
        if event.data["purpose"] == "inject":
            run = (event.run_id or "", event.data["session_id"] or "")
            with self._mutex:
                self._waiting.setdefault(run, []).append(event)
                while len(self._waiting) > _RUNS:  # runs that never ended
                    self._waiting.pop(next(iter(self._waiting)))

    def recalls_of_run(
        self, run_id: str | None, session_id: str, recall_ids: Collection[str] | None
    ) -> list[JournalEvent]:
        """Return the recalls whose block a run had in its prompt, wherever they were made."""
        with self._mutex:
            mine = self._waiting.pop((run_id or "", session_id), [])
        found = {event.id: event for event in mine}
        try:
            reader = self._store.reader()
            written = self._store.unindexed_events(self._agent)
            if run_id:
                written += reader.events_of_run(self._agent, run_id, "recall")
                written = [event for event in written if event.run_id == run_id]
            else:
                written = []
            written += [event for i in recall_ids or () if (event := reader.event(i))]
            found |= {event.id: event for event in written if event.kind == "recall"}
        except IndexProblem as problem:
            _log.warning("only this process's recalls are credited: %s", problem)
        chosen = [e for i, e in found.items() if recall_ids is None or i in recall_ids]
        return [event for event in chosen if event.data["purpose"] == "inject"]
