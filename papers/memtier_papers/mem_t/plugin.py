"""The plugin of Mem-T: a model that forms facts, and sorts them in, by tool calls."""

from __future__ import annotations

from memtier_plugin.core.hookspecs import ModelPass, hookimpl
from memtier_plugin.core.settings.schema import Settings


@hookimpl
def memtier_model_pass(settings: Settings) -> ModelPass | None:
    """Ask by tool calls where `consolidation.tools` is on."""
    if not settings.consolidation.tools:
        return None
    from memtier_papers.mem_t.tool_calls import ToolEvolution, ToolExtractor

    return ModelPass(ToolExtractor, ToolEvolution)
