"""Decide which facts an asker may see, and redact what it may not see of them.

`scopes` and `shared_scopes` of the reader enforce the same inside a query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from memtier_plugin.core.events import LinkPeopleEvent, UnlinkPeopleEvent
from memtier_plugin.core.records import Fact
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import State
from memtier_plugin.trust.confidences import SENSITIVE


@dataclass(frozen=True, slots=True)
class Asker:
    """An agent, and the person for whom it asks, by all that this person is called.

    A person is a sender, or "" for the user where a host names no sender.  ``reads_people`` grants
    an agent everybody's personal facts.
    """

    agent: str
    people: frozenset[str] = frozenset({""})
    reads_people: bool = False

    @property
    def readable_people(self) -> frozenset[str] | None:
        """The people whose personal facts it may see; None for everybody's."""
        return None if self.reads_people else self.people


def linked_people(reader: Reader, person: str) -> frozenset[str]:
    """Return all that a person is called, as `memtier people link` left it."""
    return next((group for group in linked_groups(reader) if person in group), frozenset({person}))


def linked_groups(reader: Reader) -> list[frozenset[str]]:
    """Return the groups of senders that are one person, each of two at least."""
    groups: list[frozenset[str]] = []
    for event in reader.events(kinds=[LinkPeopleEvent.KIND, UnlinkPeopleEvent.KIND]):
        if event.kind == UnlinkPeopleEvent.KIND:
            apart = frozenset(UnlinkPeopleEvent.of(event).people)
            groups = [group - apart for group in groups]
        else:
            linked = frozenset(LinkPeopleEvent.of(event).people)
            joined = linked.union(*(group for group in groups if group & linked))
            groups = [*(group for group in groups if not group & linked), joined]
    return [group for group in groups if len(group) > 1]


def is_visible(fact: Fact, asker: Asker | None) -> bool:
    """Tell whether an asker (None: the person at the machine) may see a fact."""
    if asker is None:
        return True
    if fact.private_to:
        agent, sender = fact.private_to
        return agent == asker.agent and sender in asker.people
    return not fact.personal or asker.reads_people or (fact.person or "") in asker.people


def is_withheld(fact: Fact, state: State, viewer: str | None) -> bool:
    """Tell whether a sensitive fact waits for review, and rests on no line of this viewer."""
    if viewer is None or state.reviewed == "accepted" or fact.status == "active":
        return False
    return fact.reason.startswith(SENSITIVE) and all(s.agent != viewer for s in fact.sources)


def redact_for(fact: Fact, asker: Asker | None) -> Fact:
    """Return a fact; without its quote where that is the very words of another agent's log."""
    if asker is None or fact.sources[0].agent == asker.agent or not fact.quote:
        return fact
    return replace(fact, quote="", span=None)
