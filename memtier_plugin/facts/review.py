"""The review queue: pending items in groups; accept, reject or reword them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import AcceptEvent, PromoteEvent, RejectEvent, SupersedeEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import FROM_GIT, REVIEWED, Entry, Fact, FactDraft, JournalEvent
from memtier_plugin.facts import forgetting, views
from memtier_plugin.facts.forgetting import Audience, ForgetProposal, note_count, pending_forgets
from memtier_plugin.facts.rollback import time_after
from memtier_plugin.facts.views import FactView, SourceLine
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.retrieval.duplicates import holds_since
from memtier_plugin.retrieval.visibility import Asker
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor, Store
from memtier_plugin.text.tokenizer import normalise

# -- The review queue: everything that waits for a person's decision, similar items together
#
# It contains pending facts, forgets that a model or evidence asks for, and current facts that
# contradict each other. Nothing of it is stored: it follows from the ledgers and the journal.

WAITING: Final = ("proposed", "held back")  # the states of pending facts
_ORDER: Final = (
    "conflict",
    "forget",
    "fact",
)  # what recalls get wrong until it is decided comes first

ReviewKind = Literal["conflict", "forget", "fact"]


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """An item to decide on.

    It is a pending fact, a ``forget`` of a fact or an entry (``id`` is the proposal's), or the
    newest of facts that contradict each other.  ``against`` are the current facts that it would
    replace.
    """

    kind: ReviewKind
    id: str
    fact: FactView | None = None
    against: tuple[FactView, ...] = field(default=())
    proposal: ForgetProposal | None = None
    line: SourceLine | None = None  # a log line to forget

    @property
    def text(self) -> str:
        """The text of the fact or the line."""
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
        """What similar items have in common, so that one decision may serve them all."""
        if self.fact is None or self.kind == "forget":
            return f"forget: {self.why}"
        fact = self.fact.fact
        if self.kind == "conflict":
            return f"{fact.subject}, {fact.relation}: {self.why}"
        if fact.extractor == FROM_GIT:  # what of a file is new in a commit
            return self.why
        return f"{fact.relation}: {self.why}" if self.why else fact.relation

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: the fact with its sources and reviews, and the question.

        For a log line ``fact`` is None, and ``sources`` has the line.
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
    """Return pending items: conflicts first, then facts, similar ones together, oldest first.

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
    """Count the items pending for the person at the machine, by kind."""
    conflicts = sum(1 for _ in _conflicts(reader, store, None))
    forgets = sum(1 for _ in waiting_forgets(reader, None))
    return {"facts": len(waiting_facts(reader, None)), "forgets": forgets, "conflicts": conflicts}


def note_waiting(store: Store, audience: Audience, now: datetime) -> None:
    """Count the items pending for an agent's person, for the next prompt to mention."""
    with store.session() as reader:
        note_count(store.project_folder.path, audience, now, _count_waiting(reader, audience))


def _count_waiting(reader: Reader, audience: Audience) -> int:
    """Count the pending facts that rest on one agent's lines of one sender."""
    waiting = waiting_facts(reader, Asker(audience.agent, frozenset({audience.sender or ""})))
    items = (ReviewItem("fact", view.fact.id, view) for view in waiting)
    return sum(_belongs_to(reader, item, audience) for item in items)


def waiting_facts(reader: Reader, viewer: Asker | None) -> list[FactView]:
    """Return the facts pending review, oldest first.

    They are proposed, or from a consolidation held back because recall fell.
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
    """Return whether two facts ever hold at the same time."""
    (start, _), (other_start, _) = holds_since(fact), holds_since(other)
    ends_before = fact.valid_to is not None and fact.valid_to <= other_start
    return not (ends_before or (other.valid_to is not None and other.valid_to <= start))


def _rivals(
    reader: Reader, store: Store, view: FactView, viewer: Asker | None
) -> tuple[FactView, ...]:
    """Return the facts that a pending one would replace if accepted."""
    since = holds_since(view.fact)
    contradicting = find_contradicting(reader, store, view.fact, viewer)
    return tuple(other for other in contradicting if holds_since(other.fact) <= since)


def _conflicts(reader: Reader, store: Store, viewer: Asker | None) -> Iterable[ReviewItem]:
    """Yield the newest of each set of current facts that contradict each other."""
    seen: set[str] = set()
    contested = reader.contested_facts(normalise(*store.settings.facts.single_valued))
    current = views.view_facts(reader, contested, viewer)
    for view in sorted(current, key=lambda view: holds_since(view.fact), reverse=True):
        if view.fact.id in seen:
            continue
        against = find_contradicting(reader, store, view.fact, viewer)
        seen.update(other.fact.id for other in against)
        if against:
            shown = views.show_fact(reader, view.fact.id, viewer)
            yield ReviewItem("conflict", view.fact.id, shown, against)


def waiting_forgets(reader: Reader, viewer: Asker | None) -> Iterable[ReviewItem]:
    """Yield the pending forgets of facts and entries that the viewer may see."""
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
    """Return whether everything an item shows rests on the lines of one agent and sender."""
    facts = [*([item.fact] if item.fact else []), *item.against]
    entries = {source.entry for view in facts for source in view.fact.sources}
    entries |= {item.line.source.entry} if item.line else set()
    lines: Sequence[object] = [stored.item for stored in reader.items(entries).values()]
    return len(lines) == len(entries) and all(
        isinstance(line, Entry)
        and (line.agent_id, line.sender or "") == (audience.agent, audience.sender or "")
        for line in lines
    )


# -- Review pending items: accept, reject or reword them

_ACCEPTABLE: Final = (*WAITING, "rejected", "reverted")


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """The review of one fact: ``now`` is its state, ``superseded`` the facts it replaced."""

    id: str
    now: str
    superseded: tuple[str, ...] = ()


class FactReview:
    """Reviews the facts of a project on behalf of an agent."""

    def __init__(self, actor: Actor, viewer: Asker | None) -> None:
        """Bind to a project and the asker whose view limits the review; None for the person."""
        self._actor = actor
        self._store = actor.store
        self._viewer = viewer

    def queue(self, audience: Audience | None = None) -> list[ReviewItem]:
        """Return all waiting items, similar ones together; see `list_queue`."""
        return list_queue(self._store, self._viewer, audience)

    def proposals(self) -> list[FactView]:
        """Return the facts pending review, oldest first."""
        self._store.catch_up_all()
        with self._store.session() as reader:
            return waiting_facts(reader, self._viewer)

    def accept(self, facts: Sequence[FactView]) -> list[ReviewOutcome]:
        """Accept proposed, rejected or rolled back facts, resolving conflicts as for new ones.

        Each keeps its origin; the journal records who accepted it and when.  Among current facts
        that contradict each other, the others give way to an accepted one.

        Raises:
            NotFound: one of them cannot be accepted; none is.
            LedgerError: this one, and those after it, were not accepted.
        """
        rivals = self._rivals(facts)
        _refuse_unless(facts, _ACCEPTABLE, done=("active", "superseded"), contested=rivals)
        outcomes = []
        for view in facts:
            identity = view.fact.id
            if identity in rivals:
                outcomes.append(self._settle(view.fact, rivals[identity]))
                continue
            if view.state not in _ACCEPTABLE:
                outcomes.append(ReviewOutcome(identity, view.state))
                continue
            actor = self._actor_after(identity)
            acceptance = actor.event(AcceptEvent(items=(identity,)))
            outcome = FactWriter(actor).write_accepted(self._load_fact(identity), acceptance)
            superseded = tuple(old for old, _ in outcome.superseded)
            state = "superseded" if identity in superseded else "active"
            others = tuple(old for old in superseded if old != identity)
            outcomes.append(ReviewOutcome(identity, state, others))
        forgetting.forget_counts(self._store.project_folder.path)
        return outcomes

    def reject(self, facts: Sequence[FactView], why: str = "") -> list[ReviewOutcome]:
        """Reject facts that are pending or contradict another.

        Raises:
            NotFound: one of them is not pending; none is rejected.
            LedgerError: this one, and those after it, were not rejected.
        """
        rivals = self._rivals(facts)
        _refuse_unless(facts, WAITING, done=("rejected",), contested=rivals)
        for view in facts:
            if view.state in WAITING or view.fact.id in rivals:
                actor = self._actor_after(view.fact.id)
                event = actor.event(RejectEvent(items=(view.fact.id,), why=why))
                self._store.append_events([event], shared=True)
        forgetting.forget_counts(self._store.project_folder.path)
        return [ReviewOutcome(view.fact.id, "rejected") for view in facts]

    def refuse_decided(self, view: FactView) -> None:
        """Refuse a fact that is neither pending nor contradicted.

        Raises:
            NotFound: the fact is neither.
        """
        _refuse_unless([view], WAITING, done=(), contested=self._rivals([view]))

    def replace_wording(self, view: FactView, entry: Entry) -> ReviewOutcome:
        """Replace a pending fact by a reviewer's own wording, recorded as an entry.

        The new fact rests on the entry alone, and has the subject, relation, validity and audience
        of the old one, which it supersedes.

        Raises:
            NotFound: the same was rejected or forgotten before.
            LedgerError, IndexProblem: nothing was written.
        """
        rivals, old, text = self._rivals([view]), view.fact, entry.content
        draft = FactDraft(
            subject=old.subject,
            relation=old.relation,
            value=_value_in(text, old),
            text=text,
            sources=(entry.source,),
            quote=text,
            span=(0, len(text)),
            extractor=REVIEWED,
            confidence=1.0,
            origin=entry.origin,
            valid_from=old.valid_from,
            private_to=old.private_to,
            person=old.person,
            personal=old.personal,
            tier=old.tier,
        )
        actor = self._actor_after(old.id)
        writer = FactWriter(actor)
        with writer.exclusive():
            outcome = writer.resolve([draft], ended=[old.id])
            ids = [*(fact.id for fact in outcome.added), *(twin for _, twin in outcome.restated)]
            if not ids:
                raise NotFound(f"{text[:40]!r} was rejected or forgotten; write it differently")
            events = [
                *writer.supersede_events(outcome, None),
                *self._give_way(actor, ids[0], [view, *rivals.get(old.id, ())], old),
                actor.event(
                    PromoteEvent(
                        items=(entry.id,),
                        facts=tuple(ids),
                        agent=entry.agent_id,
                        session=entry.session_id,
                    )
                ),
            ]
            writer.commit(outcome.added, events)
        forgetting.forget_counts(self._store.project_folder.path)
        return ReviewOutcome(ids[0], "active", (old.id,))

    def _rivals(self, facts: Iterable[FactView]) -> dict[str, tuple[FactView, ...]]:
        """Return, by id, what contradicts the current ones among these facts."""
        with self._store.session() as reader:
            rivals = {
                view.fact.id: find_contradicting(reader, self._store, view.fact, self._viewer)
                for view in facts
                if view.state == "active"
            }
        return {identity: others for identity, others in rivals.items() if others}

    def _settle(self, fact: Fact, rivals: Sequence[FactView]) -> ReviewOutcome:
        """Make one of several contradicting facts the only current one."""
        actor = self._actor_after(fact.id)
        writer = FactWriter(actor)
        with writer.exclusive():
            acceptance = actor.event(AcceptEvent(items=(fact.id,)))
            writer.commit([], [acceptance, *self._give_way(actor, fact.id, rivals, fact)])
        return ReviewOutcome(fact.id, "active", tuple(other.fact.id for other in rivals))

    def _give_way(
        self, actor: Actor, winner: str, losers: Iterable[FactView], since: Fact
    ) -> list[JournalEvent]:
        """Return the events by which facts give way to one that holds since another does."""
        until = to_iso(holds_since(since)[0])
        return [
            actor.event(SupersedeEvent(items=(loser.fact.id,), by=winner, valid_to=until))
            for loser in losers
            if loser.fact.id != winner
        ]

    def _load_fact(self, fact_id: str) -> Fact:
        with self._store.session() as reader:
            [stored] = reader.items([fact_id]).values()
        assert isinstance(stored.item, Fact)
        return stored.item

    def _actor_after(self, item: str) -> Actor:
        """Return the actor with a clock later than the journal's events about an item."""
        with self._store.session() as reader:
            history = reader.events(item=item)
        return replace(self._actor, clock=lambda: time_after(self._actor.clock(), history))


def _value_in(text: str, fact: Fact) -> str:
    """Return what a new wording says instead of a fact's value, or else all of it."""
    before, value, after = fact.text.partition(fact.value)
    around = len(before) + len(after)
    if value and len(text) > around and text.startswith(before) and text.endswith(after):
        return text[len(before) : len(text) - len(after)].strip() or text
    return text


def _refuse_unless(
    views: Iterable[FactView],
    states: Sequence[str],
    *,
    done: Sequence[str],
    contested: Collection[str],
) -> None:
    """Refuse facts in none of these states that were not reviewed with this result before."""
    for view in views:
        was_reviewed = view.state in done and (view.fact.status == "proposed" or view.reviews)
        if view.state not in states and not was_reviewed and view.fact.id not in contested:
            raise NotFound(
                f"the fact {view.fact.id} is {view.state} and does not wait for review; "
                "`memtier review` shows those that do, `memtier forget` hides one"
            )
