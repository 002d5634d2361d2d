"""Find what is forgotten together, and keep the forgets that wait for a person's decision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from memtier_plugin.core.errors import NotFound, NotGranted
from memtier_plugin.core.events import ForgetEvent, ProposeForgetEvent
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.retrieval.visibility import Asker, is_own, is_visible
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Store

# -- Find what is forgotten together: the requested items, and the facts that rest on them alone


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The ids of the entries and facts that were, or would be, hidden or brought back."""

    ids: tuple[str, ...]
    facts: tuple[str, ...]


def find_with_dependents(
    store: Store,
    agent: str,
    ids: Iterable[str],
    session: str | None,
    viewer: Asker | None = None,
) -> Forgotten:
    """Return these items and the entries of a session, with the facts that rest on them alone.

    Args:
        agent: whose session.
        viewer: whose entries and facts may be named; None for the person at the machine.

    Raises:
        NotFound: an id, or the session, is unknown.
        NotGranted: a fact is not the viewer's to hide.
        IndexProblem, LedgerError: the items cannot be read.
    """
    store.catch_up_all()
    with store.session() as reader:
        requested = list(dict.fromkeys(ids))
        by_id = reader.items(requested)
        if missing := [i for i in requested if i not in by_id or not _may_name(viewer, by_id[i])]:
            raise NotFound(f"no item has the id {missing[0]!r}; `memtier log` shows the ids")
        require_own(reader, viewer, (by_id[identity].item for identity in requested))
        if session is not None:
            stored = reader.items(reader.ids_in_session(agent, session))
            in_session = [i for i, line in stored.items() if _may_name(viewer, line)]
            if not in_session:
                raise NotFound(f"{agent} has no session {session!r}")
            requested += [identity for identity in in_session if identity not in by_id]
        items = [stored.item for stored in reader.items(requested).values()]
        entries = [item.id for item in items if isinstance(item, Entry)]
        facts = {item.id for item in items if isinstance(item, Fact)}
        facts.update(reader.dependent_facts(entries))
    return Forgotten(tuple(sorted(entries)), tuple(sorted(facts)))


def find_forgotten(store: Store, ids: Iterable[str], viewer: Asker | None = None) -> Forgotten:
    """Return these hidden items, with the facts on them that were hidden at the same time.

    Args:
        viewer: whose entries and facts may be named; None for the person at the machine.

    Raises:
        NotFound: an id is unknown, was purged, or is not hidden by `forget`.
        NotGranted: a fact is not the viewer's to bring back.
        IndexProblem, LedgerError: the items cannot be read.
    """
    store.catch_up_all()
    with store.session() as reader:
        requested = list(dict.fromkeys(ids))
        stored = reader.items(requested)
        hidden: set[str] = set()
        for identity in requested:
            if identity not in stored or not _may_name(viewer, stored[identity]):
                raise NotFound(f"no item has the id {identity!r}; `memtier diff` shows the ids")
            if not stored[identity].item.text:
                raise NotFound(f"{identity} was purged: nothing of it is left to bring back")
            events = reader.events([ForgetEvent.KIND], item=identity)
            if not stored[identity].state.forgotten or not events:
                raise NotFound(f"{identity} is not forgotten")
            together = {item for event in events for item in ForgetEvent.of(event).items}
            hidden |= {identity, *together.intersection(reader.dependent_facts([identity]))}
        require_own(reader, viewer, (stored[identity].item for identity in requested))
        brought = (stored.item for stored in reader.items(sorted(hidden)).values())
        items = [item for item in brought if item.text]  # what was purged since stays so
    return Forgotten(
        tuple(sorted(item.id for item in items if isinstance(item, Entry))),
        tuple(sorted(item.id for item in items if isinstance(item, Fact))),
    )


def _may_name(viewer: Asker | None, stored: Stored) -> bool:
    if viewer is None:
        return True
    item = stored.item
    return viewer.may_hide(item) if isinstance(item, Entry) else is_visible(item, viewer)


def require_own(reader: Reader, viewer: Asker | None, items: Iterable[Entry | Fact]) -> None:
    """Refuse to decide for a person on a fact that is not theirs; see `is_own`.

    Raises:
        NotGranted: one of the facts is such.
    """
    for item in items:
        if isinstance(item, Fact) and not is_own(reader, viewer, item):
            raise NotGranted(
                f"{item.id} rests on others' lines; a person decides: `memtier review`, `memtier "
                "forget`"
            )


# -- Forgets that a model or evidence asks for and a person decides: proposed, accepted or rejected
#
# A proposal is an event of the journal, and so is what became of it; nothing is hidden in between.


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
