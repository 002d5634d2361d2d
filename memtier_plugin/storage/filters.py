"""Conditions on the facts, entries and events that a reader returns; None leaves one open."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

# current: found by recalls now.  past: superseded, forgotten, reverted or still proposed.
# waiting: proposed, and not decided on yet.  reverted: of a consolidation that was rolled back.
# remembered: all but the forgotten ones.
Standing = Literal["current", "past", "waiting", "reverted", "remembered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactFilter:
    """Conditions on facts.

    Attributes:
        run: the consolidation that wrote the fact.
        subject: normalised, like ``relation`` and ``value``.
        audience: the agent and sender who alone may see the fact, ("", "") for shared facts;
            summaries and timelines are left out.
        readable_by: leave out what is private to any other agent than this one.
        written_since: included, like ``written_until``.
        valid_since: in seconds since 1970, included, like ``valid_until``: when the fact began
            to hold.
    """

    run: str | None = None
    subject: str | None = None
    relation: str | None = None
    value: str | None = None
    standing: Standing | None = None
    audience: tuple[str, str] | None = None
    readable_by: str | None = None
    written_since: datetime | None = None
    written_until: datetime | None = None
    valid_since: float | None = None
    valid_until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """Conditions on entries.

    Attributes:
        since: in seconds since 1970, included, like ``until``: when the entry was observed.
    """

    agent: str | None = None
    sender: str | None = None
    session: str | None = None
    run: str | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Conditions on journal events.

    Attributes:
        item: an item whose state the event may change.
        since: included, like ``until``; ``before`` is excluded.
        newest: only so many, the newest first; otherwise all of them in order.
    """

    kinds: Collection[str] = ()
    agent: str | None = None
    run: str | None = None
    item: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: datetime | None = None
    newest: int | None = None
