"""What goes when something is forgotten: the items named, and the facts that rest on them alone.

A tombstone in the journal hides it everywhere; the ledger keeps its line (design 4.6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.storage.store import Store


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What `forget` hid, or would hide: entries, and facts."""

    ids: tuple[str, ...]
    facts: tuple[str, ...]


def find_with_dependents(
    store: Store,
    agent: str,
    ids: Iterable[str],
    session: str | None,
    viewer: str | None = None,
) -> Forgotten:
    """Return what forgetting these ids, and this session of the agent, takes with it.

    Args:
        viewer: whose lines and facts may be named; None is the person at the machine.

    Raises:
        NotFound: an id, or the session, is not known.
        IndexProblem, LedgerError: what there is cannot be known.
    """
    store.catch_up_all()
    with store.session() as reader:
        wanted = list(dict.fromkeys(ids))
        visible = {
            identity
            for identity, stored in reader.items(wanted).items()
            if viewer is None or _owner(stored.item) in (None, viewer)
        }
        if missing := [identity for identity in wanted if identity not in visible]:
            raise NotFound(f"nothing has the id {missing[0]!r}; `memtier log` shows the ids")
        if session is not None:
            inside = reader.ids_in_session(agent, session)
            if not inside:
                raise NotFound(f"{agent} has no session {session!r}")
            wanted += [identity for identity in inside if identity not in visible]
        items = [stored.item for stored in reader.items(wanted).values()]
        entries = [item.id for item in items if isinstance(item, Entry)]
        facts = {item.id for item in items if isinstance(item, Fact)}
        facts.update(reader.dependent_facts(entries))
    return Forgotten(tuple(sorted(entries)), tuple(sorted(facts)))


def _owner(item: Entry | Fact) -> str | None:
    """Return the agent that alone may name an item, or None where all may."""
    if isinstance(item, Entry):
        return item.agent_id
    return item.private_to[0] if item.private_to else None
