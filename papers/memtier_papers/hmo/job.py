"""The job that rates new entries and updates personas and tiers.

Pending work is read from the index and from cursors into the journals, so that the next pass makes
up for one that was killed. A pass has bounded reads and writes. Priorities are computed for the
entries of the cache and the buffer, for new entries and for used ones; the archive is untouched
until something in it is used (HMO, sections 3.2 to 3.4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from memtier_papers.hmo.audience import AudiencePass, Due, KnownPersona, Pass, PriorityReport
from memtier_papers.hmo.events import PersonaEvent, PrioritiseEvent
from memtier_papers.hmo.persona import OwnWords
from memtier_papers.hmo.settings import Priority
from memtier_papers.hmo.tables import PriorityReader
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.formats import new_id
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.storage.store import Actor

_RECALLS: Final = 1_000  # recalls of an agent whose uses one pass counts
_PENDING: Final = timedelta(days=1)  # how long the end of a run is awaited


class Prioritiser:
    """Maintains importance, personas and tiers of a project, in each agent's own journal."""

    def __init__(self, actor: Actor, own_words: OwnWords) -> None:
        self._actor = actor
        self._own_words = own_words
        self._store = actor.store

    def run(self, limit: int = 2_000, stop: Callable[[], bool] = lambda: False) -> PriorityReport:
        """Rate up to ``limit`` new entries, and update personas and tiers.

        Args:
            stop: polled between agents and senders; what was written by then is complete.

        Raises:
            LedgerError: another process is doing the same, or nothing could be written.
            IndexProblem: the index cannot be read.
        """
        if self._store.paused or not self._store.settings.of(Priority).enabled:
            return PriorityReport()
        work = Pass(new_id(), self._actor.clock(), self._own_words)
        with self._store.exclusive("priority", 0.0), self._store.session():
            self._store.catch_up_all()
            unrated = self._reader.unrated(limit)
            work.report.left = sum(map(len, unrated.values())) >= limit
            by_agent: dict[str, dict[str, Due]] = {}
            for agent, sender in self._reader.audiences():
                due = Due(unrated.get((agent, sender), ()))
                by_agent.setdefault(agent, {})[sender] = due
            for agent, senders in by_agent.items():
                if stop():
                    work.report.left = True
                    break
                self._prioritise(work, agent, senders)
        return work.report

    def _prioritise(self, work: Pass, agent: str, senders: Mapping[str, Due]) -> None:
        """Write one agent's pending work at once, so that a kill leaves all of it or nothing."""
        actor = replace(self._actor, agent=agent)
        known = self._known_personas(agent)
        last = max((persona.number for persona in known.values()), default=0)
        work.number = 1 + max(last, self._reader.last_number(agent))
        cursors = self._count_uses(work, agent, senders)
        events: list[JournalEvent] = []
        for sender, due in senders.items():
            events += AudiencePass(actor, sender, work, known.get(sender, KnownPersona())).run(due)
        if cursors:
            events.append(
                actor.event(PrioritiseEvent(number=work.number, cursors=cursors), run=work.run)
            )
        self._store.append_events(events)

    def _known_personas(self, agent: str) -> dict[str, KnownPersona]:
        known: dict[str, KnownPersona] = {}
        events = self._store.reader().events([PersonaEvent.KIND], agent=agent)
        for persona in sorted(map(PersonaEvent.of, events), key=lambda each: each.number):
            before = known.get(persona.sender, KnownPersona())
            anchor = persona.items if persona.anchor else before.anchor
            known[persona.sender] = KnownPersona(persona.items, anchor, persona.number)
        return known

    # -- uses ----------------------------------------------------------------------------------

    def _count_uses(self, work: Pass, agent: str, senders: Mapping[str, Due]) -> dict[str, int]:
        """Add the uses since the last pass to each sender's work; return the new cursors.

        An entry is used, once per run, if it or a fact that rests on it was injected and the run
        finished.
        """
        reader = self._store.reader()
        recalls = self._reader.unread_recalls(agent, _RECALLS)
        cursors: dict[str, int] = {}
        waiting: set[str] = set()  # files with a run that may still finish
        runs: dict[str, bool] = {}
        counted: set[tuple[str, str]] = set()
        used: dict[str, tuple[int, datetime]] = {}
        for path, line, event in recalls:
            run = event.run_id
            ended = run is None or runs.setdefault(run, bool(reader.entries(agent=agent, run=run)))
            if path in waiting or (not ended and self._may_end(event, work.now)):
                waiting.add(path)
                continue
            cursors[path] = line
            recall = RecallEvent.of(event)
            if not ended or recall.purpose != "inject":
                continue
            for entry in self._evidence([ranked.item for ranked in recall.injected]):
                if (entry, run or event.id) in counted:
                    continue
                counted.add((entry, run or event.id))
                times, last = used.get(entry, (0, event.timestamp))
                used[entry] = times + 1, max(last, event.timestamp)
        work.report.left = work.report.left or (len(recalls) == _RECALLS and bool(cursors))
        for due in senders.values():
            due.uses = used
        return cursors

    def _evidence(self, items: Sequence[str]) -> set[str]:
        """Return the entries among these items, and the sources of the facts among them."""
        reader = self._store.reader()
        evidence = reader.evidence_ids(reader.rows_of(items).values())
        return {entry for entries in evidence.values() for entry in entries}

    @staticmethod
    def _may_end(event: JournalEvent, now: datetime) -> bool:
        return abs(now - event.timestamp) < _PENDING

    @property
    def _reader(self) -> PriorityReader:
        return self._store.reader().plugin_tables(PriorityReader)
