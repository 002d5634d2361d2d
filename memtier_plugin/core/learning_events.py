"""The journal events of what was learned; `events` lists them with all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memtier_plugin.core.event_payload import EventPayload


class LearnEvent(EventPayload, frozen=True, kw_only=True):
    """What was learned was put into the project's settings, or (``reverts``) taken out again.

    ``what`` names what was trained ("weights"), ``removed`` and ``inserted`` are the edit of
    project.yaml, so that it can be undone to the byte, and ``figures`` is why it was applied.
    """

    KIND = "learn"

    what: str = ""
    removed: str = ""
    inserted: str = ""
    values: Mapping[str, Any] = {}
    figures: Mapping[str, Any] = {}
    reverts: str | None = None
