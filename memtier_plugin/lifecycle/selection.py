"""Select entries and facts by ids, words, session, sender, agent, run or time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.structs import CheckedRecord
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Store


class Selection(CheckedRecord, frozen=True):
    """A selection of items: those with one of the ``ids``, and those that meet all conditions.

    ``query`` selects the items that contain all of its words; times are times of observation.
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
        """Whether it selects by more than ids."""
        return self != Selection(ids=self.ids)

    def describe(self) -> str:
        """Describe the conditions as a phrase."""
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
                raise NotFound(
                    f"no items match {selection.describe()}; `memtier log` and `memtier sessions` "
                    "show what is stored"
                )
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
    """Return the items that contain every word of a query.

    Raises:
        NotFound: the query has no word.
    """
    words = store.tokenizer.words
    requested = set(words(query))
    if not requested:
        raise NotFound(f"{query!r} has no word to search for; use words of the lines")
    return [item.id for item in reader.list_items(ids) if requested <= set(words(item.text))]


def expand_to_dependents(
    store: Store, entries: Iterable[str], facts: Iterable[str]
) -> tuple[set[str], set[str]]:
    """Return the facts that rest on these items alone, and those that rest on others too.

    A summary or a timeline quotes its sources verbatim, and goes as a whole.
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
