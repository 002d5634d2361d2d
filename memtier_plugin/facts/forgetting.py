"""Forgetting with dependents, proposals for a person to decide, and reminders of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from memtier_plugin.core.errors import LedgerWriteError, NotFound, NotGranted
from memtier_plugin.core.events import ForgetEvent, ProposeForgetEvent
from memtier_plugin.core.files import hold_lock, write_private_file
from memtier_plugin.core.formats import from_iso, parse_json_text
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.retrieval.visibility import Asker, belongs_to_asker, is_visible
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor, Store

# -- Find what is forgotten together: the requested items, and the facts that rest on them alone


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The ids of the entries and facts that were, or would be, hidden or restored."""

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
        NotGranted: the viewer may not hide a fact.
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
                raise NotFound(f"{agent} has no session {session!r}; `memtier sessions` lists them")
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
        NotGranted: the viewer may not restore a fact.
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
        items = [item for item in brought if item.text]  # what was purged since stays gone
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
    """Refuse to decide for another person on their fact; see `belongs_to_asker`.

    Raises:
        NotGranted: one of the facts belongs to another person.
    """
    for item in items:
        if isinstance(item, Fact) and not belongs_to_asker(reader, viewer, item):
            raise NotGranted(
                f"{item.id} rests on others' lines; a person decides: `memtier review`, `memtier "
                "forget`"
            )


# -- Proposals to forget, by a model or evidence: a person accepts or rejects them
#
# A proposal is an event of the journal, and so is the decision; nothing is hidden in between.


@dataclass(frozen=True, slots=True)
class ForgetProposal:
    """A fact that an agent's model asked to forget, or an item that ``evidence`` speaks against."""

    id: str
    item: str
    agent: str
    at: datetime
    evidence: str = ""


def pending_forgets(reader: Reader) -> list[ForgetProposal]:
    """Return the undecided proposals for visible items, oldest first."""
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
    """Propose to forget facts, or entries; return those that wait, including earlier ones.

    What a person decided to keep is not proposed again.

    Args:
        evidence: the reason, if no model asks for it.
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
    """Record a person's decision; hiding the item is another event."""
    event = ProposeForgetEvent(
        fact=proposal.item, proposal=proposal.id, accepted=accepted, why=why or None
    )
    actor.store.append_events([actor.event(event)], shared=True)


def _decisions(reader: Reader) -> list[ProposeForgetEvent]:
    events = map(ProposeForgetEvent.of, reader.events(kinds=[ProposeForgetEvent.KIND]))
    return [event for event in events if event.proposal is not None]


# -- Remind a person in the chat of pending reviews, at most once a day
#
# Pending items are counted after a run, when nobody waits for it; the next prompt reads one small
# file. The file belongs to this machine: all agents of a project share it, and it survives a
# restart. It holds hashes of names and counts, no text.

FILE: Final = "review.json"
COUNT_AGAIN: Final = timedelta(hours=1)  # after which pending items are counted again

_LOCK: Final = ".review.lock"
_LOCK_SECONDS: Final = 0.05  # a prompt is sent without the reminder rather than wait
_MAX_NAMES: Final = 200  # people remembered; the oldest are dropped first


class Audience(NamedTuple):
    """A part of the queue: what rests on this agent's lines of this sender alone."""

    agent: str
    sender: str | None = None


def is_counted(folder: Path, audience: Audience, now: datetime) -> bool:
    """Return whether pending items of an agent's person were found recently."""
    return _is_recent(_load(folder)["waiting"].get(_key(*audience)), now)


def note_count(folder: Path, audience: Audience, now: datetime, number: int) -> None:
    """Record how many items wait for an agent's person, for the next prompt."""
    key = _key(*audience)
    if number or _load(folder)["waiting"].get(key) is not None:
        _change(folder, lambda state: _put(state, "waiting", key, [now.isoformat(), number]))


def take_reminder(folder: Path, audience: Audience, now: datetime) -> int:
    """Return the number of pending items if a reminder is due, and record that it was given."""
    key, person, today = _key(*audience), _key("", audience.sender), f"{now:%F}"
    state = _load(folder)
    if not _is_due(state, key, person, today):
        return 0
    number = 0

    def remind(state: dict[str, Any]) -> dict[str, Any]:
        nonlocal number
        if _is_due(state, key, person, today):  # no other agent was faster
            number = int(state["waiting"][key][1])
            state = _put(state, "reminded", person, today)
        return state

    _change(folder, remind)
    return number


def forget_counts(folder: Path) -> None:
    """Have pending items counted again after a decision."""
    if _load(folder)["waiting"]:
        _change(folder, lambda state: {**state, "waiting": {}})


def _is_due(state: dict[str, Any], key: str, person: str, today: str) -> bool:
    counted = state["waiting"].get(key)
    waits = isinstance(counted, list) and len(counted) == 2 and isinstance(counted[1], int)
    return waits and counted[1] > 0 and state["reminded"].get(person) != today


def _is_recent(counted: Any, now: datetime) -> bool:
    """Return whether pending items were found recently."""
    with suppress(TypeError, ValueError, KeyError, IndexError):
        return bool(counted[1]) and timedelta(0) <= now - from_iso(counted[0]) < COUNT_AGAIN
    return False


def _key(agent: str, sender: str | None) -> str:
    identity = json.dumps([agent, sender or ""]).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(identity, digest_size=8).hexdigest()


def _put(state: dict[str, Any], part: str, key: str, value: object) -> dict[str, Any]:
    rest = {name: old for name, old in state[part].items() if name != key}
    return {**state, part: dict([*rest.items(), (key, value)][-_MAX_NAMES:])}


def _load(folder: Path) -> dict[str, Any]:
    """Return the state, or the usable part of a torn file."""
    try:
        content = parse_json_text((folder / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        content = None
    content = content if isinstance(content, dict) else {}
    parts = {name: content.get(name) for name in ("waiting", "reminded")}
    return {name: part if isinstance(part, dict) else {} for name, part in parts.items()}


def _change(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the state, unless another process holds it or the disk is full."""
    with suppress(LedgerWriteError), hold_lock(folder / _LOCK, _LOCK_SECONDS):
        before = _load(folder)
        after = change(before)
        if after != before:
            write_private_file(folder / FILE, json.dumps(after))
