"""Find what is forgotten together: the requested items, and the facts that rest on them alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.storage.store import Store


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What `forget` hid, or would hide: the ids of entries, and of facts."""

    ids: tuple[str, ...]
    facts: tuple[str, ...]


def find_with_dependents(
    store: Store,
    agent: str,
    ids: Iterable[str],
    session: str | None,
    viewer: str | None = None,
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
            if viewer is None or _owner(stored.item) in (None, viewer)
        }
        if missing := [identity for identity in requested if identity not in visible]:
            raise NotFound(f"nothing has the id {missing[0]!r}; `memtier log` shows the ids")
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


def _owner(item: Entry | Fact) -> str | None:
    """Return the agent that alone may name an item, or None where all may."""
    if isinstance(item, Entry):
        return item.agent_id
    return item.private_to[0] if item.private_to else None
