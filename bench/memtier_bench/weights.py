"""Data sets' questions as input for `memtier learn weights`: signals and answers.

Every question is asked in a separate project, recording its first hits and their signals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memtier_bench.datasets import Dataset, load_dataset, load_sets
from memtier_bench.progress import Progress
from memtier_bench.retrieval import BenchRun, select_questions
from memtier_papers.memtier.fit import Example
from memtier_papers.memtier.weight_job import CANDIDATES, signals_of
from memtier_plugin.core.errors import ImportFileError


def load_any(path: Path) -> tuple[Dataset, ...]:
    """Load a file or folder of any data set that `memtier bench` supports.

    Raises:
        ImportFileError: it is none of them.
    """
    problems = []
    for name in ("locomo", "longmemeval", "beam"):
        try:
            return (load_dataset(name, path),)
        except ImportFileError as error:
            problems.append(str(error))
    try:
        return load_sets(path)
    except ImportFileError as error:
        problems.append(str(error))
    raise ImportFileError(f"{path} is no data set that is known: {'; '.join(problems)}")


def collect_examples(
    loaded: Dataset,
    names: Sequence[str],
    overrides: Mapping[str, Any],
    progress: Progress,
    sample: int | None = None,
) -> Iterator[Example]:
    """Record each conversation and ask its questions.

    Args:
        names: the signals, in order.
        overrides: settings by key; floors and small blocks omit nothing here.
        sample: ask only this many of its questions, from each category its share.
    """
    if sample is not None:
        loaded = select_questions(loaded, Path(loaded.name), sample=sample)
    settings = {"retrieval.candidates": CANDIDATES, **overrides}
    run = BenchRun(loaded=loaded, facts="none", progress=progress)
    for memory, conversation, recorded in run.recorded_conversations(settings):
        for question in conversation.questions:
            hits = memory.recall(question.text, at=question.at).hits
            gold = {turn: number for number, turn in enumerate(sorted(question.gold))}
            turns = [recorded.turns([hit]) for hit in hits]
            yield Example(
                f"{loaded.name} {conversation.id}",
                signals_of(hits, names),
                tuple(
                    tuple(gold[turn] for turn in hit_turns if turn in gold) for hit_turns in turns
                ),
                len(gold),
            )
            run.count_asked()
