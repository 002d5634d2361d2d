"""Read the data of the view models; the person at the machine sees every agent."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from heapq import merge
from typing import Final

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import Entry
from memtier_plugin.facts.views import read_entries_said
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.explain import Explainer
from memtier_plugin.views.history import (
    FactTimeline,
    LineHistory,
    fact_timeline,
    line_history,
    weight_points,
)
from memtier_plugin.views.journal import (
    LogLine,
    RecallView,
    by_id,
    by_time_said,
    entry_line,
    event_line,
    recall_view,
)

_MOST_RECALLS: Final = 5000  # newest recalls that are searched for a line
_LOOK_SECONDS: Final = 0.5  # between two checks for new lines
_OFFERED: Final = timedelta(seconds=5)  # how long a recall may be on its way to its host


# -- the log -------------------------------------------------------------------------------------


def find_newest_day(memory: MemTier, agent: str | None, *, written: bool = False) -> str | None:
    """Return the newest day with entries of the agent, or any agent, by time said or written."""
    if written:
        segments = memory.store.log.segments("episodic", agent)
        return max((segment.day for segment in segments), default=None)
    memory.store.catch_up_all()
    with memory.store.session() as reader:
        times = [
            float(when)
            for name, activity, when in reader.last_activity()
            if activity == "stored" and agent in (None, name)
        ]
    return to_iso(datetime.fromtimestamp(max(times), UTC))[:10] if times else None


def read_log_lines(
    memory: MemTier,
    *,
    agent: str | None = None,
    date: str | None = None,
    session: str | None = None,
    after_id: str | None = None,
    written: bool = False,
) -> Iterator[LogLine]:
    """Yield entries and journal events, oldest first.

    A line has a ``kind`` ("entry", or the event's kind) and the fields of its record; the lines of
    events also have a ``text`` that describes them.

    Args:
        written: date entries by when they were written, not by when they were said.
    """
    entries = [
        entry_line(entry)
        for entry in _read_entries(memory, agent, date, session, after_id, written=written)
    ]
    runs = {entry["run_id"] for entry in entries} if session else None
    happened = (
        event
        for event in _read_events(memory, agent, date)
        if (after_id is None or event["id"] > after_id)
        and (runs is None or event["run_id"] in runs)
    )
    order = by_id if written else by_time_said
    return merge(sorted(entries, key=order), sorted(happened, key=order), key=order)


def _read_entries(
    memory: MemTier,
    agent: str | None,
    date: str | None,
    session: str | None,
    after_id: str | None,
    *,
    written: bool,
) -> Iterable[Entry]:
    """Return entries with their current values; of one day, by the index if dated by time said."""
    if written or date is None or after_id is not None:
        return memory.entries(agent=agent, date=date, session=session, after_id=after_id)
    memory.store.catch_up_all()
    with memory.store.session() as reader:
        return read_entries_said(reader, date, agent=agent, session=session)


def follow_log(memory: MemTier, last: str | None, **chosen: str | None) -> Iterator[LogLine]:
    """Yield new lines forever as they are written, and recalls once their host may have them."""
    looked = memory.actor.clock()
    while True:
        before, looked = looked, memory.actor.clock()
        settled = to_iso(looked - _OFFERED)
        # Two days just after midnight
        for day in sorted({to_iso(before)[:10], to_iso(looked)[:10]}):
            new = read_log_lines(memory, date=day, after_id=last, written=True, **chosen)
            for line in new:
                if line.get("purpose") == "offer" and line["timestamp"] > settled:
                    break
                last = line["id"]
                yield line
        time.sleep(_LOOK_SECONDS)


def _read_events(memory: MemTier, agent: str | None, date: str | None) -> Iterator[LogLine]:
    events = [e for e in memory.store.log.events(day=date) if agent in (None, e.agent_id)]
    memory.store.catch_up_all()  # a recall may be acknowledged on the next day
    with memory.store.session() as reader:
        settled = reader.settle(events)
    return map(event_line, settled)


# -- a line, a recall, a subject ------------------------------------------------------------------


def read_line_history(memory: MemTier, item_id: str) -> LineHistory:
    """Return the history of an entry or a fact.

    Args:
        item_id: its id, or the end of it.

    Raises:
        NotFound: there is no such entry or fact, or more than one.
    """
    identity = memory.knowledge.person.full_id(item_id)
    memory.store.catch_up_all()
    with memory.store.session() as reader:
        stored = reader.items([identity]).get(identity)
        if stored is None:
            raise NotFound(f"there is no entry or fact {item_id!r}; `memtier log` shows them")
        recalls = reader.events([RecallEvent.KIND], newest=_MOST_RECALLS)
        return line_history(stored, reader.events(item=identity), recalls)


def read_curves(memory: MemTier, ids: Collection[str]) -> dict[str, list[float]]:
    """Return the weights over time of each line whose weight was ever not 0."""
    curves: dict[str, list[float]] = {}
    with memory.store.session() as reader:
        for identity, stored in reader.items(ids).items():
            if events := reader.events(item=identity):
                points = weight_points(to_iso(stored.item.timestamp), events)
                curves[identity] = [point.weight for point in points]
    return curves


def read_recall(memory: MemTier, recall_id: str) -> RecallView:
    """Return the view of a recall, by its id, whichever agent made it.

    Raises:
        NotFound: the journal has no such recall.
    """
    memory.store.catch_up_all()
    with memory.store.session() as reader:
        event = reader.event(recall_id)
    actor = replace(memory.actor, agent=event.agent_id) if event else memory.actor
    return recall_view(Explainer(actor).explain(recall_id))


def read_timeline(memory: MemTier, subject: str) -> FactTimeline:
    """Return the timeline of a subject's facts.

    Raises:
        NotFound: nothing is known about it; the message suggests similar subjects.
    """
    views = memory.knowledge.person.timeline(subject)
    return fact_timeline(subject, views, memory.actor.clock())
