"""The journal events of limits, and of what hosts' models took; `events` lists them with all."""

from __future__ import annotations

from memtier_plugin.core.event_payload import EventPayload


class LimitEvent(EventPayload, frozen=True, kw_only=True):
    """A limit cut something (``entries``, ``runs``), or is near (``near``)."""

    KIND = "limit"

    limit: str = ""
    most: int = 0
    entries: tuple[str, ...] | None = None
    near: int | None = None
    runs: tuple[str, ...] | None = None


class UsageEvent(EventPayload, frozen=True, kw_only=True):
    """The tokens that a run's calls of one model took, as its host reports them.

    ``input`` was read anew, ``cached`` came from the provider's prompt cache and ``cache_write``
    went into it; a prompt is all three. A later event of the same run and model replaces it.
    """

    KIND = "usage"

    model: str = ""
    calls: int = 1
    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
