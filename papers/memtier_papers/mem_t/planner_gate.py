"""The gate for a trained planner: do its searches find the project's known answers?

Questions and verdict are those of `regression.gate`; a question scores if the lines that its
searches show contain an answer.  Nothing is journalled, and no model is asked: if the model plans
at present, a policy must find as much as the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from memtier_papers.mem_t.planner import (
    BY_MODEL,
    BY_RULES,
    RulesPlanner,
    TrainedPlanner,
    Weights,
    read_policy,
)
from memtier_papers.mem_t.settings import Planner
from memtier_papers.mem_t.tool_loop import Policy, retrieve
from memtier_plugin.answering.store_search import StoreSearch
from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.results import Depth, Hit, RecallRequest
from memtier_plugin.credit.questions import Question
from memtier_plugin.credit.regression import GateReport, Progress, RegressionGate, no_progress
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.store import Actor

_PREVIEW: Final = "preview"  # the purpose that credits nobody

_MakePolicy = Callable[[StoreSearch], Policy]


class _QuietSearch(StoreSearch):
    """The searches of a question, without journalling."""

    def _recall(self, depth: Depth, query: str) -> Sequence[Hit]:
        viewer = self.viewer
        request = RecallRequest(purpose=_PREVIEW, sender=viewer.sender, at=viewer.at, depth=depth)
        return self.recaller.plan(query, viewer, request).hits


def check_planner(actor: Actor, weights: Weights, progress: Progress = no_progress) -> GateReport:
    """Compare a policy with the present planner.

    Raises:
        IndexProblem: the index cannot be used.
    """
    gate, at = RegressionGate(actor), actor.clock()
    questions = gate.questions(at)
    name, incumbent = _incumbent(actor.store.settings.of(Planner).planner)
    before = _measure(actor, questions, at, incumbent, "before", progress)
    after = _measure(
        actor, questions, at, lambda search: TrainedPlanner(weights, search), "after", progress
    )
    return gate.report(f"searches planned by {name}", questions, before, after)


def _incumbent(planner: str) -> tuple[str, _MakePolicy]:
    """Return the present planner that needs no model: another policy, or else the rules."""
    if planner not in (BY_MODEL, BY_RULES):
        try:
            weights = read_policy(Path(planner).expanduser())
            return planner, lambda search: TrainedPlanner(weights, search)
        except SettingsError:
            pass  # the model plans instead
    return BY_RULES, lambda search: RulesPlanner()


def _measure(
    actor: Actor,
    questions: Sequence[Question],
    at: datetime,
    make: _MakePolicy,
    label: str,
    progress: Progress,
) -> list[float]:
    """Return 1 for each question whose searches show an answer, else 0."""
    values = []
    for number, question in enumerate(questions, 1):
        recaller = Recaller(replace(actor, agent=question.agent))
        with actor.store.session():
            viewer = recaller.viewer(question.sender, at)
            search = _QuietSearch(actor.store, recaller, viewer)
            retrieve(make(search), search, question.query, at)
        values.append(float(not question.wanted.isdisjoint(search.shown)))
        progress(label, number, len(questions))
    return values
