"""Measure how many bytes of the journal a recall takes, on a LoCoMo conversation.

    python scripts/measure_journal.py locomo.json [--questions 200]

Prints a JSON object: recalls, mean and p95 bytes of a recall's line, and the mean lines of a block.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from memtier_bench.datasets import load_dataset
from memtier_plugin import MemTier


def main() -> None:
    """Record the first conversation, ask its questions as prompts, and measure the journal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--questions", type=int, default=200)
    args = parser.parse_args()
    talk = load_dataset("locomo", args.data).conversations[0]
    injected = []
    with tempfile.TemporaryDirectory() as folder, MemTier.open(Path(folder) / "home") as memory:
        for _ in memory.record_sessions(talk.sessions):
            pass
        for number, question in enumerate(talk.questions[: args.questions]):
            recall = memory.recall(
                question.text, session_id="now", run_id=f"run-{number}", purpose="inject"
            )
            injected.append(len(recall.injected))
        paths = sorted((memory.folder / "journal").rglob("*.jsonl"))
        lines = [line for path in paths for line in path.read_bytes().splitlines(keepends=True)]
    sizes = sorted(len(line) for line in lines if b'"kind": "recall"' in line)
    report = {
        "recalls": len(sizes),
        "mean_bytes": round(statistics.mean(sizes)),
        "p95_bytes": sizes[int(0.95 * (len(sizes) - 1))],
        "mean_lines": round(statistics.mean(injected), 1),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
