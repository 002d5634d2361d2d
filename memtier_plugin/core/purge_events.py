"""The journal event by which a machine confirms a purge; `events` lists it with all others."""

from __future__ import annotations

from memtier_plugin.core.event_payload import EventPayload


class PurgeReachedEvent(EventPayload, frozen=True, kw_only=True):
    """A machine that shares the project has nothing left of these purges of others."""

    KIND = "purge_reached"

    purges: tuple[str, ...]
    machine: str
