"""An agent at work on a project: the context passed to every service."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memtier_plugin.core.events import new_event
from memtier_plugin.core.formats import Clock
from memtier_plugin.core.records import EventPayload, JournalEvent
from memtier_plugin.storage.store import Store
from memtier_plugin.trust.redaction import Redactor


@dataclass(frozen=True, slots=True)
class Actor:
    """An agent at work on a project, with the clock and the redactor in use.

    ``everybody``: it is the person at the machine, who reads what every agent recorded.
    """

    store: Store
    agent: str
    clock: Clock
    redactor: Redactor
    everybody: bool = False

    def mask_name(self, name: str | None) -> str | None:
        """Return the name of a session, run or sender as it is written: without secrets."""
        return name and self.redactor.redact_name(name)

    def event(
        self,
        payload: EventPayload,
        *,
        run: str | None = None,
        at: datetime | None = None,
        event_id: str | None = None,
    ) -> JournalEvent:
        """Build a journal event in the agent's name.

        Args:
            run: the run that it belongs to.
            at: when it happened; now, unless given.
            event_id: a new id, unless given.
        """
        when = at or self.clock()
        return new_event(payload, agent=self.agent, at=when, run=run, event_id=event_id)
