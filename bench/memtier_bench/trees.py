"""`memtier bench trees`: train the small retrieval planner by trees, and measure its gain.

The counterpart of the lower half of Mem-T's Table 4: on held-out conversations, the share of the
gold turns shown by an untrained policy, one trained by chains (GRPO), one by trees (MoT-GRPO), and
one by trees without each of the two advantages.  They are compared with one recall of the question
with as many tokens as the tree-trained policy shows.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import memtier_plugin
from memtier_bench.datasets import Conversation, Dataset
from memtier_bench.metrics import mean
from memtier_bench.progress import Progress, no_progress
from memtier_bench.retrieval import (
    BenchRun,
    RecordedConversation,
    dataset_fingerprint,
    prepare_dataset,
)
from memtier_bench.tree_export import export_trees
from memtier_bench.tree_search import SearchableQuestion, follow_best, roll_out
from memtier_bench.tree_training import UPDATES, Recipe, first_weights, train_policy
from memtier_papers.mem_t.planning import take_apart
from memtier_plugin.answering.store_search import StoreSearch
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.formats import utc_now
from memtier_plugin.credit.verdict import paired_difference
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.store import Actor
from memtier_plugin.trust.redaction import Redactor

if TYPE_CHECKING:
    from memtier_bench.tree_search import Weights

SEEDS: Final = 3
_DRAWS: Final = 5  # rollouts per question in a measurement
_LINES: Final = 1000  # of the single recall, which is limited by tokens
_LEAST_TOKENS: Final = 16
UNTRAINED: Final = "untrained"
TREE: Final = "tree"
ARMS: Final[Mapping[str, Recipe | None]] = {
    UNTRAINED: None,
    "chain": Recipe("chain"),
    TREE: Recipe(),
    "tree, no intra": Recipe(intra=False),
    "tree, no inter": Recipe(inter=False),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy showed for a question: by its own draws, and by its likeliest calls."""

    drawn: float
    drawn_searches: float
    best: float
    searches: int
    tokens: int


