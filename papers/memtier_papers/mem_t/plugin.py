"""The plugin of Mem-T: questions that a model, or a small policy, searches for step by step."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from memtier_plugin.core.hookspecs import AskMode, SearchedAnswer, hookimpl

if TYPE_CHECKING:
    from memtier_plugin.answering.llm import AnsweringModel
    from memtier_plugin.answering.store_search import StoreSearch


@hookimpl
def memtier_ask_modes() -> Mapping[str, AskMode]:
    """Return what answers with `ask.mode: tools`."""
    return {"tools": _answer_by_tools}


def _answer_by_tools(
    search: StoreSearch, model: AnsweringModel, question: str, at: datetime
) -> SearchedAnswer:
    from memtier_papers.mem_t.planner import choose_planner
    from memtier_papers.mem_t.tool_loop import retrieve

    policy, why, problem = choose_planner(search, model)
    return SearchedAnswer(retrieve(policy, search, question, at), why, problem)
