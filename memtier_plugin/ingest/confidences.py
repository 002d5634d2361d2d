"""Tell which runs are confidences when they are recorded, and mark what was written before."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

from memtier_plugin.core.errors import IndexProblem, NotFound
from memtier_plugin.core.events import ConfideEvent, ForgetEvent
from memtier_plugin.core.records import Entry, Fact, JournalEvent, Message, Run
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.readers import Reader
from memtier_plugin.trust.confidences import Confidence, find_confidence

_LAST: Final = 50  # newest entries of a session among which its last run is looked up
_MOSTLY: Final = 10  # of which mostly suffice


class Confidences:
    """The confidences of one agent: decided when a run is written, marked when it is later."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def is_private(self, run: Run, messages: Sequence[Message]) -> bool:
        """Tell whether a run is a confidence.

        It is if its host or its own words say so, if its session is marked private, or if the last
        thing that was said before it announced a confidence.
        """
        if run.private or _confidences_in(messages):
            return True
        with suppress(IndexProblem), self._store.session() as reader:
            if self._is_marked(reader, run):
                return True
            before = self._last_run(reader, run)
            return any(confidence.after for confidence in _confidences_in(before))
        return False

    def mark_earlier(self, run: Run, messages: Sequence[Message]) -> None:
        """Mark what a recorded run calls a confidence: what was said before it, or all of it.

        Raises:
            LedgerError, IndexProblem: it is not marked.
        """
        confidences = _confidences_in(messages)
        if any(confidence.whole for confidence in confidences):
            self.mark_session(run.session, run.sender)
        elif any(confidence.before for confidence in confidences):
            with self._store.session() as reader:
                items = [entry.id for entry in self._last_run(reader, run)]
            self._mark(items)

    def mark_session(self, session: str, sender: str | None = None) -> tuple[str, ...]:
        """Make a session a confidence, what is yet to be said in it included; return its entries.

        Facts that rest on them alone are forgotten, and so are the summaries that quote them.

        Args:
            sender: only what this person says in it.

        Raises:
            NotFound: the agent has no such session.
            LedgerError, IndexProblem: it is not marked.
        """
        self._store.catch_up_all()
        with self._store.session() as reader:
            stored = reader.items(reader.ids_in_session(self._actor.agent, session))
        items = [i for i, line in stored.items() if _is_of(line.item, sender)]
        if not items:
            raise NotFound(f"{self._actor.agent} has no session {session!r}")
        self._mark(items, session, sender)
        return tuple(items)

    def _mark(
        self, items: Collection[str], session: str | None = None, sender: str | None = None
    ) -> None:
        if not items:
            return
        with self._store.session() as reader:
            facts = [
                stored.item.id
                for stored in reader.items(reader.facts_citing(items)).values()
                if isinstance(stored.item, Fact) and stored.item.shelf
            ]
            facts += [
                stored.item.id
                for stored in reader.items(reader.dependent_facts(items)).values()
                if isinstance(stored.item, Fact) and not stored.item.private_to
            ]
        marked = ConfideEvent(items=tuple(items), session=session, sender=sender)
        events: list[JournalEvent] = [self._actor.event(marked)]
        if facts:
            events.append(self._actor.event(ForgetEvent(items=tuple(dict.fromkeys(facts)))))
        self._store.append_events(events, shared=True)

    def _is_marked(self, reader: Reader, run: Run) -> bool:
        """Tell whether the session of a run was marked private as a whole."""
        marks = reader.events(kinds=[ConfideEvent.KIND], agent=run.agent)
        sessions = map(ConfideEvent.of, marks)
        return any(
            mark.session == run.session and mark.sender in (None, run.sender) for mark in sessions
        )

    def _last_run(self, reader: Reader, run: Run) -> list[Entry]:
        """Return what was said last in the session of a run before it."""
        rows = reader.newest_in_session(
            run.agent, run.session, reader.scopes(run.agent, run.sender), _LAST
        )
        last: list[Entry] = []
        for newest in (rows[:_MOSTLY], rows):
            stored = reader.items_by_row(newest)
            entries = [stored[row].item for row in newest if row in stored]
            earlier = [e for e in entries if isinstance(e, Entry) and e.run_id != run.run]
            last = [entry for entry in earlier if entry.run_id == earlier[0].run_id]
            if len(last) < len(earlier):  # or else it may begin before them
                break
        return last


def _is_of(item: Entry | Fact, sender: str | None) -> bool:
    return sender is None or (isinstance(item, Entry) and item.sender == sender)


def _confidences_in(messages: Sequence[Message | Entry]) -> list[Confidence]:
    """Return what the people who speak make confidences."""
    spoken = (m.content for m in messages if m.role == "user" and m.origin in (None, "user"))
    return [confidence for text in spoken if (confidence := find_confidence(text))]
