"""The settings of Mem-T."""

from __future__ import annotations

from typing import Literal

from memtier_plugin.core.structs import Record


class Formation(Record, frozen=True, kw_only=True):
    """How the consolidation asks its model: a second time, or by tool calls."""

    second_look: bool = False
    tools: bool = False


class Planner(Record, frozen=True, kw_only=True):
    """How a question is answered, and what plans the searches of `ask.mode: tools`."""

    mode: Literal["pages", "tools"] = "pages"
    planner: str = "model"
