"""The settings of Mem-T."""

from __future__ import annotations

from memtier_plugin.core.structs import Record


class Formation(Record, frozen=True, kw_only=True):
    """How the consolidation asks its model: twice, by tool calls."""

    second_look: bool = False
    tools: bool = False


class Planner(Record, frozen=True, kw_only=True):
    """What plans the searches of `ask.mode: tools`."""

    planner: str = "model"
