"""Review facts: list what waits, accept it or reject it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import AcceptEvent, RejectEvent
from memtier_plugin.core.records import Fact
from memtier_plugin.facts import views
from memtier_plugin.facts.rollback import time_after
from memtier_plugin.facts.views import FactView
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.storage.actor import Actor

_WAITING: Final = ("proposed", "held back")
_ACCEPTABLE: Final = (*_WAITING, "rejected", "reverted")


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """The review of one fact: ``now`` is its state, ``superseded`` what gave way to it."""

    id: str
    now: str
    superseded: tuple[str, ...] = ()


class FactReview:
    """Reviews the facts of a project in an agent's name."""

    def __init__(self, actor: Actor, viewer: str | None) -> None:
        """Take a project and the agent whose view limits the review; None for the person."""
        self._actor = actor
        self._store = actor.store
        self._viewer = viewer

    def proposals(self) -> list[FactView]:
        """Return the facts that wait for review, oldest first.

        They are proposed, or of a consolidation that was held back since recall fell.
        """
        self._store.catch_up_all()
        with self._store.session() as reader:
            stored = [*reader.facts(standing="waiting"), *reader.facts(standing="reverted")]
            undecided = [fact for fact in stored if fact.state.reviewed is None]
            waiting = views.view_facts(reader, undecided, self._viewer)
        return sorted((v for v in waiting if v.state in _WAITING), key=lambda view: view.fact.id)

    def accept(self, facts: Sequence[FactView]) -> list[ReviewOutcome]:
        """Let facts hold that wait, or that were rejected or rolled back; resolve them like new.

        Each keeps its origin; the journal keeps who accepted it and when.

        Raises:
            NotFound: one of them is not to be accepted; none is.
            LedgerError: this one, and those after it, were not accepted.
        """
        _refuse_unless(facts, _ACCEPTABLE, done=("active", "superseded"))
        outcomes = []
        for view in facts:
            identity = view.fact.id
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
        return outcomes

    def reject(self, facts: Sequence[FactView], why: str = "") -> list[ReviewOutcome]:
        """Decide that facts that wait are not to hold.

        Raises:
            NotFound: one of them does not wait; none is rejected.
            LedgerError: this one, and those after it, were not rejected.
        """
        _refuse_unless(facts, _WAITING, done=("rejected",))
        for view in facts:
            if view.state in _WAITING:
                actor = self._actor_after(view.fact.id)
                event = actor.event(RejectEvent(items=(view.fact.id,), why=why))
                self._store.append_events([event], shared=True)
        return [ReviewOutcome(view.fact.id, "rejected") for view in facts]

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


def _refuse_unless(
    views: Iterable[FactView], states: Sequence[str], *, done: Sequence[str]
) -> None:
    """Refuse facts that are in none of these states, and were not reviewed to this end before."""
    for view in views:
        was_reviewed = view.state in done and (view.fact.status == "proposed" or view.reviews)
        if view.state not in states and not was_reviewed:
            raise NotFound(
                f"the fact {view.fact.id} is {view.state} and does not wait for review; "
                "`memtier facts review` shows those that do, `memtier forget` hides one"
            )
