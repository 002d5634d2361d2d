"""Train a planner for `ask` on a data set; write it only if it helps on held-out conversations."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from memtier_bench.metrics import mean
from memtier_bench.progress import Progress, no_progress
from memtier_bench.retrieval import BenchRun, dataset_fingerprint
from memtier_bench.tree_search import SearchableQuestion
from memtier_bench.tree_training import UPDATES, Recipe, first_weights, train_policy
from memtier_bench.trees import judge_policy, load_conversations, searchable_questions
from memtier_papers.mem_t.planner import write_policy
from memtier_plugin.credit.verdict import paired_difference

_SEED: Final = 42


def train_planner(
    path: Path,
    data: Path,
    dataset: str = "locomo",
    limit: int | None = None,
    sample: int | None = None,
    updates: int = UPDATES,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train by trees on all conversations; return the gain on each held-out one.

    The file is written if the gain in coverage over an untrained policy has a lower bound (95 %)
    above 0.

    Args:
        path: the file of the policy; in a folder it is named by its weights, and replaces no other.
        data, dataset, limit, sample, updates, progress: as for `run_trees`.

    Raises:
        Unsupported: there is only one conversation, or no rollouts differed.
        ImportFileError: as by `run_trees`.
        LedgerWriteError: the file cannot be written.
    """
    loaded = load_conversations(dataset, data, "dataset", limit, sample)
    run = BenchRun(loaded=loaded, facts="dataset", progress=progress or no_progress)
    with run.recorded_together(None) as recorded:
        folds = [[*searchable_questions(*parts)] for parts in recorded]
        ours: list[float] = []
        theirs: list[float] = []
        for held, fold in enumerate(folds):
            rest = [q for number, f in enumerate(folds) if number != held for q in f]
            weights, _ = train_policy(rest, Recipe(), _SEED, updates)
            ours += _coverage(fold, weights)
            theirs += _coverage(fold, first_weights())
        gain = paired_difference(ours, theirs)
        document: dict[str, Any] = {
            "dataset": dataset,
            "fingerprint": dataset_fingerprint(loaded),
            "questions": len(ours),
            "coverage": mean(ours),
            "untrained": mean(theirs),
            "gain": round(gain.mean, 4),
            "low": round(gain.low, 4),
            "high": round(gain.high, 4),
        }
        if gain.low > 0:
            weights, _ = train_policy([q for f in folds for q in f], Recipe(), _SEED, updates)
            if path.is_dir():
                path /= f"planner-{sha256(weights.tobytes()).hexdigest()[:8]}.json"
            write_policy(path, weights.tolist(), document)
    return {**document, "file": str(path) if gain.low > 0 else None}


def _coverage(questions: Sequence[SearchableQuestion], weights: Any) -> list[float]:
    return [judge_policy(question, weights, _SEED).drawn for question in questions]
