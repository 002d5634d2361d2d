"""`memtier learn export`: rows for trainers, and the index file that LLaMA-Factory reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from memtier_bench.progress import Progress, no_progress
from memtier_bench.retrieval import BenchRun
from memtier_bench.router_learning import export_router, label_questions
from memtier_bench.tree_export import CONSTRUCTION, export_trees
from memtier_bench.trees import load_conversations, searchable_questions
from memtier_plugin.core.files import write_private_file

# LLaMA-Factory finds data sets by this file in its `dataset_dir`; it accepts message-only rows.
DATASET_INFO: Final[dict[str, Any]] = {
    "memtier_construction": {
        "file_name": CONSTRUCTION,
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {
            "role_tag": "role",
            "content_tag": "content",
            "user_tag": "user",
            "assistant_tag": "assistant",
            "system_tag": "system",
        },
    }
}


def export_training_rows(
    folder: Path,
    data: Path,
    dataset: str = "locomo",
    facts: str = "dataset",
    limit: int | None = None,
    sample: int | None = None,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write the rows of the router and of the trees, one file per kind; count the rows.

    Args:
        data, dataset, facts, limit, sample, progress: as for `run_retrieval`.

    Raises:
        Unsupported, ImportFileError: as by `run_trees`.
        LedgerWriteError: a file cannot be written.
    """
    loaded = load_conversations(dataset, data, facts, limit, sample)
    run = BenchRun(loaded=loaded, facts=facts, progress=progress or no_progress)
    with run.recorded_together(None) as recorded:
        rows = [
            row
            for memory, conversation, known in recorded
            for row in label_questions(memory, conversation, known, run.count_asked)
        ]
        counts = export_router(folder, rows)
        folds = [[*searchable_questions(*parts)] for parts in recorded]
        counts |= export_trees(folder, recorded, folds)
    write_private_file(folder / "dataset_info.json", json.dumps(DATASET_INFO, indent=2) + "\n")
    return counts
