"""Select records by ids, words, session, person, run or time; retention forgets by that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import RetainEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.settings.schema import Retention
from memtier_plugin.core.structs import CheckedRecord
from memtier_plugin.facts import views
from memtier_plugin.facts.service import FactService
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.protocol import MB
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Store

# -- Select entries and facts by ids, words, session, sender, agent, run or time


class Selection(CheckedRecord, frozen=True):
    """A selection of items: those with one of the ``ids``, and those that meet all conditions.

    ``query`` selects the items that have every word of it; times are those of observation.
    """

    ids: tuple[str, ...] = ()
    query: str | None = None
    agent: str | None = None
    sender: str | None = None
    session: str | None = None
    run: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.ids or self.has_conditions)

    @property
    def has_conditions(self) -> bool:
        """True if it selects by more than ids."""
        return self != Selection(ids=self.ids)

    def describe(self) -> str:
        """Return the conditions as a phrase."""
        names = ("query", "agent", "sender", "session", "run")
        values = [(name, getattr(self, name)) for name in names]
        conditions = [f"{name} {value!r}" for name, value in values if value is not None]
        conditions += [f"since {to_iso(self.since)}"] if self.since else []
        conditions += [f"until {to_iso(self.until)}"] if self.until else []
        return ", ".join(conditions)


def select_items(store: Store, selection: Selection) -> tuple[list[str], list[str]]:
    """Return the ids of the selected entries and facts, including hidden ones.

    Raises:
        NotFound: an id is unknown, or nothing meets the conditions.
        IndexProblem: the index cannot be read.
    """
    with store.session() as reader:
        existing = reader.items(selection.ids)
        if missing := [identity for identity in selection.ids if identity not in existing]:
            raise NotFound(f"no item has the id {missing[0]!r}; `memtier log` shows the ids")
        ids = [*dict.fromkeys(selection.ids)]
        if selection.has_conditions:
            matches = _match_conditions(store, reader, selection)
            if not matches:
                raise NotFound(f"no items match {selection.describe()}")
            ids += matches
        tiers = {item.id: item.tier for item in reader.list_items(ids)}
    entries = sorted(identity for identity, tier in tiers.items() if tier == "episodic")
    return entries, sorted(tiers.keys() - set(entries))


def _match_conditions(store: Store, reader: Reader, selection: Selection) -> Sequence[str]:
    since, until = (at.timestamp() if at else None for at in (selection.since, selection.until))
    ids = reader.entries(
        agent=selection.agent,
        sender=selection.sender,
        session=selection.session,
        run=selection.run,
        since=since,
        until=until,
    )
    if selection.query is None:
        return ids
    if selection.agent is selection.sender is selection.session is selection.run is None:
        facts = reader.facts(valid_since=since, valid_until=until)
        ids += [stored.item.id for stored in facts]
    return filter_by_words(store, reader, ids, selection.query)


def filter_by_words(store: Store, reader: Reader, ids: Sequence[str], query: str) -> list[str]:
    """Return those of these items that have every word of a query.

    Raises:
        NotFound: the query has no word.
    """
    words = store.tokenizer.words
    requested = set(words(query))
    if not requested:
        raise NotFound(f"{query!r} has no word to look for")
    return [item.id for item in reader.list_items(ids) if requested <= set(words(item.text))]


def expand_to_dependents(
    store: Store, entries: Iterable[str], facts: Iterable[str]
) -> tuple[set[str], set[str]]:
    """Return the facts that go with these items, and those that rest on other items too.

    A summary or a timeline shows its sources' very words, and goes as a whole.
    """
    with store.session() as reader:
        dependents, entries = set(facts), set(entries)
        while True:
            touching = {*reader.facts_citing([*entries, *dependents])} - dependents
            stored = reader.items(touching).values()
            more = {fact.item.id for fact in stored if getattr(fact.item, "shelf", "")}
            more |= {*reader.dependent_facts([*entries, *dependents])} - dependents
            if not more:
                return dependents, touching
            dependents |= more


# -- Apply a project's retention settings: forget the entries beyond them (off by default)
#
# They are forgotten as by a person: hidden everywhere, with the facts that rest on them alone, and
# not restored by re-delivery.  The ledger keeps their lines until they are purged, which
# `retention.purge` does at once.

_BATCH: Final = 1000  # entries that one tombstone names


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """The ids of the hidden entries, and of the facts that rested on them alone.

    With `retention.purge`, ``left`` has entries beyond the policy that were hidden before and still
    have their words: whoever was to purge them may have died.
    """

    entries: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def find_expired(store: Store, policy: Retention, now: datetime) -> tuple[list[str], list[str]]:
    """Return the ids of the entries beyond a retention policy, oldest first; and of hidden ones.

    Raises:
        IndexProblem, LedgerError: the entries cannot be read.
    """
    if not (policy.days or policy.entries or policy.mb):
        return [], []
    store.catch_up_all()
    with store.session() as reader:
        lines = [(*line, reader.state(line[1]).forgotten) for line in _entry_lines(store)]
        facts = views.list_facts(reader, None, shelves=False) if policy.keep_sources else ()
        spared = {source.entry for view in facts for source in reader.sources(view.fact.id)}
    sizes = [size for _, _, size, _, hidden in lines if not hidden]
    over_count = len(sizes) - policy.entries if policy.entries else 0
    over_size = sum(sizes) - policy.mb * MB if policy.mb else 0
    oldest = now - timedelta(days=policy.days) if policy.days else None
    expired, left = list[str](), list[str]()
    for written, identity, size, has_words, hidden in sorted(lines):
        too_old = oldest is not None and written < oldest
        if not (too_old or over_count > 0 or over_size > 0):
            break
        if hidden:
            left += [identity] * (policy.purge and has_words)
        elif identity not in spared:
            expired.append(identity)
            over_count -= 1
            over_size -= size
    return expired, left


def _entry_lines(store: Store) -> Iterator[tuple[datetime, str, int, bool]]:
    """Yield when each entry was written, its id, its line's bytes, and whether it has words."""
    for logged in store.log.entries():
        if logged.entry:
            entry = logged.entry
            yield entry.timestamp, entry.id, logged.size, bool(entry.content)


def apply_retention(actor: Actor, knowledge: FactService) -> RetentionResult:
    """Forget what is beyond the project's retention settings, and return it.

    Raises:
        LedgerError, IndexProblem: not all of it was hidden; the next call hides the rest.
    """
    store, entries, facts = actor.store, list[str](), list[str]()
    policy = store.settings.retention
    if not (policy.days or policy.entries or policy.mb):
        return RetentionResult()
    with store.try_exclusive("retention") as held:  # by another, it need not be done again
        ids, left = find_expired(store, policy, actor.clock()) if held else ([], [])
        for start in range(0, len(ids), _BATCH):
            forgotten = knowledge.person.forget(ids=ids[start : start + _BATCH])
            entries += forgotten.ids
            facts += forgotten.facts
        if entries:
            event = RetainEvent(
                entries=len(entries),
                facts=len(facts),
                days=policy.days,
                most=policy.entries,
                mb=policy.mb,
            )
            store.append_events([actor.event(event)], shared=True)
    return RetentionResult(tuple(entries), tuple(facts), tuple(left))
