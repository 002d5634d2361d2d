"""The journal events of limits, and of what hosts' models took; `events` lists them with all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memtier_plugin.core.event_payload import EventPayload, optional


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitEvent(EventPayload):
    """A limit cut something (``entries``, ``runs``), or is near (``near``)."""

    KIND: ClassVar[str] = "limit"

    limit: str = ""
    most: int = 0
    entries: tuple[str, ...] | None = optional()
    near: int | None = optional()
    runs: tuple[str, ...] | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEvent(EventPayload):
    """The tokens that a run's calls of one model took, as its host reports them.

    ``input`` was read anew, ``cached`` came from the provider's prompt cache and ``cache_write``
    went into it; a prompt is all three. A later event of the same run and model replaces it.
    """

    KIND: ClassVar[str] = "usage"

    model: str = ""
    calls: int = 1
    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
