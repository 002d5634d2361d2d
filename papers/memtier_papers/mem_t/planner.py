"""Plan the searches of `ask` for the model (`ask.planner`): by a trained policy, or by rules.

A policy file is one line of JSON with a checksum.  It names the actions and features of its
weights, so that a policy of another version is rejected and never misread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from memtier_papers.mem_t.decomposition import take_parts
from memtier_papers.mem_t.planning import (
    ACTIONS,
    FEATURES,
    PlanState,
    ShownLine,
    best_action,
    legal_queries,
    take_apart,
    words_of,
)
from memtier_papers.mem_t.settings import Planner
from memtier_papers.mem_t.tool_calls import FINISH, render_call
from memtier_papers.mem_t.tool_loop import ModelPolicy, Policy
from memtier_plugin.answering.llm import AnswerFinding, AnsweringModel, ModelAnswer
from memtier_plugin.answering.store_search import TURNS, StoreSearch
from memtier_plugin.core import formats
from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import parse_json_text

BY_MODEL: Final = "model"  # `ask.planner`: the model plans its searches itself
BY_RULES: Final = "rules"  # search for the parts of the question, one by one
VERSION: Final = 1
_MAX_BYTES: Final = 1_000_000

Weights = tuple[tuple[float, ...], ...]


def write_policy(
    path: Path, weights: Sequence[Sequence[float]], figures: Mapping[str, Any]
) -> None:
    """Write a policy atomically and durably.

    Args:
        figures: its training data and gain, for readers.

    Raises:
        LedgerWriteError: it cannot be written.
    """
    record = {
        "schema": formats.CHECKED_SCHEMA,
        "kind": "planner",
        "version": VERSION,
        "actions": [list(action) for action in ACTIONS],
        "features": list(FEATURES),
        "weights": [list(map(float, row)) for row in weights],
        "figures": dict(figures),
    }
    write_private_file(path, formats.seal(record).decode() + "\n", durable=True)


def read_policy(path: Path) -> Weights:
    """Return the weights of a policy.

    Raises:
        SettingsError: the file is missing, truncated, changed, or of another version.
    """
    try:
        with path.open("rb") as file:
            line = file.read(_MAX_BYTES).rstrip(b"\n")
    except OSError as error:
        raise SettingsError(f"ask.planner: {path} cannot be read: {error.strerror}") from None
    again = "train it again: memtier learn policy"
    if not formats.is_intact(line):
        raise SettingsError(f"ask.planner: {path} is truncated or was changed; {again}")
    try:
        record = parse_json_text(line)
        names = record["version"], record["actions"], record["features"]
        weights = tuple(tuple(map(float, row)) for row in record["weights"])
    except (ValueError, KeyError, TypeError):
        raise SettingsError(f"ask.planner: {path} holds no policy; {again}") from None
    if names != (VERSION, [list(action) for action in ACTIONS], list(FEATURES)):
        raise SettingsError(f"ask.planner: {path} is of another version of MemTier; {again}")
    sized = len(weights) == len(ACTIONS) and {len(row) for row in weights} == {len(FEATURES)}
    if not sized or not all(math.isfinite(weight) for row in weights for weight in row):
        raise SettingsError(f"ask.planner: {path} holds no policy; {again}")
    return weights


@dataclass(slots=True)
class TrainedPlanner:
    """Plans a question's searches by a policy; the model only answers (`tool_loop.Policy`).

    Attributes:
        model: the answering model; without one there is no answer.
    """

    weights: Weights
    search: StoreSearch
    model: AnsweringModel | None = None
    _state: PlanState | None = None
    _lines: list[ShownLine] = field(default_factory=list)

    def next_call(self, question: str, at: datetime, transcript: Sequence[str], left: int) -> str:
        """Return the policy's next call, as text; see `tool_loop.Policy`."""
        tokenize = self.search.store.tokenizer.words
        before = self._state or PlanState(take_apart(question, tokenize))
        new = self.search.findings[len(self._lines) :]
        self._lines += [ShownLine(words_of(finding.text, tokenize)) for finding in new]
        state = PlanState(before.question, before.taken, tuple(self._lines), len(new))
        action = best_action(self.weights, state)
        if ACTIONS[action].tool == FINISH:
            return render_call(FINISH, {"answer": "-", "cites": []})  # the model answers
        query = legal_queries(state)[action] or ""
        taken = (*state.taken, (action, query))
        self._state = PlanState(state.question, taken, state.lines, state.new)
        return render_call(ACTIONS[action].tool, {"query": query})

    def answer(
        self, question: str, at: datetime, findings: Sequence[AnswerFinding]
    ) -> ModelAnswer | None:
        """Return the model's answer from all lines shown."""
        return self.model.answer(question, at, findings) if self.model else None


@dataclass(slots=True)
class RulesPlanner:
    """Searches for a question, then for its parts; the model only answers (`tool_loop.Policy`).

    Attributes:
        model: the answering model; without one there is no answer.
    """

    model: AnsweringModel | None = None
    _taken: int = 0

    def next_call(self, question: str, at: datetime, transcript: Sequence[str], left: int) -> str:
        """Return the next search, as text; see `tool_loop.Policy`."""
        queries = [question, *take_parts(question)]
        if self._taken == len(queries):
            return render_call(FINISH, {"answer": "-", "cites": []})
        self._taken += 1
        return render_call(TURNS, {"query": queries[self._taken - 1]})

    def answer(
        self, question: str, at: datetime, findings: Sequence[AnswerFinding]
    ) -> ModelAnswer | None:
        """Return the model's answer from all lines shown."""
        return self.model.answer(question, at, findings) if self.model else None


def choose_planner(
    search: StoreSearch, model: AnsweringModel
) -> tuple[Policy, tuple[str, ...], str]:
    """Return the policy that `ask.planner` names, a note on it, and why another is used instead."""
    name = search.store.settings.of(Planner).planner
    if name == BY_MODEL:
        return ModelPolicy(model), (), ""
    if name == BY_RULES:
        return RulesPlanner(model), ("rules planned the searches",), ""
    try:
        weights = read_policy(Path(name).expanduser())
    except SettingsError as error:
        return ModelPolicy(model), (), f"{error}; the model planned the searches"
    why = ("a trained policy planned the searches",)
    return TrainedPlanner(weights, search, model), why, ""
