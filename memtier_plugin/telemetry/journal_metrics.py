"""The metrics of a project from its journal: for any process, whichever did the work."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from memtier_plugin.core.events import (
    ChatEvent,
    CreditEvent,
    EmbedEvent,
    HookFailedEvent,
    RecallEvent,
)
from memtier_plugin.core.records import INJECTING
from memtier_plugin.storage.queued_runs import count_queued_runs
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Store
from memtier_plugin.telemetry.measures import (
    AGENT,
    QUEUE_DEPTH,
    STORE,
    STORED,
    UNCAPTURED,
    Measure,
    measures_of,
)
from memtier_plugin.telemetry.prometheus import Registry

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_KINDS: Final = tuple(
    event.KIND for event in (RecallEvent, CreditEvent, ChatEvent, EmbedEvent, HookFailedEvent)
)


class JournalMetrics:
    """The metrics of one project; a kept instance reads only what is new at each call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted = Registry()
        self._since: datetime | None = None
        self._newest: set[str] = set()  # the events of that moment
        self._turns: dict[str, list[datetime]] = {}  # recalls for prompts since a run was stored

    def render(self) -> str:
        """Return the metrics in Prometheus' text format.

        Raises:
            IndexProblem, LedgerError: the journal cannot be read.
        """
        with self._store.session() as reader:
            self._store.catch_up(self._store.files_behind(), wait_ms=200)
            self._count_events(reader)
            gauges = self._gauges(reader)
        return self._counted.render() + gauges.render()

    def _count_events(self, reader: Reader) -> None:
        events = reader.events(_KINDS, since=self._since)
        fresh = [event for event in events if event.id not in self._newest]
        for measure in measures_of(self._store.project, fresh):
            self._counted.add(measure)
        for event in fresh:
            if event.kind == RecallEvent.KIND and event.data.get("purpose") in INJECTING:
                self._turns.setdefault(event.agent_id, []).append(event.timestamp)
        if events:
            self._since = max(event.timestamp for event in events)
            self._newest = {event.id for event in events if event.timestamp == self._since}

    def _gauges(self, reader: Reader) -> Registry:
        registry, base = Registry(), {STORE: self._store.project}
        waiting, _ = count_queued_runs(self._store.project_folder.home)
        registry.add(Measure(QUEUE_DEPTH, waiting, {}))
        counts = reader.counts()
        for kind, name in (("entry", "entries"), ("fact", "facts")):
            registry.add(Measure(STORED, counts[name], {**base, "memtier.kind": kind}))
        stored = {
            agent: float(when) for agent, what, when in reader.last_activity() if what == "stored"
        }
        for agent, moments in self._turns.items():
            last = stored.get(agent, 0.0)
            self._turns[agent] = [when for when in moments if when.timestamp() > last]
            registry.add(Measure(UNCAPTURED, len(self._turns[agent]), {**base, AGENT: agent}))
        return registry
