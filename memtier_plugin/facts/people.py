"""The people of a project: what they are called, and which senders are one person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import LinkPeopleEvent, UnlinkPeopleEvent
from memtier_plugin.core.records import Entry, Fact, FactDraft
from memtier_plugin.core.structs import Record, check_methods
from memtier_plugin.facts.persons import NAME
from memtier_plugin.facts.summaries.selection import MIN_PERSON_LINES
from memtier_plugin.retrieval.visibility import linked_groups
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.tokenizer import normalise

THE_USER: Final = "@user"  # calls the person for whom hosts name no sender


class Person(Record, frozen=True):
    """A sender: what they are called, whom they are linked with, their lines and own facts."""

    id: str
    names: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    lines: int = 0
    facts: int = 0


@check_methods
class People:
    """The people of one project, for the person at the machine."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def everybody(self) -> list[Person]:
        """Return everybody who spoke, or of whom something is kept, in the order of their ids."""
        self._store.catch_up_all()
        with self._store.session() as reader:
            counts, names, groups = reader.people(), _all_names(reader), linked_groups(reader)
        ids = {*counts, *names, *(person for group in groups for person in group)}
        return [
            Person(
                person or THE_USER,
                tuple(names.get(person, ())),
                tuple(
                    sorted(
                        other or THE_USER
                        for group in groups
                        if person in group
                        for other in group - {person}
                    )
                ),
                *counts.get(person, (0, 0)),
            )
            for person in sorted(ids)
        ]

    def profiles(self, name: str | None = None) -> list[Any]:
        """Return what is known of the people who spoke often enough, by agent and sender.

        Args:
            name: only of those of this name, or id; all of them when None.

        Raises:
            NotFound: nobody of this name spoke often enough.
            SettingsError: memtier-papers is not installed.
        """
        self._store.catch_up_all()
        name = "user" if name == THE_USER else name
        with self._store.session():
            profiles = [*plugins.find_profiles(self._store, name)]
        if name is not None and not profiles:
            raise NotFound(f"nobody called {name!r} has said {MIN_PERSON_LINES} lines yet")
        return profiles

    def link(self, people: Iterable[str]) -> list[str]:
        """Say that senders are one person; their facts are then told to each of them.

        Args:
            people: ids or names; "" or "@user" is the user where a host names no sender.

        Raises:
            NotFound: one of them is unknown, or a name is that of several; nothing is linked.
            LedgerError: it was not written.
        """
        ids = self._ids(people)
        if len(ids) < 2:
            raise NotFound("name two people or more that are one; `memtier people list` shows them")
        self._append(LinkPeopleEvent(people=tuple(ids)))
        return ids

    def unlink(self, people: Iterable[str]) -> list[str]:
        """Say that senders are not whom they were linked with.

        Raises:
            NotFound: one of them is unknown, or a name is that of several; nothing is changed.
            LedgerError: it was not written.
        """
        ids = self._ids(people)
        self._append(UnlinkPeopleEvent(people=tuple(ids)))
        return ids

    def _append(self, event: LinkPeopleEvent) -> None:
        self._store.append_events([self._actor.event(event)], shared=True)

    def _ids(self, people: Iterable[str]) -> list[str]:
        everybody = self.everybody()
        return list(dict.fromkeys(_resolve(name, everybody) for name in people))


def stated_names(reader: Reader) -> dict[str, str]:
    """Return what senders said they are called, the newest by sender."""
    return {person: names[0] for person, names in _all_names(reader).items()}


def names_in(
    drafts: Iterable[Fact | FactDraft], sources: Sequence[Sequence[Entry]]
) -> dict[str, str]:
    """Return what senders say in these drafts that they are called."""
    return {
        entry.sender: draft.value
        for draft, entries in zip(drafts, sources, strict=True)
        if draft.relation == NAME and draft.subject in ("user", *(e.speaker for e in entries))
        for entry in entries
        if entry.sender
    }


def _all_names(reader: Reader) -> dict[str, list[str]]:
    """Return the names by which people called themselves, the newest first."""
    names: dict[str, list[str]] = {}
    facts = [s.item for s in reader.facts(relation=NAME, standing="current")]
    for fact in sorted(
        (fact for fact in facts if isinstance(fact, Fact)),
        key=lambda fact: (fact.valid_from or fact.timestamp, fact.id),
    ):
        if fact.personal and fact.subject == (fact.person or "user"):
            names.setdefault(fact.person or "", []).insert(0, fact.value)
    return names


def _resolve(name: str, everybody: Sequence[Person]) -> str:
    """Return the sender whose id, or else whose name, this is."""
    name = name or THE_USER
    if name not in [person.id for person in everybody]:
        named = [p.id for p in everybody if normalise(name)[0] in normalise(*p.names)]
        if len(named) != 1:
            count = f"{len(named)} people are" if named else "nobody is"
            raise NotFound(f"{count} called {name!r}; `memtier people list` shows the ids")
        [name] = named
    return "" if name == THE_USER else name
