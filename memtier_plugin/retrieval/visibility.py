"""Decide which facts an asker may see, and redact what it may not see of them.

`scopes` and `shared_scopes` of the reader enforce the same inside a query.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core.events import LinkPeopleEvent, UnlinkPeopleEvent
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import describe_state
from memtier_plugin.trust.confidences import WITHHELD

# The states of facts that a person, or the rules, let stand, and of what stands nowhere.
_DECIDED: Final = ("active", "superseded", "forgotten")


class Asker(Struct, frozen=True):
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

    def hears(self, entry: Entry) -> bool:
        """Return whether a line was said to this agent by the person for whom it asks."""
        return entry.agent_id == self.agent and (entry.sender or "") in self.people

    def may_hide(self, entry: Entry) -> bool:
        """Return whether this asker may hide a line; without a sender, every sender's lines."""
        return entry.agent_id == self.agent and ("" in self.people or self.hears(entry))


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
    """Return whether an asker (None: the person at the machine) may see a fact."""
    if asker is None:
        return True
    if fact.private_to:
        agent, sender = fact.private_to
        return agent == asker.agent and sender in asker.people
    return not fact.personal or asker.reads_people or (fact.person or "") in asker.people


def is_withheld(reader: Reader, asker: Asker | None, stored: Stored) -> bool:
    """Return whether an item is a fact on which nobody has decided, kept from this asker.

    No other person is shown it before; and what is sensitive, or may be confided, no other agent.
    """
    fact, state = stored.item, stored.state
    if asker is None or isinstance(fact, Entry):
        return False
    if describe_state(state, fact.status == "active") in _DECIDED:
        return False
    if fact.reason.startswith(WITHHELD) and all(
        source.agent != asker.agent for source in fact.sources
    ):
        return True
    return not is_own(reader, asker, fact)


def is_own(reader: Reader, asker: Asker | None, fact: Fact) -> bool:
    """Return whether a fact is an asker's own, or rests on their lines alone.

    All are the person's at the machine, and an agent's that asks for nobody in particular.
    """
    if asker is None or "" in asker.people or (fact.person or "") in asker.people:
        return True
    return rests_on(reader, fact, asker.hears)


def rests_on(reader: Reader, fact: Fact, is_such: Callable[[Entry], bool]) -> bool:
    """Return whether all lines of a fact are there, and each is such a line."""
    entries = {source.entry for source in fact.sources}
    lines = [stored.item for stored in reader.items(entries).values()]
    such = (isinstance(line, Entry) and is_such(line) for line in lines)
    return len(lines) == len(entries) and all(such)


def redact_for(fact: Fact, asker: Asker | None) -> Fact:
    """Return a fact; without its quote where that is the very words of another agent's log."""
    if asker is None or fact.sources[0].agent == asker.agent or not fact.quote:
        return fact
    return replace(fact, quote="", span=None)
