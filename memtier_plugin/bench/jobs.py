"""Run what the background process does for mechanisms that are off by default."""

from __future__ import annotations

from typing import Final

from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.memory import MemTier

# Settings with which a background job writes more than it does by default.
WRITTEN: Final = ("people.profiles", "summaries.long", "priority.enabled", "gate.mode")
_ALL: Final = 100_000  # lines, more than any conversation has


def run_background_jobs(memory: MemTier) -> None:
    """Bring summaries, priorities and the gate up to date, where one of `WRITTEN` was changed."""
    settings, defaults = flatten_settings(memory.settings), flatten_settings(Settings())
    if any(settings[key] != defaults[key] for key in WRITTEN):
        memory.summariser.run(limit=_ALL)
        memory.prioritiser.run(limit=_ALL)
        memory.gatekeeper.run(limit=_ALL)
