"""Find what is forgotten together: the requested items, and the facts that rest on them alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import ForgetEvent
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.retrieval.visibility import Asker, is_visible
from memtier_plugin.storage.store import Store


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
        IndexProblem, LedgerError: the items cannot be read.
    """
    store.catch_up_all()
    with store.session() as reader:
        requested = list(dict.fromkeys(ids))
        visible = {
            identity
            for identity, stored in reader.items(requested).items()
            if viewer is None or may_name(viewer, stored.item)
        }
        if missing := [identity for identity in requested if identity not in visible]:
            raise NotFound(f"no item has the id {missing[0]!r}; `memtier log` shows the ids")
        if session is not None:
            in_session = reader.ids_in_session(agent, session)
            if not in_session:
                raise NotFound(f"{agent} has no session {session!r}")
            requested += [identity for identity in in_session if identity not in visible]
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
        NotFound: an id is unknown, or is not hidden by `forget`.
        IndexProblem, LedgerError: the items cannot be read.
    """
    store.catch_up_all()
    with store.session() as reader:
        requested = list(dict.fromkeys(ids))
        stored = reader.items(requested)
        hidden: set[str] = set()
        for identity in requested:
            item = stored[identity].item if identity in stored else None
            if item is None or (viewer is not None and not may_name(viewer, item)):
                raise NotFound(f"no item has the id {identity!r}; `memtier diff` shows the ids")
            events = reader.events([ForgetEvent.KIND], item=identity)
            if not stored[identity].state.forgotten or not events:
                raise NotFound(f"{identity} is not forgotten")
            together = {item for event in events for item in ForgetEvent.of(event).items}
            hidden |= {identity, *together.intersection(reader.dependent_facts([identity]))}
        items = [item.item for item in reader.items(sorted(hidden)).values()]
    return Forgotten(
        tuple(sorted(item.id for item in items if isinstance(item, Entry))),
        tuple(sorted(item.id for item in items if isinstance(item, Fact))),
    )


def may_name(viewer: Asker, item: Entry | Fact) -> bool:
    """Tell whether an asker may see an item, and so hide it."""
    if isinstance(item, Fact):
        return is_visible(item, viewer)
    # An agent that asks for nobody in particular may name what anybody said to it.
    return item.agent_id == viewer.agent and (
        "" in viewer.people or (item.sender or "") in viewer.people
    )
