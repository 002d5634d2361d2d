"""The cost of surviving a power cut: `durability: sync` compared with `os` in the same run.

Both record the same runs into fresh homes on the same disk, taking turns, so that a busy machine
slows both. Each run is ended and acknowledged: first by one writer alone, then by several at once
into the same ledger, which share syncs.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from memtier_bench.metrics import latency_percentiles
from memtier_bench.progress import Progress, no_progress
from memtier_bench.synthetic import WordList
from memtier_plugin.core.files import count_flushes
from memtier_plugin.core.records import Message
from memtier_plugin.memory import MemTier

MODES: Final = ("os", "sync")
_ROUNDS: Final = 4  # rounds per mode
_WORDS: Final = 30  # in a message


def run_durability(
    *,
    runs: int = 400,
    writers: int = 4,
    folder: Path | None = None,
    seed: int = 1,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Measure ended runs per second and the latency of `end_run`, in both modes.

    Args:
        runs: runs of a user's message and an answer, for each mode and number of writers.
        folder: where to create the homes; by default the folder for temporary files.
    """
    rows: dict[str, dict[str, Any]] = {mode: {} for mode in MODES}
    with tempfile.TemporaryDirectory(dir=folder, prefix="memtier-bench-") as top:
        for count in sorted({1, writers}):
            latencies: dict[str, list[float]] = {mode: [] for mode in MODES}
            elapsed, syncs = dict.fromkeys(MODES, 0.0), dict.fromkeys(MODES, 0)
            for part in range(_ROUNDS):
                for mode in MODES if part % 2 else MODES[::-1]:
                    texts = _texts(runs // _ROUNDS or 1, seed + part)
                    home = Path(top, f"{mode}-{count}-{part}")
                    seconds, each, synced = _measure(home, mode, count, texts)
                    elapsed[mode] += seconds
                    latencies[mode] += each
                    syncs[mode] += synced
                progress(f"{count} writers", part + 1, _ROUNDS)
            for mode in MODES:
                ended = len(latencies[mode])
                rows[mode][str(count)] = {
                    "runs": ended,
                    "entries_per_s": round(2 * ended / elapsed[mode], 1),
                    "syncs": syncs[mode],
                    "latency_ms": latency_percentiles(latencies[mode]),
                }
    return {
        "kind": "durability",
        "dataset": "durability",
        "modes": rows,
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
    }


def _texts(count: int, seed: int) -> list[str]:
    words, random_ = WordList(), random.Random(seed)
    return [words.text(random_, _WORDS) for _ in range(count)]


def _measure(
    home: Path, mode: str, writers: int, texts: Sequence[str]
) -> tuple[float, list[float], int]:
    """Return the total seconds, those of each `end_run`, and how often files were synced."""
    settings = {"ledger.durability": mode, "embedding.model": "none"}
    latencies: list[float] = []
    with MemTier.open(home, "bench", settings=settings) as memory:
        memory.record([Message(role="user", content="warm")], session_id="warm")
        syncs, started = count_flushes(), time.perf_counter()
        _in_threads(writers, lambda number: _end_runs(memory, texts[number::writers], latencies))
        return time.perf_counter() - started, latencies, count_flushes() - syncs


def _end_runs(memory: MemTier, texts: Sequence[str], latencies: list[float]) -> None:
    session = str(threading.get_ident())
    for text in texts:
        messages = [
            Message(role="user", content=text),
            Message(role="assistant", content=text[::-1]),
        ]
        started = time.perf_counter()
        memory.end_run(messages, session_id=session)
        latencies.append(time.perf_counter() - started)


def _in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