def run_trees(
    data: Path,
    dataset: str = "locomo",
    facts: str = "dataset",
    limit: int | None = None,
    sample: int | None = None,
    seeds: int = SEEDS,
    updates: int = UPDATES,
    export: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train and measure on folds of conversations, each held out in turn; return a JSON report.

    Args:
        seeds: how many times everything is trained.
        updates: steps of training, each on a batch of questions.
        export: also write `retrieval.jsonl` and `construction.jsonl` to this folder.
        data, dataset, facts, limit, sample, overrides, progress: as for `run_retrieval`.

    Raises:
        Unsupported: there is only one conversation, or no rollouts differed.
        ImportFileError, SettingsError: as by `run_retrieval`.
    """
    loaded = load_conversations(dataset, data, facts, limit, sample)
    run = BenchRun(loaded=loaded, facts=facts, progress=progress or no_progress)
    with run.recorded_together(overrides) as recorded:
        folds = [[*searchable_questions(*parts)] for parts in recorded]
        outcomes, rewards, seconds = _measure(run, folds, seeds, updates)
        tokens = round(mean([o.tokens for o in _by_question(outcomes[TREE])]))
        once = [
            _recall_once(memory, question, tokens)
            for (memory, *_), fold in zip(recorded, folds, strict=True)
            for question in fold
        ]
        exported = export_trees(export, recorded, folds) if export else {}
    return {
        "kind": "trees",
        "dataset": dataset,
        "facts": facts,
        "facts_stored": run.facts_stored,
        "questions": sum(map(len, folds)),
        "folds": len(folds),
        "seeds": seeds,
        "updates": updates,
        "arms": {name: _report_arm(runs) for name, runs in outcomes.items()},
        "against_tree": _compare_to_tree(outcomes),
        "one_recall": {"coverage": mean(once), "tokens": tokens},
        "rewards": rewards,
        "training_seconds": round(seconds, 1),
        "exported": exported,
        "version": memtier_plugin.__version__,
        "fingerprint": dataset_fingerprint(loaded),
    }


def load_conversations(
    dataset: str, data: Path, facts: str, limit: int | None, sample: int | None
) -> Dataset:
    """Load a data set of several conversations; arguments and errors as for `run_trees`."""
    loaded = prepare_dataset(dataset, data, facts, limit, sample)
    if len(loaded.conversations) < 2:
        raise Unsupported(
            f"{dataset}: these questions are about one conversation; a policy is measured on "
            "conversations that it was not trained on"
        )
    return loaded


def searchable_questions(
    memory: MemTier, conversation: Conversation, recorded: RecordedConversation
) -> Iterator[SearchableQuestion]:
    """Yield the questions about an open conversation, for searching step by step."""
    recaller = Recaller(Actor(memory.store, memory.agent_id, utc_now, Redactor()))
    tokenize = memory.store.tokenizer.words
    latest = max(hit.item.timestamp for hit in recorded.hits.values())
    for question in conversation.questions:
        if not question.gold:
            continue
        viewer = recaller.viewer(None, question.at or latest)
        yield SearchableQuestion(
            id=question.id,
            asked=take_apart(question.text, tokenize),
            gold=question.gold,
            search=StoreSearch(memory.store, recaller, viewer),
            turn_of=recorded.names,
            tokenize=tokenize,
        )


_Runs = list[list[Outcome]]  # per seed, those of all questions in order


def _measure(
    run: BenchRun, folds: Sequence[Sequence[SearchableQuestion]], seeds: int, updates: int
) -> tuple[dict[str, _Runs], dict[str, list[float]], float]:
    """Return by arm the outcomes of each seed, the mean rewards of its updates, and the seconds."""
    outcomes: dict[str, _Runs] = {}
    rewards: dict[str, list[float]] = {}
    started, done = time.perf_counter(), 0
    total = len(ARMS) * seeds * len(folds)
    for name, recipe in ARMS.items():
        curves = []
        outcomes[name] = []
        for seed in range(seeds):
            row: list[Outcome] = []
            for held, fold in enumerate(folds):
                rest = [q for number, f in enumerate(folds) if number != held for q in f]
                weights = first_weights()
                if recipe:
                    weights, curve = train_policy(rest, recipe, seed, updates)
                    curves.append(curve)
                row += [judge_policy(question, weights, seed) for question in fold]
                done += 1
                run.progress("train", done, total)
            outcomes[name].append(row)
        if curves:
            rewards[name] = [round(mean(column), 4) for column in zip(*curves, strict=True)]
    return outcomes, rewards, time.perf_counter() - started


def judge_policy(question: SearchableQuestion, weights: Weights, seed: int) -> Outcome:
    """Return what a policy shows for a question."""
    chance = random.Random(f"{seed} {question.id}")
    ends = [roll_out(question, weights, chance)[-1].after for _ in range(_DRAWS)]
    best = follow_best(question, weights)
    return Outcome(
        drawn=mean([end.evidence for end in ends]),
        drawn_searches=mean([len(end.state.taken) for end in ends]),
        best=best.evidence,
        searches=len(best.state.taken),
        tokens=best.tokens,
    )


def _by_question(runs: _Runs) -> list[Outcome]:
    return [outcome for row in runs for outcome in row]


def _report_arm(runs: _Runs) -> dict[str, Any]:
    """Return the averages over questions, and their spread over the seeds."""
    drawn = [mean([o.drawn for o in row]) for row in runs]
    best = [mean([o.best for o in row]) for row in runs]
    everything = _by_question(runs)
    return {
        "coverage": mean(drawn),
        "spread": round(statistics.pstdev(drawn), 4),
        "by_seed": [round(value, 4) for value in drawn],
        "searches": mean([o.drawn_searches for o in everything]),
        "best_coverage": mean(best),
        "best_spread": round(statistics.pstdev(best), 4),
        "best_searches": mean([o.searches for o in everything]),
        "best_tokens": mean([o.tokens for o in everything]),
    }


def _compare_to_tree(outcomes: Mapping[str, _Runs]) -> dict[str, dict[str, float]]:
    """Return the tree-trained policy's paired difference to each other one, with interval."""
    means = {
        name: [mean([o.drawn for o in column]) for column in zip(*runs, strict=True)]
        for name, runs in outcomes.items()
    }
    rows = {}
    for name in outcomes:
        if name != TREE:
            difference = paired_difference(means[TREE], means[name])
            rows[name] = {
                "difference": round(difference.mean, 4),
                "low": round(difference.low, 4),
                "high": round(difference.high, 4),
            }
    return rows


def _recall_once(memory: MemTier, question: SearchableQuestion, tokens: int) -> float:
    """Return the gold turns' share shown by one recall of the question within a token budget."""
    at = question.search.viewer.at
    recall = memory.recall(
        question.asked.text, at=at, k=_LINES, token_budget=max(_LEAST_TOKENS, tokens)
    )
    turns = question.turn_of
    shown = {turns[s.entry] for hit in recall.injected for s in hit.sources if s.entry in turns}
    return len(shown & question.gold) / len(question.gold)
