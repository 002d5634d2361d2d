"""Forgets that a model or evidence asks for and a person decides: proposed, accepted or rejected.

A proposal is an event of the journal, and so is what became of it; nothing is hidden in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from memtier_plugin.core.events import ProposeForgetEvent
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.readers import Reader


@dataclass(frozen=True, slots=True)
class ForgetProposal:
    """A fact that an agent's model asked to forget, or an item that ``evidence`` speaks against."""

    id: str
    item: str
    agent: str
    at: datetime
    evidence: str = ""


def pending_forgets(reader: Reader) -> list[ForgetProposal]:
    """Return the proposals that nobody decided on, of what is still shown, oldest first."""
    decided = {decision.proposal for decision in _decisions(reader)}
    proposals = [
        ForgetProposal(event.id, asks.fact, event.agent_id, event.timestamp, asks.evidence or "")
        for event in reader.events(kinds=[ProposeForgetEvent.KIND])
        if (asks := ProposeForgetEvent.of(event)).proposal is None and event.id not in decided
    ]
    items = reader.items(proposal.item for proposal in proposals) if proposals else {}
    shown = {identity for identity, stored in items.items() if not stored.state.forgotten}
    return [proposal for proposal in proposals if proposal.item in shown]


def propose_forget(
    actor: Actor, items: Iterable[str], evidence: str | None = None
) -> tuple[str, ...]:
    """Ask a person to forget facts, or entries; return those that wait, or waited already.

    What a person decided to keep is not proposed again.

    Args:
        evidence: why, where no model asks for it.
    """
    with actor.store.session() as reader:
        waiting = {proposal.item for proposal in pending_forgets(reader)}
        kept = {decision.fact for decision in _decisions(reader) if not decision.accepted}
    requested = [item for item in dict.fromkeys(items) if item not in kept]
    new = [
        actor.event(ProposeForgetEvent(fact=item, evidence=evidence))
        for item in requested
        if item not in waiting
    ]
    if new:
        actor.store.append_events(new, shared=True)
    return tuple(requested)


def decide_forget(actor: Actor, proposal: ForgetProposal, *, accepted: bool, why: str = "") -> None:
    """Note what a person decided; hiding the item is another event."""
    event = ProposeForgetEvent(
        fact=proposal.item, proposal=proposal.id, accepted=accepted, why=why or None
    )
    actor.store.append_events([actor.event(event)], shared=True)


def _decisions(reader: Reader) -> list[ProposeForgetEvent]:
    events = map(ProposeForgetEvent.of, reader.events(kinds=[ProposeForgetEvent.KIND]))
    return [event for event in events if event.proposal is not None]
