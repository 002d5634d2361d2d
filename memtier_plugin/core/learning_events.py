"""The journal events of what was learned; `events` lists them with all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from memtier_plugin.core.event_payload import EventPayload, optional


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnEvent(EventPayload):
    """What was learned was put into the project's settings, or (``reverts``) taken out again.

    ``what`` names what was trained ("weights"), ``removed`` and ``inserted`` are the edit of
    project.yaml, so that it can be undone to the byte, and ``figures`` is why it was applied.
    """

    KIND: ClassVar[str] = "learn"

    what: str = ""
    removed: str = ""
    inserted: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    reverts: str | None = optional()
