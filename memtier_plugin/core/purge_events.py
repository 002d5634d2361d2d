"""The journal event by which a machine confirms a purge; `events` lists it with all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memtier_plugin.core.event_payload import EventPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReachedEvent(EventPayload):
    """A machine that shares the project has nothing left of these purges of others."""

    KIND: ClassVar[str] = "purge_reached"

    purges: tuple[str, ...]
    machine: str
