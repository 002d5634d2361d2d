"""The review queue: all that waits for a person's decision, in groups of alike ones.

It holds the facts that wait, the forgets that a model or evidence asks for, and current facts that
contradict each other. Nothing of it is stored: it follows from the ledgers and the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.facts import views
from memtier_plugin.facts.forget_proposals import ForgetProposal, pending_forgets
from memtier_plugin.facts.review_note import Audience, note_count
from memtier_plugin.facts.views import FactView, SourceLine
from memtier_plugin.retrieval.contradictions import holds_since
from memtier_plugin.retrieval.visibility import Asker
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Store
from memtier_plugin.text.normalise import normalise

WAITING: Final = ("proposed", "held back")  # the states of facts that wait
_ORDER: Final = (
    "conflict",
    "forget",
    "fact",
)  # what recalls get wrong until it is decided comes first

ReviewKind = Literal["conflict", "forget", "fact"]


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """A thing to decide.

    It is a fact that waits, a ``forget`` of a fact or an entry (``id`` is the proposal's), or the
    newest of facts that contradict each other.  ``against`` are the current facts that give way to
    it.
    """

    kind: ReviewKind
    id: str
    fact: FactView | None = None
    against: tuple[FactView, ...] = field(default=())
    proposal: ForgetProposal | None = None
    line: SourceLine | None = None  # of the log, to be forgotten

    @property
    def text(self) -> str:
        """What the fact or the line says."""
        if self.fact is not None:
            return self.fact.fact.text
        return self.line.entry.text if self.line and self.line.entry else ""

    @property
    def why(self) -> str:
        """Why it waits."""
        if self.kind == "conflict":
            return "contradicts another fact that holds"
        if self.proposal is not None:
            return self.proposal.evidence or f"the model of {self.proposal.agent} asks to forget it"
        assert self.fact is not None
        last = next((review.why for review in reversed(self.fact.reviews) if review.why), "")
        return self.fact.fact.reason or last

    @property
    def group(self) -> str:
        """What alike items have in common; one decision may serve them all."""
        if self.fact is None or self.kind == "forget":
            return f"forget: {self.why}"
        fact = self.fact.fact
        if self.kind == "conflict":
            return f"{fact.subject}, {fact.relation}: {self.why}"
        return f"{fact.relation}: {self.why}" if self.why else fact.relation

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: the fact with its sources and reviews, and why it is asked.

        Of a line of the log ``fact`` is None, and ``sources`` has the line.
        """
        head = {"kind": self.kind, "id": self.id, "why": self.why, "group": self.group}
        lines = [self.line.to_json()] if self.line else []
        document = {"fact": None, "sources": lines, "reviews": []}
        if self.fact is not None:
            document = self.fact.to_document()
        against = [view.to_json() for view in self.against]
        return {**head, "text": self.text, **document, "against": against}


def list_queue(
    store: Store, viewer: Asker | None, audience: Audience | None = None
) -> list[ReviewItem]:
    """Return what waits: conflicts first, then facts, alike ones together, oldest first.

    Args:
        viewer: the asker whose view limits the queue; None for the person at the machine.
        audience: only what rests on the lines of one agent and sender.
    """
    store.catch_up_all()
    with store.session() as reader:
        undecided = waiting_facts(reader, viewer)
        items = [*_conflicts(reader, store, viewer), *waiting_forgets(reader, viewer)]
        items += [
            ReviewItem("fact", view.fact.id, view, _rivals(reader, store, view, viewer))
            for view in (views.show_fact(reader, view.fact.id, viewer) for view in undecided)
        ]
        if audience is not None:
            items = [item for item in items if _belongs_to(reader, item, audience)]
    first: dict[str, str] = {}
    for item in items:
        first[item.group] = min(first.get(item.group, item.id), item.id)
    return sorted(items, key=lambda i: (_ORDER.index(i.kind), first[i.group], i.group, i.id))


def count_queue(store: Store, reader: Reader) -> dict[str, int]:
    """Count what waits for the person at the machine, by kind."""
    conflicts = sum(1 for _ in _conflicts(reader, store, None))
    forgets = sum(1 for _ in waiting_forgets(reader, None))
    return {"facts": len(waiting_facts(reader, None)), "forgets": forgets, "conflicts": conflicts}


def note_waiting(store: Store, audience: Audience, now: datetime) -> None:
    """Count what waits for an agent's person, for the next prompt to tell."""
    with store.session() as reader:
        note_count(store.project_folder.path, audience, now, _count_waiting(reader, audience))


def _count_waiting(reader: Reader, audience: Audience) -> int:
    """Count the facts that wait and rest on one agent's lines of one sender."""
    waiting = waiting_facts(reader, Asker(audience.agent, frozenset({audience.sender or ""})))
    items = (ReviewItem("fact", view.fact.id, view) for view in waiting)
    return sum(_belongs_to(reader, item, audience) for item in items)


def waiting_facts(reader: Reader, viewer: Asker | None) -> list[FactView]:
    """Return the facts that wait for review, oldest first.

    They are proposed, or of a consolidation that was held back since recall fell.
    """
    stored = [*reader.facts(standing="waiting"), *reader.facts(standing="reverted")]
    undecided = [fact for fact in stored if fact.state.reviewed is None]
    waiting = views.view_facts(reader, undecided, viewer)
    return sorted((v for v in waiting if v.state in WAITING), key=lambda view: view.fact.id)


def find_contradicting(
    reader: Reader, store: Store, fact: Fact, viewer: Asker | None
) -> tuple[FactView, ...]:
    """Return the current facts with another value of a fact's single-valued relation."""
    subject, relation, value = normalise(fact.subject, fact.relation, fact.value)
    if relation not in normalise(*store.settings.facts.single_valued):
        return ()
    current = reader.facts(
        subject=subject,
        relation=relation,
        standing="current",
        audience=fact.audience,
    )
    return tuple(
        view
        for view in views.view_facts(reader, current, viewer)
        if normalise(view.fact.value) != (value,) and _overlap(fact, view.fact)
    )


def _overlap(fact: Fact, other: Fact) -> bool:
    """Tell whether two facts hold at the same time at some point."""
    (start, _), (other_start, _) = holds_since(fact), holds_since(other)
    ends_before = fact.valid_to is not None and fact.valid_to <= other_start
    return not (ends_before or (other.valid_to is not None and other.valid_to <= start))


def _rivals(
    reader: Reader, store: Store, view: FactView, viewer: Asker | None
) -> tuple[FactView, ...]:
    """Return the facts that a waiting one takes the place of if it is accepted."""
    since = holds_since(view.fact)
    contradicting = find_contradicting(reader, store, view.fact, viewer)
    return tuple(other for other in contradicting if holds_since(other.fact) <= since)


def _conflicts(reader: Reader, store: Store, viewer: Asker | None) -> Iterable[ReviewItem]:
    """Yield the newest of each set of current facts that contradict each other."""
    asked: set[str] = set()
    contested = reader.contested_facts(normalise(*store.settings.facts.single_valued))
    current = views.view_facts(reader, contested, viewer)
    for view in sorted(current, key=lambda view: holds_since(view.fact), reverse=True):
        if view.fact.id in asked:
            continue
        against = find_contradicting(reader, store, view.fact, viewer)
        asked.update(other.fact.id for other in against)
        if against:
            shown = views.show_fact(reader, view.fact.id, viewer)
            yield ReviewItem("conflict", view.fact.id, shown, against)


def waiting_forgets(reader: Reader, viewer: Asker | None) -> Iterable[ReviewItem]:
    """Yield the forgets that wait, of facts and entries that the viewer may see."""
    for proposal in pending_forgets(reader):
        [stored] = reader.items([proposal.item]).values()
        entry = stored.item
        if isinstance(entry, Entry):
            if viewer is None or viewer.may_hide(entry):
                source = replace(entry.source, file=stored.file, line=stored.line)
                line = SourceLine(source, entry)
                yield ReviewItem("forget", proposal.id, proposal=proposal, line=line)
            continue
        for view in views.view_facts(reader, [stored], viewer):
            shown = views.show_fact(reader, view.fact.id, viewer)
            yield ReviewItem("forget", proposal.id, shown, proposal=proposal)


def _belongs_to(reader: Reader, item: ReviewItem, audience: Audience) -> bool:
    """Tell whether all that an item shows rests on the lines of one agent and sender."""
    facts = [*([item.fact] if item.fact else []), *item.against]
    entries = {source.entry for view in facts for source in view.fact.sources}
    entries |= {item.line.source.entry} if item.line else set()
    lines: Sequence[object] = [stored.item for stored in reader.items(entries).values()]
    return len(lines) == len(entries) and all(
        isinstance(line, Entry)
        and (line.agent_id, line.sender or "") == (audience.agent, audience.sender or "")
        for line in lines
    )
