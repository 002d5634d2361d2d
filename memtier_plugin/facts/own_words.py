"""List what users' own words set: rules by corrections, and intentions that are open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, Literal

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import CallReminderEvent, RecallEvent, RejectEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import CORRECTED, INJECTING, INTENDED, Entry, Fact
from memtier_plugin.facts.views import list_facts
from memtier_plugin.retrieval.corrections import repeated_rule
from memtier_plugin.retrieval.intentions import find_due, is_open
from memtier_plugin.retrieval.visibility import Asker
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.dates.mentions import Period

Closing = Literal["done", "dismissed"]
_RECALLS: Final = 10_000  # the newest, of which those that showed a rule are counted


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule in force, and how often it was said, shown, and said again after that.

    ``reminded``: how often a tool call was held up by it, ``insisted``: and then made all the same.
    """

    fact: Fact
    times: int
    shown: int
    again: int
    reminded: int = 0
    insisted: int = 0

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
            "again": self.again,
            "reminded": self.reminded,
            "insisted": self.insisted,
        }


def list_rules(reader: Reader, viewer: Asker | None) -> list[RuleView]:
    """Return the rules that a viewer may see and that hold, newest first."""
    rules = [view.fact for view in list_facts(reader, viewer) if view.fact.relation == CORRECTED]
    shown: Counter[str] = Counter()
    first_shown: dict[tuple[str, str | None], datetime] = {}  # by rule and session
    for event in reader.events([RecallEvent.KIND], newest=_RECALLS) if rules else ():
        recall = RecallEvent.of(event)
        if recall.purpose in INJECTING:
            items = [ranked.item for ranked in recall.injected]
            shown.update(items)
            for item in items:
                known = first_shown.setdefault((item, recall.session_id), event.timestamp)
                first_shown[item, recall.session_id] = min(known, event.timestamp)
    said_again = _count_repeats(reader, rules, first_shown)
    reminded, insisted = _count_reminders(reader)
    return [
        RuleView(
            *(rule, len(reader.sources(rule.id)), shown[rule.id], said_again[rule.id]),
            *(reminded[rule.id], insisted[rule.id]),
        )
        for rule in rules[::-1]
    ]


def _count_reminders(reader: Reader) -> tuple[Counter[str], Counter[str]]:
    """Count, by a rule's id, the calls held up by it, and those of them that were made again."""
    reminded, insisted = Counter[str](), Counter[str]()
    for event in reader.events([CallReminderEvent.KIND], newest=_RECALLS):
        reminder = CallReminderEvent.of(event)
        (insisted if reminder.again else reminded).update(reminder.items)
    return reminded, insisted


def _count_repeats(
    reader: Reader, rules: Sequence[Fact], first_shown: Mapping[tuple[str, str | None], datetime]
) -> Counter[str]:
    """Count, by a rule's id, the corrections that say it again in a session that had it shown.

    Args:
        first_shown: when each rule was shown, by its id and the session.
    """
    sources = {rule.id: [source.entry for source in reader.sources(rule.id)] for rule in rules}
    stored = reader.items({entry for entries in sources.values() for entry in entries})
    repeats: Counter[str] = Counter()
    for line in (each.item for each in stored.values() if isinstance(each.item, Entry)):
        before = [
            rule
            for rule in rules
            if line.id != sources[rule.id][0]
            and (since := first_shown.get((rule.id, line.session_id)))
            and since < line.observed_at
        ]
        same = next((rule for rule in before if line.id in sources[rule.id]), None)
        if rule := same or repeated_rule(line.content, before):
            repeats[rule.id] += 1
    return repeats


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
