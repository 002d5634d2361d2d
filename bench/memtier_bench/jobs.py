"""Run the background jobs of mechanisms that are off by default."""

from __future__ import annotations

from typing import Final

from memtier_papers.hmo.plugin import prioritiser_of
from memtier_papers.true_memory.gatekeeper import Gatekeeper
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.memory import MemTier

# Settings with which a background job writes more than by default.
WRITTEN: Final = ("people.profiles", "summaries.long", "priority.enabled", "gate.mode")
_ALL: Final = 100_000  # lines, more than any conversation has


def run_background_jobs(memory: MemTier) -> None:
    """Run each job with a changed setting in `WRITTEN`, until nothing is left."""
    settings, defaults = flatten_settings(memory.settings), flatten_settings(Settings())
    changed = {key.partition(".")[0] for key in WRITTEN if settings[key] != defaults[key]}
    if changed & {"people", "summaries"}:
        memory.summariser.run(limit=_ALL)
    if "priority" in changed:
        prioritiser_of(memory).run(limit=_ALL)
    if "gate" in changed:
        Gatekeeper(memory.actor).run(limit=_ALL)
