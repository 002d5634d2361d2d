"""What is meant by ids, words, a session, a sender, an agent or a time: entries and facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.times import to_iso
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.store import Store


@dataclass(frozen=True, slots=True)
class Selection:
    """Which items: those with one of the ``ids``, and those of which all the rest is true.

    ``query`` means the items that have every word of it; times are those when it was said.
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
        return bool(self.ids or self._narrowed)

    @property
    def _narrowed(self) -> bool:
        rest = (
            self.query, self.agent, self.sender, self.session, self.run, self.since, self.until
        )  # fmt: skip
        return any(one is not None for one in rest)

    def describe(self) -> str:
        """Return what is selected, in words."""
        names = ("query", "agent", "sender", "session", "run")
        said = [f"{name} {value!r}" for name in names if (value := getattr(self, name)) is not None]
        said += [f"since {to_iso(self.since)}"] if self.since else []
        said += [f"until {to_iso(self.until)}"] if self.until else []
        return ", ".join(said)


def select_items(store: Store, wanted: Selection) -> tuple[list[str], list[str]]:
    """Return the entries and the facts that are selected, also those that are hidden.

    Raises:
        NotFound: an id is not known, or nothing is as it is said.
        IndexProblem: what there is cannot be known.
    """
    with store.session() as reader:
        existing = reader.items(wanted.ids)
        if missing := [identity for identity in wanted.ids if identity not in existing]:
            raise NotFound(f"nothing has the id {missing[0]!r}; `memtier log` shows the ids")
        items = [*dict.fromkeys(wanted.ids)]
        if wanted._narrowed:
            found = _narrowed(store, reader, wanted)
            if not found:
                raise NotFound(f"nothing is there of {wanted.describe()}")
            items += found
        tiers = {item.id: item.tier for item in reader.list_items(items)}
    entries = sorted(identity for identity, tier in tiers.items() if tier == "episodic")
    return entries, sorted(tiers.keys() - set(entries))


def _narrowed(store: Store, reader: IndexReader, wanted: Selection) -> Sequence[str]:
    since, until = (at.timestamp() if at else None for at in (wanted.since, wanted.until))
    ids = reader.entries(
        agent=wanted.agent,
        sender=wanted.sender,
        session=wanted.session,
        run=wanted.run,
        since=since,
        until=until,
    )
    if wanted.query is None:
        return ids
    if wanted.agent is wanted.sender is wanted.session is wanted.run is None:
        facts = reader.facts(valid_since=since, valid_until=until)
        ids += [stored.item.id for stored in facts]
    return filter_by_words(store, reader, ids, wanted.query)


def filter_by_words(store: Store, reader: IndexReader, ids: Sequence[str], query: str) -> list[str]:
    """Return those of these items that have every word of a query."""
    words = store.tokenizer.words
    asked = set(words(query))
    if not asked:
        raise NotFound(f"{query!r} has no word to look for")
    return [item.id for item in reader.list_items(ids) if asked <= set(words(item.text))]


def expand_to_dependents(
    store: Store, entries: Iterable[str], facts: Iterable[str]
) -> tuple[set[str], set[str]]:
    """Return the facts that go with these items, and those that rest on others too.

    What is on a shelf (summaries, timelines) shows the very words of its sources, and goes whole.
    """
    with store.session() as reader:
        gone, entries = set(facts), set(entries)
        while True:
            touching = [*{*reader.facts_citing([*entries, *gone])} - gone]
            stored = reader.items(touching).values()
            more = {one.item.id for one in stored if getattr(one.item, "shelf", "")}
            more |= {*reader.dependent_facts([*entries, *gone])} - gone
            if not more:
                return gone, set(touching)
            gone |= more
