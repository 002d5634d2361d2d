"""Views of a line's history and of a subject's timeline, and their bars.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby, islice
from typing import Any, Final

from memtier_plugin.core.event_lines import MISS_CHARS
from memtier_plugin.core.events import CreditEvent, RecallEvent, describe_call
from memtier_plugin.core.formats import from_iso, to_iso
from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.core.structs import Record
from memtier_plugin.facts.views import FactView
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.state import (
    describe_state,
    fold,
    last_attempts,
    undone_runs,
    weighing_kinds,
)

# -- The history of one line: its weight over time, its recalls, its credits.  Pure

_MOST_POINTS: Final = 200  # newest points of the curve, since each is computed separately
_MOST_RECALLS: Final = 200  # newest recalls of a line


class WeightPoint(Record, frozen=True):
    """The weight of a line from a time on, and the kind of event that set it."""

    at: str
    weight: float
    what: str


class LineCredit(Record, frozen=True):
    """A credit of a line; ``counts`` is False if a later attempt or an undo replaced it.

    ``call`` is the call that decided it, and how that ended.
    """

    at: str
    run: str | None
    agent: str
    reward: float
    share: float
    delta: float
    counts: bool
    call: str


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
        events: all that concern it, in any order.
        recalls: those of any line, newest first.
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
    """Return the weight after each event that may change it, as the index computes it (eq. 1).

    Args:
        written: when the line was written, with weight 0.
        ordered: the events that concern the line, oldest first.
    """
    weighing = weighing_kinds()
    places = [n for n, event in enumerate(ordered, 1) if event.kind in weighing]
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
        credits.append(LineCredit(at, run, agent, *figures, counts, describe_call(event.data)))
    return tuple(credits)


def recalls_of(item_id: str, events: Iterable[JournalEvent]) -> Iterable[LineRecall]:
    """Yield the recalls that injected an item, or had it among their near misses."""
    end = item_id[-MISS_CHARS:]
    for event in events:
        # Most do not contain it, and unpacking takes a hundred times as long as this test.
        if end not in str(event.data.get("injected")) + str(event.data.get("near_misses")):
            continue
        try:
            recall = RecallEvent.of(event)
        except (KeyError, ValueError):
            continue  # a damaged journal line
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


# -- The timeline of a subject's facts, on one time axis.  Pure


class Held(Record, frozen=True):
    """A fact on a time axis from 0, the first start, to 1, now.

    Attributes:
        until: None while it holds, and if nobody said when it ended.
        state: of the fact; "ended" if its own text limits it to a past period.
        by: the fact that superseded it.
    """

    id: str
    text: str
    value: str
    since: str
    until: str | None
    state: str
    start: float
    end: float
    by: str | None = None


class Relation(Record, frozen=True):
    """The facts of one relation of a subject, oldest first."""

    name: str
    facts: tuple[Held, ...]


class FactTimeline(Record, frozen=True):
    """The facts that hold or once held about a subject, by relation."""

    subject: str
    first: str
    last: str
    relations: tuple[Relation, ...]


def fact_timeline(subject: str, facts: Sequence[FactView], now: datetime) -> FactTimeline:
    """Return the timeline of a subject.

    Args:
        facts: those that hold or once held about it, by relation and start
            (`FactService.timeline`).
    """
    starts = [_since(view) for view in facts]
    ends = [view.fact.valid_to or now for view in facts]
    first, last = min(starts, default=now), max([now, *starts, *ends])
    seconds = (last - first).total_seconds() or 1.0

    def share(moment: datetime) -> float:
        return round((moment - first).total_seconds() / seconds, 6)

    def hold(view: FactView) -> Held:
        fact, since = view.fact, _since(view)
        return Held(
            id=fact.id,
            text=fact.text,
            value=fact.value,
            since=to_iso(since),
            until=to_iso(fact.valid_to) if fact.valid_to else None,
            state=state_now(view.state, fact.valid_to, now),
            start=share(since),
            end=max(share(since), share(fact.valid_to or last)),
            by=view.superseded_by,
        )

    grouped = groupby(facts, key=lambda view: view.fact.relation)
    relations = tuple(Relation(name, tuple(map(hold, views))) for name, views in grouped)
    return FactTimeline(subject, to_iso(first), to_iso(last), relations)


def state_now(state: str, valid_to: datetime | None, now: datetime) -> str:
    """Return a fact's state; "ended" if its own text limits it to a past period."""
    over = valid_to is not None and valid_to <= now
    return "ended" if over and state == "active" else state


def state_of(fact: Mapping[str, Any], now: datetime) -> str:
    """Return the state of a fact in JSON form; see `state_now`."""
    until = fact["valid_to"]
    return state_now(str(fact["state"]), from_iso(until) if until else None, now)


def _since(view: FactView) -> datetime:
    return view.fact.valid_from or view.fact.timestamp


# -- Draw numbers as characters: a sparkline of a series, a bar for a share, a span of time.  Pure

_LEVELS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
MOST_COLUMNS: Final = 24  # of a sparkline beside a text


def sparkline(
    values: Sequence[float],
    low: float | None = None,
    high: float | None = None,
    columns: int = MOST_COLUMNS,
) -> str:
    """Return one block character for each of the newest ``columns`` values.

    Args:
        low: the value at the bottom, by default the minimum of the series; ``high`` likewise.
    """
    shown = values[-columns:]
    if not shown:
        return ""
    bottom = min(shown) if low is None else low
    top = max(shown) if high is None else high
    if top <= bottom:  # a constant series is drawn at the bottom
        return _LEVELS[0] * len(shown)
    steps = len(_LEVELS) - 1
    shares = ((value - bottom) / (top - bottom) for value in shown)
    return "".join(_LEVELS[round(max(0.0, min(1.0, share)) * steps)] for share in shares)


def signed_sparkline(values: Sequence[float], columns: int = MOST_COLUMNS) -> str:
    """Return the sparkline of a series with 0 at half the height."""
    most = max(map(abs, values), default=0.0)
    return sparkline(values, -most, most, columns) if most else _LEVELS[4] * len(values[-columns:])


def bar(share: float, columns: int) -> str:
    """Return a horizontal bar: a share of ``columns``, to an eighth of a column."""
    eighths = round(max(0.0, min(1.0, share)) * columns * 8)
    full, eighths_left = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[eighths_left] if eighths_left else "")


def span(start: float, end: float, columns: int) -> str:
    """Return a span of a time axis from 0 to 1, at least one column wide."""
    first = min(columns - 1, max(0, int(start * columns)))
    last = max(first + 1, min(columns, round(end * columns)))
    return "·" * first + "━" * (last - first) + "·" * (columns - last)
