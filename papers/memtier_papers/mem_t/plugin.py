"""Mem-T's plugin: a model, or a small policy, that searches and forms facts by tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from memtier_papers.mem_t.settings import Formation, Planner
from memtier_plugin.core.hookspecs import AskMode, ModelPass, SearchedAnswer, hookimpl
from memtier_plugin.core.structs import Record

if TYPE_CHECKING:
    from memtier_plugin.answering.llm import AnsweringModel
    from memtier_plugin.answering.store_search import StoreSearch
    from memtier_plugin.core.settings.schema import Settings


@hookimpl
def memtier_settings() -> Mapping[type[Record], str]:
    """Return the settings of formation and of the planner."""
    return {Formation: "consolidation", Planner: "ask"}


@hookimpl
def memtier_ask_modes() -> Mapping[str, AskMode]:
    """Return the answering mode for `ask.mode: tools`."""
    return {"tools": _answer_by_tools}


@hookimpl
def memtier_model_pass(settings: Settings) -> ModelPass | None:
    """Ask by tool calls if `consolidation.tools` is on, and a second time if `second_look` is."""
    chosen = settings.of(Formation)
    if not (chosen.tools or chosen.second_look):
        return None
    from memtier_papers.mem_t.formation import ToolEvolution, ToolExtractor
    from memtier_papers.mem_t.second_look import look_again
    from memtier_plugin.facts.extraction.llm import ChatEvolution, ChatExtractor

    return ModelPass(
        ToolExtractor if chosen.tools else ChatExtractor,
        ToolEvolution if chosen.tools else ChatEvolution,
        look_again if chosen.second_look else None,
    )


def _answer_by_tools(
    search: StoreSearch, model: AnsweringModel, question: str, at: datetime
) -> SearchedAnswer:
    from memtier_papers.mem_t.planner import choose_planner
    from memtier_papers.mem_t.tool_loop import retrieve

    policy, why, problem = choose_planner(search, model)
    return SearchedAnswer(retrieve(policy, search, question, at), why, problem)
