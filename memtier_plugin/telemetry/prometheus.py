"""Export a project's metrics from its journal in Prometheus' text format."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from memtier_plugin.storage.home_files import count_queued_runs
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Store
from memtier_plugin.telemetry.measures import (
    AGENT,
    QUEUE_DEPTH,
    STORE,
    STORED,
    UNCAPTURED,
    Attributes,
    Instrument,
    Measure,
    measures_of,
)

# -- Write measurements in Prometheus' text format (version 0.0.4).  Pure

_UNITS: Final = {"s": "_seconds"}
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Series:
    """The totals for a set of labels; ``counts`` are a histogram's buckets."""

    total: float = 0.0
    number: int = 0
    counts: list[int] = field(default_factory=list)


class Registry:
    """Sums measurements by instrument and labels."""

    def __init__(self) -> None:
        self._series: dict[Instrument, dict[_Labels, _Series]] = {}

    def add(self, measure: Measure) -> None:
        """Add a measurement; a gauge is set to its value."""
        instrument = measure.instrument
        series = self._series.setdefault(instrument, {}).setdefault(
            _labels(measure.attributes), _Series(counts=[0] * (len(instrument.buckets) + 1))
        )
        if instrument.kind == "gauge":
            series.total = measure.value
            return
        series.total += measure.value
        series.number += 1
        series.counts[bisect_left(instrument.buckets, measure.value)] += 1

    def render(self) -> str:
        """Return the text, sorted by name and labels."""
        lines: list[str] = []
        for instrument in sorted(self._series, key=lambda each: each.name):
            name = _name(instrument)
            lines += [
                f"# HELP {name} {instrument.meaning}",
                f"# TYPE {name} {instrument.kind}",
            ]
            for labels, series in sorted(self._series[instrument].items()):
                lines += _samples(instrument, name, labels, series)
        return "\n".join(lines) + "\n" if lines else ""


def _samples(instrument: Instrument, name: str, labels: _Labels, series: _Series) -> Iterator[str]:
    if instrument.kind != "histogram":
        yield f"{name}{_text(labels)} {series.total:.12g}"
        return
    below = 0
    for bound, count in zip((*instrument.buckets, math.inf), series.counts, strict=True):
        below += count
        limit = "+Inf" if bound == math.inf else f"{bound:g}"
        yield f"{name}_bucket{_text((*labels, ('le', limit)))} {below}"
    yield f"{name}_sum{_text(labels)} {series.total:.12g}"
    yield f"{name}_count{_text(labels)} {series.number}"


def _name(instrument: Instrument) -> str:
    name = instrument.name.replace(".", "_") + _UNITS.get(instrument.unit, "")
    return f"{name}_total" if instrument.kind == "counter" else name


def _labels(attributes: Attributes) -> _Labels:
    return tuple((name.replace(".", "_"), str(value)) for name, value in attributes.items())


def _text(labels: _Labels) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


# -- Metrics from the journal, readable by any process whichever did the work

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_KINDS: Final = tuple(
    event.KIND for event in (RecallEvent, CreditEvent, ChatEvent, EmbedEvent, HookFailedEvent)
)


class JournalMetrics:
    """The metrics of a project; a reused instance reads only new events."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted = Registry()
        self._since: datetime | None = None
        self._newest: set[str] = set()  # events at that time
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
            agent: float(when)
            for agent, activity, when in reader.last_activity()
            if activity == "stored"
        }
        for agent, moments in self._turns.items():
            last = stored.get(agent, 0.0)
            self._turns[agent] = [when for when in moments if when.timestamp() > last]
            registry.add(Measure(UNCAPTURED, len(self._turns[agent]), {**base, AGENT: agent}))
        return registry
