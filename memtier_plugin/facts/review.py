"""Review what waits: accept it, reject it, or put another wording in its place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import AcceptEvent, PromoteEvent, RejectEvent, SupersedeEvent
from memtier_plugin.core.records import Entry, Fact, FactDraft, JournalEvent
from memtier_plugin.core.times import to_iso
from memtier_plugin.facts import review_note, review_queue
from memtier_plugin.facts.review_note import Audience
from memtier_plugin.facts.review_queue import WAITING, ReviewItem
from memtier_plugin.facts.rollback_plan import time_after
from memtier_plugin.facts.views import FactView
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.retrieval.contradictions import holds_since
from memtier_plugin.retrieval.visibility import Asker
from memtier_plugin.storage.actor import Actor

EXTRACTOR: Final = "review"  # of a fact in a reviewer's own words
_ACCEPTABLE: Final = (*WAITING, "rejected", "reverted")


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """The review of one fact: ``now`` is its state, ``superseded`` what gave way to it."""

    id: str
    now: str
    superseded: tuple[str, ...] = ()


class FactReview:
    """Reviews the facts of a project in an agent's name."""

    def __init__(self, actor: Actor, viewer: Asker | None) -> None:
        """Take a project and the asker whose view limits the review; None for the person."""
        self._actor = actor
        self._store = actor.store
        self._viewer = viewer

    def queue(self, audience: Audience | None = None) -> list[ReviewItem]:
        """Return all that waits, alike things together; see `review_queue.list_queue`."""
        return review_queue.list_queue(self._store, self._viewer, audience)

    def proposals(self) -> list[FactView]:
        """Return the facts that wait for review, oldest first."""
        self._store.catch_up_all()
        with self._store.session() as reader:
            return review_queue.waiting_facts(reader, self._viewer)

    def accept(self, facts: Sequence[FactView]) -> list[ReviewOutcome]:
        """Accept proposed, rejected or rolled back facts, resolving conflicts as for new ones.

        Each keeps its origin; the journal keeps who accepted it and when.  Of current facts that
        contradict each other the others give way to an accepted one.

        Raises:
            NotFound: one of them is not to be accepted; none is.
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
        review_note.forget_counts(self._store.project_folder.path)
        return outcomes

    def reject(self, facts: Sequence[FactView], why: str = "") -> list[ReviewOutcome]:
        """Decide that facts that wait, or contradict another, are not to hold.

        Raises:
            NotFound: one of them does not wait; none is rejected.
            LedgerError: this one, and those after it, were not rejected.
        """
        rivals = self._rivals(facts)
        _refuse_unless(facts, WAITING, done=("rejected",), contested=rivals)
        for view in facts:
            if view.state in WAITING or view.fact.id in rivals:
                actor = self._actor_after(view.fact.id)
                event = actor.event(RejectEvent(items=(view.fact.id,), why=why))
                self._store.append_events([event], shared=True)
        review_note.forget_counts(self._store.project_folder.path)
        return [ReviewOutcome(view.fact.id, "rejected") for view in facts]

    def refuse_decided(self, view: FactView) -> None:
        """Refuse a fact that neither waits nor is contradicted.

        Raises:
            NotFound: it does not.
        """
        _refuse_unless([view], WAITING, done=(), contested=self._rivals([view]))

    def replace_wording(self, view: FactView, entry: Entry) -> ReviewOutcome:
        """Put a reviewer's own wording, an entry, in the place of a fact that waits.

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
            extractor=EXTRACTOR,
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
        review_note.forget_counts(self._store.project_folder.path)
        return ReviewOutcome(ids[0], "active", (old.id,))

    def _rivals(self, facts: Iterable[FactView]) -> dict[str, tuple[FactView, ...]]:
        """Return, by id, what contradicts those of these facts that hold now."""
        with self._store.session() as reader:
            rivals = {
                view.fact.id: review_queue.find_contradicting(
                    reader, self._store, view.fact, self._viewer
                )
                for view in facts
                if view.state == "active"
            }
        return {identity: others for identity, others in rivals.items() if others}

    def _settle(self, fact: Fact, rivals: Sequence[FactView]) -> ReviewOutcome:
        """Let one of several facts that contradict each other hold alone."""
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
        """Return the actor with a clock that is past what the journal has of an item."""
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
    """Refuse facts that are in none of these states, and were not reviewed to this end before."""
    for view in views:
        was_reviewed = view.state in done and (view.fact.status == "proposed" or view.reviews)
        if view.state not in states and not was_reviewed and view.fact.id not in contested:
            raise NotFound(
                f"the fact {view.fact.id} is {view.state} and does not wait for review; "
                "`memtier review` shows those that do, `memtier forget` hides one"
            )
