"""Measure the gain of learned weights: both learners, under each scale of the signals.

`raw` is the published setting (MemTier, eq. 2, unnormalised BM25), `minmax` the same with BM25
scaled per query, `recall_first` the default profile.  With one data set its conversations are held
out in turn, with several the sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.progress import Progress, no_progress
from memtier_bench.weights import collect_examples, load_any
from memtier_papers.memtier.fit import Example
from memtier_papers.memtier.weight_job import problem_of
from memtier_papers.memtier.weights import LEARNERS, held_out, train
from memtier_plugin.core.settings.schema import Settings

SCALES: Final = {
    "raw": {"retrieval.profile": "paper"},
    "minmax": {"retrieval.profile": "paper", "paper.normalise": "minmax"},
    "recall_first": {"retrieval.profile": "recall_first"},
}


def run_learners(
    data: Sequence[Path],
    scales: Sequence[str] = (),
    sample: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train both learners on data sets; return their gains on held-out parts as JSON.

    Args:
        scales: some of `SCALES` [all].
        sample: the number of questions asked of each data set.

    Raises:
        ImportFileError: a path is no data set.
        ValueError: there are too few questions; says how many are needed.
    """
    tell = progress or no_progress
    loaded = [each for path in data for each in load_any(path)]
    profiles = {}
    for scale in scales or SCALES:
        profile = SCALES[scale]["retrieval.profile"]
        names = problem_of(profile, Settings(), ()).names
        sets = [[*collect_examples(each, names, SCALES[scale], tell, sample)] for each in loaded]
        if len(loaded) > 1:
            sets = [
                _grouped(examples, each.name) for examples, each in zip(sets, loaded, strict=True)
            ]
        problem = problem_of(profile, Settings(), sets)
        outcomes = [train(problem, learner, tell) for learner in LEARNERS]
        profiles[scale] = {
            "questions": len(problem.examples),
            "groups": len(problem.groups),
            "learners": [
                outcome.to_json() | {"by_group": held_out(outcome)} for outcome in outcomes
            ],
        }
    return {
        "kind": "learners",
        "dataset": ", ".join(each.name for each in loaded),
        "profiles": profiles,
        "version": memtier_plugin.__version__,
    }


def _grouped(examples: Sequence[Example], name: str) -> list[Example]:
    return [replace(example, group=name) for example in examples]
