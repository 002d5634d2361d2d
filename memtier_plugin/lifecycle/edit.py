"""Turn the changes that a person makes to a text of memory into events; no line is rewritten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from memtier_plugin.core.codecs import check_methods
from memtier_plugin.core.errors import MessageError, NotFound, Paused
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.records import Entry, Message, Run
from memtier_plugin.core.structs import Record
from memtier_plugin.facts.service import FactService
from memtier_plugin.ingest.recorder import Recorder
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.index.records import Stored

EDITED_SESSION: Final = "edited"  # of a new line with no line above it


class Change(Record, frozen=True):
    """A change to one line of memory, or (``add``) a new one.

    Attributes:
        before: its words; "" for a new line.
        text: the new words; "" where it is to be forgotten.
        number: of the line in the edited text, or of one that was left out in the text before.
        after: the id of the line above a new one.
    """

    what: Literal["reword", "forget", "add"]
    id: str | None
    before: str
    text: str
    number: int
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a change: the ids of what is new, and of what is hidden now."""

    change: Change
    new: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**self.change.to_json(), "new": list(self.new), "hidden": list(self.hidden)}


@check_methods
class Editor:
    """Applies changes to facts and entries, for the person at the machine."""

    def __init__(self, actor: Actor, person: FactService) -> None:
        self._actor = actor
        self._store = actor.store
        self._person = person

    def plan(self, changes: Sequence[Change]) -> list[Done]:
        """Return what changes would hide; nothing is written.

        Raises:
            NotFound: a line to be changed was forgotten, superseded or changed meanwhile; the
                message names the number of each.
        """
        self._refuse_stale(changes)
        return [Done(change, hidden=self._would_hide(change)) for change in changes]

    def apply(self, changes: Sequence[Change]) -> Iterator[Done]:
        """Make changes, and yield each when it is written.

        A fact's new wording supersedes it; an entry's is recorded as an entry of the same time,
        session and person, and the old one is forgotten, with the facts that rest on it alone.

        Raises:
            NotFound: a line was changed meanwhile, and nothing is written; or new words were
                forgotten once. What was yielded is written.
            MessageError, LedgerError, IndexProblem: the same.
            Paused: the project is switched off.
        """
        if self._store.paused:
            raise Paused(f"project {self._store.project!r} is off; `memtier on` switches it on")
        self._refuse_stale(changes)
        for change in sorted(changes, key=lambda each: each.what == "add"):
            match change.what:
                case "forget":
                    yield Done(change, hidden=self._forget(change, dry_run=False))
                case "add":
                    yield Done(change, new=self._add(change))
                case "reword":
                    yield self._reword(change)

    # -- each kind of change -------------------------------------------------------------------

    def _forget(self, change: Change, *, dry_run: bool) -> tuple[str, ...]:
        assert change.id is not None
        forgotten = self._person.forget(ids=[change.id], dry_run=dry_run)
        return *forgotten.ids, *forgotten.facts

    def _would_hide(self, change: Change) -> tuple[str, ...]:
        if change.what == "add":
            return ()
        assert change.id is not None
        if change.what == "reword" and not isinstance(self._stored(change.id).item, Entry):
            return (change.id,)
        return self._forget(change, dry_run=True)

    def _reword(self, change: Change) -> Done:
        assert change.id is not None
        stored = self._stored(change.id)
        if not isinstance(stored.item, Entry):
            outcome = self._person.reword(change.id, change.text)
            return Done(change, (outcome.id,), outcome.superseded)
        new = self._record(stored, change.text, f"edit:{change.id}")
        return Done(change, new, self._forget(change, dry_run=False))

    def _add(self, change: Change) -> tuple[str, ...]:
        """Record new words: below an entry as words of its user, else as a fact to remember."""
        above = self._stored(change.after) if change.after else None
        if above is None or not isinstance(above.item, Entry):
            recorder = Recorder(self._actor)
            return (self._person.remember(recorder, change.text, EDITED_SESSION, None).id,)
        return self._record(above, change.text, "edit")

    def _record(self, stored: Stored, text: str, name: str) -> tuple[str, ...]:
        """Record words of the user where and when an entry is, as private as that one is."""
        entry = stored.item
        assert isinstance(entry, Entry)
        speaker = entry.speaker if entry.role == "user" else None
        message = Message(role="user", content=text, speaker=speaker)
        run = Run(
            agent=entry.agent_id,
            session=entry.session_id,
            run=f"{name}:{new_id()}",
            sender=entry.sender,
            observed_at=entry.observed_at,
            private=entry.private or stored.state.private,
        )
        actor = replace(self._actor, agent=entry.agent_id)
        entries = Recorder(actor).record([(run, [message])])
        if not entries:
            raise MessageError(f"{text[:40]!r} says nothing that can be recorded")
        return tuple(new.id for new in entries)

    # -- what others did meanwhile -------------------------------------------------------------

    def _stored(self, identity: str) -> Stored:
        with self._store.session() as reader:
            return reader.items([identity])[identity]

    def _refuse_stale(self, changes: Sequence[Change]) -> None:
        """Refuse changes to lines that are not there any more as they were given out."""
        self._store.catch_up_all()
        stale = []
        with self._store.session() as reader:
            stored = reader.items([change.id for change in changes if change.id])
            for change in changes:
                if change.id is None:
                    continue
                if change.id not in stored:
                    stale.append(f"line {change.number}: it was purged meanwhile")
                    continue
                state = stored[change.id].state
                if state.withdrawn:
                    stale.append(f"line {change.number}: it was forgotten or rejected meanwhile")
                elif state.superseded_by:
                    by = reader.items([state.superseded_by]).get(state.superseded_by)
                    words = f": {by.item.text[:60]!r}" if by else ""
                    stale.append(f"line {change.number}: it was superseded meanwhile{words}")
        if stale:
            remedy = "edit again, from what is there now"
            raise NotFound(f"{'; '.join(stale)}. Nothing was changed: {remedy}")
