"""Many processes write and read one agent's memory at once."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtier_plugin.memory import MemTier
from tests.proofs.checks import assert_equal_to_rebuild, bad_lines, child, outputs, show
from tests.proofs.processes import PROJECT, SESSIONS

WRITERS, RUNS, READERS = 8, 500, 2


@pytest.mark.slow
def test_eight_writers_and_two_readers(home: Path, tmp_path: Path) -> None:
    """Eight processes' runs into two sessions are all there, in turn, as a rebuild finds them."""
    done = tmp_path / "done"
    started = time.perf_counter()
    readers = [child("read", home, done) for _ in range(READERS)]
    try:
        writers = [child("write", home, f"w{n}", RUNS) for n in range(WRITERS)]
        wrote = [json.loads(text) for text in outputs(writers)]
        seconds = time.perf_counter() - started
    finally:
        done.touch()
    recalled = [json.loads(text) for text in outputs(readers)]
    labels = sum((Counter(report["labels"]) for report in recalled), Counter[str]())

    with MemTier.open(home, PROJECT) as memory:
        entries = list(memory.entries())
        memory.catch_up()
        warnings = memory.status()["warnings"]
    turns: dict[str, list[int]] = defaultdict(list)
    runs: Counter[str] = Counter()
    for entry in entries:
        turns[entry.session_id].append(entry.turn)
        runs[entry.run_id] += 1
    assert runs == {f"w{w}-{n}": 2 for w in range(WRITERS) for n in range(RUNS)}
    # In the file, too, they stand in the order of their turns.
    assert turns == {session: list(range(1, WRITERS * RUNS + 1)) for session in SESSIONS}
    assert bad_lines(home / "projects" / PROJECT) == []
    assert warnings == []  # nobody takes a line that is being written for an edit
    assert [report["unseen"] for report in wrote] == [0] * WRITERS
    assert sum(labels.values()) > 0

    queries = [f"w{n % WRITERS}x{n * 7 % RUNS} bread {n}" for n in range(40)]
    at = datetime.now(UTC) + timedelta(days=1)
    compared = assert_equal_to_rebuild(home, PROJECT, ["main"], queries, at)
    show(
        f"{WRITERS} writers x {RUNS} runs, {READERS} readers",
        {
            "runs": len(runs),
            "entries": len(entries),
            "gaps and doubles of turn": 0,
            "seconds": round(seconds, 1),
            "slowest record ms": max(report["slowest_ms"] for report in wrote),
            "recalls meanwhile": sum(labels.values()),
            "slowest recall ms": max(report["slowest_ms"] for report in recalled),
            "labels": dict(labels),
            "recalls equal to a rebuild": compared,
        },
    )
