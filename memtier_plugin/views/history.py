"""The history of one line: its weight over time, the recalls it was in, its credits.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from memtier_plugin.core.cause_events import UpliftEvent
from memtier_plugin.core.events import CreditEvent, RecallEvent
from memtier_plugin.core.recall_lines import MISS_CHARS
from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.core.structs import Record
from memtier_plugin.core.times import to_iso
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.state import (
    UNDO_KINDS,
    describe_state,
    fold,
    last_attempts,
    undone_runs,
)

_MOST_POINTS: Final = 200  # of the curve, the newest: each is a fold of its own
_MOST_RECALLS: Final = 200  # of a line, the newest
_WEIGHING: Final = frozenset({CreditEvent.KIND, UpliftEvent.KIND, *UNDO_KINDS})


class WeightPoint(Record, frozen=True):
    """The weight of a line from one moment on, and the kind of event that set it."""

    at: str
    weight: float
    what: str


class LineCredit(Record, frozen=True):
    """A credit of a line; ``counts`` is False if a later attempt or an undo took its place."""

    at: str
    run: str | None
    agent: str
    reward: float
    share: float
    delta: float
    counts: bool


class LineRecall(Record, frozen=True):
    """A recall that had a line in its block, or narrowly missed it."""

    id: str
    at: str
    agent: str
    query: str
    purpose: str
    rank: int
    score: float
    injected: bool


class LineChange(Record, frozen=True):
    """Another event that changed a line: promoted, superseded, forgotten, accepted ..."""

    at: str
    what: str
    agent: str
    run: str | None


class LineHistory(Record, frozen=True):
    """The history of one line; without ``text`` it was forgotten.

    ``weights`` starts with 0 when the line was written; each list is oldest first.
    """

    id: str
    tier: str
    text: str | None
    who: str
    at: str
    file: str | None
    line: int | None
    state: str
    weight: float
    weights: tuple[WeightPoint, ...]
    credits: tuple[LineCredit, ...]
    recalls: tuple[LineRecall, ...]
    changes: tuple[LineChange, ...]

    @property
    def curve(self) -> list[float]:
        """The weights alone."""
        return [point.weight for point in self.weights]


def line_history(
    stored: Stored, events: Sequence[JournalEvent], recalls: Iterable[JournalEvent]
) -> LineHistory:
    """Return the history of an entry or a fact.

    Args:
        events: all that touched it, in any order.
        recalls: newest first, those of any line.
    """
    item, state = stored.item, stored.state
    ordered = sorted(events, key=lambda event: (event.timestamp, event.id))
    return LineHistory(
        id=item.id,
        tier=item.tier if isinstance(item, Fact) else "episodic",
        text=None if state.forgotten else item.text,
        who=item.speaker or item.sender or item.role if isinstance(item, Entry) else "fact",
        at=to_iso(_time_of(item)),
        file=stored.file,
        line=stored.line,
        state=describe_state(state, not isinstance(item, Fact) or item.status == "active"),
        weight=state.weight,
        weights=weight_points(to_iso(item.timestamp), ordered),
        credits=_credits(ordered),
        recalls=tuple(reversed([*islice(recalls_of(item.id, recalls), _MOST_RECALLS)])),
        changes=tuple(
            LineChange(to_iso(event.timestamp), event.kind, event.agent_id, event.run_id)
            for event in ordered
            if event.kind != CreditEvent.KIND
        ),
    )


def weight_points(written: str, ordered: Sequence[JournalEvent]) -> tuple[WeightPoint, ...]:
    """Return the weight after each event that may move it, as the fold has it (MemTier, eq. 1).

    Args:
        written: when the line was; from then on it weighs 0.
        ordered: the events that touched the line, oldest first.
    """
    places = [n for n, event in enumerate(ordered, 1) if event.kind in _WEIGHING]
    points = [WeightPoint(written, 0.0, "written")]
    for count in places[-_MOST_POINTS:]:
        last = ordered[count - 1]
        weight = fold(ordered[:count]).weight
        points.append(WeightPoint(to_iso(last.timestamp), round(weight, 6), last.kind))
    return tuple(points)


def _credits(ordered: Sequence[JournalEvent]) -> tuple[LineCredit, ...]:
    events = [event for event in ordered if event.kind == CreditEvent.KIND]
    _, undone = undone_runs(ordered)
    counted = {event.id for event, _ in last_attempts(events)}
    credits = []
    for event in events:
        credit = CreditEvent.of(event)
        counts = event.id in counted and (event.agent_id, event.run_id) not in undone
        figures = (credit.reward, credit.share, credit.delta)
        at, run, agent = to_iso(event.timestamp), event.run_id, event.agent_id
        credits.append(LineCredit(at, run, agent, *figures, counts))
    return tuple(credits)


def recalls_of(item_id: str, events: Iterable[JournalEvent]) -> Iterable[LineRecall]:
    """Yield those of some recalls that injected an item, or had it among their near misses."""
    end = item_id[-MISS_CHARS:]
    for event in events:
        # Most do not have it, and unpacking takes a hundred times as long as to look so.
        if end not in str(event.data.get("injected")) + str(event.data.get("near_misses")):
            continue
        try:
            recall = RecallEvent.of(event)
        except (KeyError, ValueError):
            continue  # a damaged line of the journal
        for injected, items in ((True, recall.injected), (False, recall.near_misses)):
            for ranked in items:
                if ranked.item in (item_id, end):
                    yield LineRecall(
                        event.id,
                        to_iso(event.timestamp),
                        event.agent_id,
                        recall.query,
                        recall.purpose,
                        ranked.rank,
                        ranked.score,
                        injected and recall.purpose != "offer",
                    )


def _time_of(item: Entry | Fact) -> datetime:
    return item.observed_at if isinstance(item, Entry) else item.valid_from or item.timestamp
