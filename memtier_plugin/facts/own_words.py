"""List what users' own words set: rules by corrections, and intentions that are open."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Literal

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import RecallEvent, RejectEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import CORRECTED, INJECTING, INTENDED, Fact
from memtier_plugin.facts.views import list_facts
from memtier_plugin.retrieval.intentions import find_due, is_open
from memtier_plugin.retrieval.visibility import Asker
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.dates.mentions import Period

Closing = Literal["done", "dismissed"]
_RECALLS: Final = 10_000  # the newest, of which those that showed a rule are counted


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule in force, how often it was said and how often shown."""

    fact: Fact
    times: int
    shown: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        fact = self.fact
        return {
            "id": fact.id,
            "text": fact.text,
            "date": to_iso(fact.valid_from or fact.timestamp),
            "who": fact.person or fact.sources[0].agent,
            "personal": fact.personal,
            "times": self.times,
            "shown": self.shown,
        }


def list_rules(reader: Reader, viewer: Asker | None) -> list[RuleView]:
    """Return the rules that a viewer may see and that hold, newest first."""
    rules = [view.fact for view in list_facts(reader, viewer) if view.fact.relation == CORRECTED]
    shown: Counter[str] = Counter()
    for event in reader.events([RecallEvent.KIND], newest=_RECALLS) if rules else ():
        recall = RecallEvent.of(event)
        if recall.purpose in INJECTING:
            shown.update(ranked.item for ranked in recall.injected)
    return [RuleView(rule, len(reader.sources(rule.id)), shown[rule.id]) for rule in rules[::-1]]


@dataclass(frozen=True, slots=True)
class TodoView:
    """An intention that nobody closed, the days it names, and whether it was shown already."""

    fact: Fact
    due: Period | None
    shown: bool

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; ``due`` is the last day that was named, None if none was."""
        fact = self.fact
        return {
            "id": fact.id,
            "text": fact.text,
            "date": to_iso(fact.valid_from or fact.timestamp),
            "who": fact.person or fact.sources[0].agent,
            "due": self.due[1].isoformat() if self.due else None,
            "shown": self.shown,
        }


def list_todo(reader: Reader, viewer: Asker | None) -> list[TodoView]:
    """Return the intentions that a viewer may see and nobody closed: the first due, then newest."""
    facts = [view.fact for view in list_facts(reader, viewer) if view.fact.relation == INTENDED]
    views = [
        TodoView(
            fact,
            find_due(fact),
            not is_open(reader, fact),
        )
        for fact in reversed(facts)
    ]
    return sorted(views, key=lambda view: view.due[1] if view.due else date.max)


def close(actor: Actor, fact: Fact, why: Closing) -> None:
    """Close an intention.

    Raises:
        NotFound: it is none.
        LedgerError: it was not closed.
    """
    if fact.relation != INTENDED:
        raise NotFound(f"{fact.id!r} is no intention; `memtier todo` lists them")
    actor.store.append_events([actor.event(RejectEvent(items=(fact.id,), why=why))], shared=True)
