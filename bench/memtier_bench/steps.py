"""`memtier bench steps`: the coverage of multi-turn retrieval after each step.

The loop of `ask.mode: tools` runs with a script in place of a model, on LoCoMo's multi-hop
questions: by the rules of `ask.planner: rules`, or by an oracle that knows how to split a question.
The oracle searches for the question itself, then for its subject with the speaker and the day of
each gold turn not shown yet (who and when, never the words of the turn). Each step is compared with
one recall of the question with as many tokens (Mem-T, section 3.1, phase II).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import memtier_plugin
from memtier_bench.datasets import DatasetQuestion
from memtier_bench.metrics import mean
from memtier_bench.progress import Progress, no_progress
from memtier_bench.retrieval import (
    BenchRun,
    RecordedConversation,
    dataset_fingerprint,
    prepare_dataset,
)
from memtier_papers.mem_t.planner import RulesPlanner
from memtier_papers.mem_t.tool_calls import FINISH, render_call
from memtier_papers.mem_t.tool_loop import Policy, retrieve
from memtier_plugin.answering.llm import AnswerFinding, ModelAnswer
from memtier_plugin.answering.store_search import MAX_STEPS, TURNS, StoreSearch
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.formats import utc_now
from memtier_plugin.core.records import Entry, count_tokens
from memtier_plugin.credit.verdict import paired_difference
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.store import Actor
from memtier_plugin.trust.redaction import Redactor

Planner = Literal["oracle", "rules"]
CATEGORY: Final = "multi-hop"
_LINES: Final = 1000  # of the single recall, which is limited by tokens
_LEAST_TOKENS: Final = 16


@dataclass(slots=True)
class _GoldSearch:
    """The searches of a question, and the gold turns to find."""

    gold: Mapping[str, Entry]
    search: StoreSearch

    @property
    def shown(self) -> set[str]:
        """The ids of the lines shown."""
        return {s.entry for f in self.search.findings for hit in f.sources for s in hit.sources}


@dataclass(slots=True)
class OraclePolicy:
    """Searches for the question, then for speaker and date of each missing gold turn."""

    state: _GoldSearch
    _tried: set[str] = field(default_factory=set)

    def next_call(self, question: str, at: datetime, transcript: Sequence[str], left: int) -> str:
        """Return the next search; finish once no gold turn is missing."""
        gold, done = self.state.gold, self.state.shown | self._tried
        missing = [gold[i] for i in sorted(gold) if i not in done]
        if not transcript:
            query = question
        elif missing:
            entry = missing[0]
            self._tried.add(entry.id)
            query = f"{entry.speaker or ''} {question} {entry.observed_at:%d %B %Y}"
        else:
            return render_call(FINISH, {"answer": "-", "cites": []})
        return render_call(TURNS, {"query": query})

    def answer(
        self, question: str, at: datetime, findings: Sequence[AnswerFinding]
    ) -> ModelAnswer | None:
        """Give no answer, as only coverage is measured."""
        return None


@dataclass(slots=True)
class MeasuredPolicy:
    """Records what was shown before each call of a policy, and at the end.

    Attributes:
        coverage: the share of the gold turns shown, after each step.
        tokens: of all lines shown, after each step.
    """

    policy: Policy
    state: _GoldSearch
    coverage: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    _transcript: Sequence[str] = ()

    def next_call(self, question: str, at: datetime, transcript: Sequence[str], left: int) -> str:
        """Return the policy's next call."""
        self._transcript = transcript
        if transcript:
            self._measure()
        return self.policy.next_call(question, at, transcript, left)

    def answer(
        self, question: str, at: datetime, findings: Sequence[AnswerFinding]
    ) -> ModelAnswer | None:
        """Give no answer, as only coverage is measured."""
        self._measure()
        return None

    def _measure(self) -> None:
        gold = self.state.gold
        self.coverage.append(_share(gold, self.state.shown))
        self.tokens.append(count_tokens("\n".join(self._transcript)))


def run_steps(
    data: Path,
    dataset: str = "locomo",
    limit: int | None = None,
    sample: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    planner: Planner = "oracle",
) -> dict[str, Any]:
    """Return the coverage of the gold turns after each step, and of a single recall.

    Args:
        planner: the planner of the searches: the oracle, or `ask.planner: rules`.
        data, dataset, limit, sample, overrides, progress: as for `run_retrieval`.

    Raises:
        Unsupported: the data set has no multi-hop questions among those.
        ImportFileError, SettingsError: as by `run_retrieval`.
    """
    loaded = prepare_dataset(dataset, data, "none", limit, sample)
    run = BenchRun(loaded=loaded, facts="none", progress=progress or no_progress)
    rows: list[list[tuple[float, float, int]]] = []
    for memory, conversation, recorded in run.recorded_conversations(overrides):
        for question in conversation.questions:
            if question.category == CATEGORY and question.gold:
                rows.append(_ask(memory, question, recorded, planner))
            run.count_asked()
    if not rows:
        raise Unsupported(f"{dataset}: none of these questions is {CATEGORY}")
    return {
        "kind": "steps",
        "dataset": dataset,
        "planner": planner,
        "questions": len(rows),
        "steps": [_report_step(step, [row[step] for row in rows]) for step in range(MAX_STEPS)],
        "version": memtier_plugin.__version__,
        "fingerprint": dataset_fingerprint(loaded),
    }


def _ask(
    memory: MemTier, question: DatasetQuestion, recorded: RecordedConversation, planner: Planner
) -> list[tuple[float, float, int]]:
    """Return for each step the coverage by steps, that of one recall, and the tokens of both."""
    gold = {}
    for turn in question.gold:
        item = recorded.hits[turn].item
        assert isinstance(item, Entry)
        gold[item.id] = item
    at = question.at or max(hit.item.timestamp for hit in recorded.hits.values())
    recaller = Recaller(Actor(memory.store, memory.agent_id, utc_now, Redactor()))
    search = StoreSearch(memory.store, recaller, recaller.viewer(None, at))
    state = _GoldSearch(gold, search)
    chosen: Policy = OraclePolicy(state) if planner == "oracle" else RulesPlanner()
    policy = MeasuredPolicy(chosen, state)
    answer = retrieve(policy, search, question.text, at)
    assert answer is None
    row = []
    once: dict[int, float] = {}
    for step in range(MAX_STEPS):
        done = min(step, len(policy.coverage) - 1)  # a question may need fewer
        tokens = max(_LEAST_TOKENS, policy.tokens[done])
        if tokens not in once:
            recall = memory.recall(question.text, at=at, k=_LINES, token_budget=tokens)
            shown = {source.entry for hit in recall.injected for source in hit.sources}
            once[tokens] = _share(gold, shown)
        row.append((policy.coverage[done], once[tokens], policy.tokens[done]))
    return row


def _share(gold: Collection[str], shown: set[str]) -> float:
    return len(shown & {*gold}) / len(gold)


def _report_step(step: int, rows: Sequence[tuple[float, float, int]]) -> dict[str, Any]:
    stepwise, once, tokens = zip(*rows, strict=True)
    difference = paired_difference(stepwise, once)
    return {
        "step": step + 1,
        "coverage": mean(stepwise),
        "one_recall": mean(once),
        "tokens": round(sum(tokens) / len(tokens)),
        "difference": round(difference.mean, 4),
        "low": round(difference.low, 4),
        "high": round(difference.high, 4),
    }
