"""The timeline of a subject's facts: what held from when to when, on one line of time.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from memtier_plugin.core.structs import Record
from memtier_plugin.core.times import from_iso, to_iso
from memtier_plugin.facts.views import FactView


class Held(Record, frozen=True):
    """A fact on the line of time, where 0 is the first start and 1 is now.

    Attributes:
        until: None while it holds, and where nobody said when it ended.
        state: of the fact; "ended" where by its own words it does not hold any more.
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


class Timeline(Record, frozen=True):
    """All that holds or once held of a subject, by relation."""

    subject: str
    first: str
    last: str
    relations: tuple[Relation, ...]


def fact_timeline(subject: str, facts: Sequence[FactView], now: datetime) -> Timeline:
    """Return the timeline of a subject.

    Args:
        facts: what holds or once held of it, by relation and start (`FactService.timeline`).
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
    return Timeline(subject, to_iso(first), to_iso(last), relations)


def state_now(state: str, valid_to: datetime | None, now: datetime) -> str:
    """Return a fact's state; "ended" for one that by its own words does not hold any more."""
    over = valid_to is not None and valid_to <= now
    return "ended" if over and state == "active" else state


def state_of(fact: Mapping[str, Any], now: datetime) -> str:
    """Return the state of a fact in JSON form; see `state_now`."""
    until = fact["valid_to"]
    return state_now(str(fact["state"]), from_iso(until) if until else None, now)


def _since(view: FactView) -> datetime:
    return view.fact.valid_from or view.fact.timestamp
