"""What a viewer may see: which facts, and ranked rows and pages of the log as hits.

`scopes` and `shared_scopes` of the reader enforce the same inside a query.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core.events import LinkPeopleEvent, UnlinkPeopleEvent
from memtier_plugin.core.records import Entry, Fact, Source
from memtier_plugin.core.results import Evidence, Hit
from memtier_plugin.core.settings.schema import AgentRights, Settings
from memtier_plugin.retrieval.signals import ScoredRow
from memtier_plugin.storage.index.overviews import Page
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import describe_state
from memtier_plugin.storage.store import Actor
from memtier_plugin.trust.confidences import WITHHELD

NEAR: Final = 1  # lines before and behind one that was found (docs/evaluation.md)
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
    return not belongs_to_asker(reader, asker, fact)


def belongs_to_asker(reader: Reader, asker: Asker | None, fact: Fact) -> bool:
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


@dataclass(frozen=True, slots=True)
class Viewer:
    """The viewer and the time of a query, which decide the visibility and age of rows.

    ``linked`` is what else the sender is called, ``read_people`` grants everybody's personal facts.
    Who reads all and is no agent ("") is the person at the machine.
    """

    agent: str
    sender: str | None
    read_all: bool
    at: datetime
    linked: frozenset[str] = frozenset()
    read_people: bool = False

    @property
    def asker(self) -> Asker | None:
        """Return the viewer as one that asks for facts; None for the person at the machine."""
        if self.read_all and not self.agent:
            return None
        people = self.linked | {self.sender or ""}
        return Asker(self.agent, people, self.read_all or self.read_people)

    def may_see(self, item: Entry | Fact) -> bool:
        """Return whether it may see an item; ``read_all`` opens summaries, but no confidences."""
        asker = self.asker
        if asker is None:
            return True
        if isinstance(item, Entry):
            return self.read_all or asker.hears(item)
        return is_visible(item, asker) or (self.read_all and bool(item.shelf))

    @property
    def people(self) -> frozenset[str] | None:
        """The people whose personal facts it may see; None for everybody's."""
        return asker.readable_people if (asker := self.asker) else None


def view_of(
    actor: Actor, settings: Settings, sender: str | None, at: datetime, *, searches: bool = True
) -> Viewer:
    """Return the view of an agent that asks for a sender, with the rights that its project grants.

    Args:
        searches: off leaves the index alone, and with it whom the sender is linked with.
    """
    rights = settings.agents.get(actor.agent) or AgentRights()
    sender = actor.mask_name(sender)
    linked = frozenset[str]()
    if searches and not actor.store.paused:
        linked = linked_people(actor.store.reader(), sender or "")
    if actor.everybody:
        return Viewer("", sender, True, at, linked)
    return Viewer(actor.agent, sender, rights.read_all, at, linked, rights.read_people)


# -- Build hits from ranked rows: items with their sources, limited to the viewer's rights


def read_hits(
    reader: Reader,
    ranked: Iterable[ScoredRow],
    viewer: Viewer,
    evidence: Mapping[int, Evidence],
) -> list[Hit]:
    """Return the hits of ranked rows, without those that the index holds no more.

    Nor with facts that the viewer may not see: whoever reads all entries has in scope the facts
    that rest on another agent's confidences.

    Args:
        evidence: by row, where it was gathered.
    """
    ranked = list(ranked)
    stored = reader.items_by_row([row for row, _, _ in ranked])
    hits = []
    for row, score, signals in ranked:
        item = stored[row].item if row in stored else None
        if isinstance(item, Entry):
            hits.append(entry_hit(stored[row], score, signals, evidence.get(row)))
        elif item is not None and viewer.may_see(item):
            hit = _fact_hit(reader, stored[row], item, viewer)
            hits.append(replace(hit, score=score, signals=signals, evidence=evidence.get(row)))
    return hits


def _fact_hit(reader: Reader, stored: Stored, item: Fact, viewer: Viewer) -> Hit:
    sources = reader.sources(item.id)
    if not viewer.read_all:
        # That another agent's private line exists is shown; its words, file and line are not.
        item = redact_for(item, viewer.asker)
        sources = [
            source if source.agent == viewer.agent else replace(source, file=None, line=None)
            for source in sources
        ]
    return Hit(
        item=item,
        score=0.0,
        signals={},
        sources=tuple(sources),
        weight=stored.state.weight,
        calls=stored.state.calls,
    )


def entry_hit(
    stored: Stored, score: float, signals: Mapping[str, float], evidence: Evidence | None = None
) -> Hit:
    """Return an entry as a hit, its own source with its ledger line."""
    entry = stored.item
    assert isinstance(entry, Entry)
    source = Source(
        agent=entry.agent_id,
        session=entry.session_id,
        entry=entry.id,
        file=stored.file,
        line=stored.line,
    )
    return Hit(
        item=entry,
        score=score,
        signals=signals,
        sources=(source,),
        weight=stored.state.weight,
        evidence=evidence,
        calls=stored.state.calls,
    )


def with_added(hits: tuple[Hit, ...], added: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return hits, and those of others that are not among them."""
    if not added:
        return hits
    ids = {hit.id for hit in hits}
    return (*hits, *(hit for hit in added if hit.id not in ids))


# -- Pages of the log as one viewer sees them: which hits stand on which, and their lines


class PageReader:
    """The pages of one project that a viewer may see."""

    def __init__(self, reader: Reader, viewer: Viewer) -> None:
        self._reader = reader
        self._viewer = viewer
        self._pages = reader.pages
        self._scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)

    def pages_of_entries(self, entries: Iterable[str]) -> dict[str, Page]:
        """Return, by entry id, the page that a visible entry stands on."""
        rows = self._reader.rows_of(entries)
        pages = self._pages.pages_of([*rows.values()], self._scopes)
        return {entry: pages[row] for entry, row in rows.items() if row in pages}

    def pages_of_hits(self, hits: Sequence[Hit]) -> list[Page]:
        """Return the pages that hits stand on or rest on, in the order of the hits."""
        entries = [source.entry for hit in hits for source in hit.sources]
        pages = self.pages_of_entries(entries)
        return list({pages[e].id: pages[e] for e in entries if e in pages}.values())

    def page(self, page_id: str) -> Page | None:
        """Return a page by its id; None where the viewer may see none of that id."""
        return self._pages.find_page(page_id, self._scopes)

    def hits_on(self, page: Page) -> list[Hit]:
        """Return what can be shown of a page, in order, each with its ledger line."""
        stored = self._reader.items_by_row(page.rows)
        return [entry_hit(stored[row], 0.0, {}) for row in page.rows if row in stored]

    def hits_near(self, page: Page, entries: Collection[str]) -> list[Hit]:
        """Return what can be shown of a page within `NEAR` lines of these entries; all without."""
        hits = self.hits_on(page)
        at = [number for number, hit in enumerate(hits) if hit.id in entries]
        if not at:
            return hits
        shown = {near for number in at for near in range(number - NEAR, number + NEAR + 1)}
        return [hit for number, hit in enumerate(hits) if number in shown]

    def visible_entries(self, entries: Iterable[str]) -> dict[str, Hit]:
        """Return, by id, those of these entries that exist and that the viewer may see."""
        rows = self._reader.rows_of(entries)
        visible = self._pages.visible_rows([*rows.values()], self._scopes)
        stored = self._reader.items_by_row([*visible])
        return {
            entry: entry_hit(stored[row], 0.0, {}) for entry, row in rows.items() if row in stored
        }

    def visible_facts(self, ids: Iterable[str]) -> dict[str, Stored]:
        """Return, by id, those of these facts that hold and that the viewer may see."""
        rows = self._reader.rows_of(ids)
        current = {candidate.row for candidate in self._reader.candidates(rows.values())}
        stored = self._reader.items_by_row([row for row in rows.values() if row in current])
        return {
            fact.item.id: fact
            for fact in stored.values()
            if isinstance(fact.item, Fact) and self._viewer.may_see(fact.item)
        }
