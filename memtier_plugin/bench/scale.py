"""What MemTier costs at size: milliseconds, postings and bytes on a made-up store that grows.

The recalls run in a fresh process each time, as a host's would: the first one pays for the import
of everything it needs, the last one shows what stays.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import memtier_plugin
from memtier_plugin.bench.metrics import latency, percentile
from memtier_plugin.bench.retrieval import Progress, peak_rss_mb
from memtier_plugin.bench.synthetic import EPOCH, Synthetic
from memtier_plugin.errors import MemTierError
from memtier_plugin.memory import MemTier
from memtier_plugin.records import from_iso, to_iso
from memtier_plugin.settings import dotted

_SIZES: Final = (1_000, 10_000, 50_000)
_SCANS: Final = 20  # a full scan is slow and varies little
_PROJECT: Final = "scale"
_ASKING: Final = "agent-0"
_PROBE: Final = """\
import time
started = time.perf_counter()
import memtier_plugin
imported = time.perf_counter() - started
import json, sys
from memtier_plugin.bench.scale import probe
json.dump({"import_ms": round(1000 * imported, 3), **probe(json.load(sys.stdin))}, sys.stdout)
"""


def run_scale(
    entries: int = 10_000,
    recalls: int = 1_000,
    agents: int = 1,
    overrides: Mapping[str, Any] | None = None,
    seed: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Grow a store to so many entries and measure recalls at 1,000, 10,000, 50,000 and at the end.

    Args:
        entries: how many entries in all.
        recalls: how many questions are asked at each size.
        agents: the entries are shared out evenly among so many; the first one asks.
        overrides: settings for the run, by dotted key.
        seed: the same seed gives the same store and the same questions.
        progress: told of each step.

    Raises:
        MemTierError: a recall failed.
    """
    tell = progress or (lambda what, done, total: None)
    source = Synthetic(seed)
    measured = []
    with tempfile.TemporaryDirectory(prefix="memtier-scale-") as folder, ExitStack() as stack:
        home = Path(folder) / "home"
        memories = [
            stack.enter_context(MemTier.open(home, _PROJECT, f"agent-{n}", settings=overrides))
            for n in range(agents)
        ]
        store = _Store(memories, source)
        for size in [*(size for size in _SIZES if size < entries), entries]:
            ingest = store.grow(size, lambda stored: tell("ingest", stored, entries))
            questions = [source.question(source.pick(store.texts)) for _ in range(recalls)]
            tell(f"recall from {store.entries}", 0, recalls)
            probed = _in_fresh_process(home, questions, store.newest, overrides)
            tell(f"recall from {store.entries}", recalls, recalls)
            scan = _scan_ms(store.texts, questions[:_SCANS])
            measured.append(
                {
                    "entries": store.entries,
                    "ingest": ingest,
                    **probed,
                    "bm25_scan_ms": scan,
                    "faster_than_scan": round(scan / max(probed["latency_ms"]["p50"], 1e-3), 2),
                    "files_mb": _files_mb(memories[0].folder),
                }
            )
        return {
            "dataset": "scale",
            "agents": agents,
            "recalls": recalls,
            "seed": seed,
            "sizes": measured,
            "version": memtier_plugin.__version__,
            "settings": dotted(memories[0].settings),
        }


def probe(task: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the questions in this process and return what they cost."""
    started = time.perf_counter()
    with MemTier.open(
        Path(task["home"]), _PROJECT, _ASKING, settings=task["overrides"], create=False
    ) as memory:
        opened = time.perf_counter() - started
        seconds, postings, vectors = [], [], []
        for question in task["questions"]:
            started = time.perf_counter()
            recall = memory.recall(question, purpose="search", at=from_iso(task["at"]))
            seconds.append(time.perf_counter() - started)
            postings.append(recall.postings)
            vectors.append(recall.vectors)
    return {
        "open_ms": round(1000 * opened, 3),
        "first_recall_ms": round(1000 * seconds[0], 3),
        "last_recall_ms": round(1000 * seconds[-1], 3),
        "latency_ms": latency(seconds),
        "postings": {"mean": round(fmean(postings), 1), "max": max(postings)},
        "vectors": {"mean": round(fmean(vectors), 1), "max": max(vectors)},
        "peak_rss_mb": peak_rss_mb(),
    }


class _Store:
    """The store as it grows: session by session, the agents taking turns."""

    def __init__(self, memories: Sequence[MemTier], source: Synthetic) -> None:
        self._memories = memories
        self._sessions = enumerate(source.sessions())
        self.entries = 0
        self.texts: list[str] = []  # what the agent that asks may see
        self.newest: datetime = EPOCH

    def grow(self, size: int, tell: Callable[[int], None]) -> dict[str, float]:
        """Record sessions until there are at least so many entries; return turns and seconds."""
        before, started = self.entries, time.perf_counter()
        while self.entries < size:
            number, session = next(self._sessions)
            memory = self._memories[number % len(self._memories)]
            for run in session.runs:
                stored = memory.record(
                    run.messages,
                    session_id=session.session_id,
                    run_id=run.run_id,
                    observed_at=session.observed_at,
                )
                self.entries += len(stored)
                tell(self.entries)
            self.newest = session.observed_at or self.newest
            if memory is self._memories[0]:
                self.texts += [message.content for message in session.messages]
        seconds = time.perf_counter() - started
        return {"turns": self.entries - before, "seconds": round(seconds, 3)}


def _in_fresh_process(
    home: Path, questions: Sequence[str], newest: datetime, overrides: Mapping[str, Any] | None
) -> dict[str, Any]:
    task = {
        "home": str(home),
        "questions": questions,
        "at": to_iso(newest + timedelta(days=1)),
        "overrides": overrides,
    }
    # The package may lie in a checkout that only this process knows of.
    package = str(Path(memtier_plugin.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", _PROBE],
        check=False,
        input=json.dumps(task),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode:
        raise MemTierError(f"the recalls in a fresh process failed:\n{done.stderr.strip()}")
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _scan_ms(texts: Iterable[str], questions: Iterable[str]) -> float:
    """Return the median of scoring every text by rank-bm25, and of finding the best 200."""
    from rank_bm25 import BM25Okapi

    def words(text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())

    bm25 = BM25Okapi([words(text) for text in texts])
    seconds = []
    for question in questions:
        started = time.perf_counter()
        bm25.get_scores(words(question)).argsort()[-200:]
        seconds.append(time.perf_counter() - started)
    return round(1000 * percentile(seconds, 0.5), 3)


def _files_mb(folder: Path) -> dict[str, float]:
    """Return the size of each part of a project's folder; the parts of the index are one."""
    sizes: dict[str, float] = {}
    for file in folder.rglob("*"):
        if file.is_file():
            part = file.relative_to(folder).parts[0]
            part = "index" if part.startswith("index") else part
            sizes[part] = sizes.get(part, 0) + file.stat().st_size / 1e6
    return {part: round(size, 3) for part, size in sorted(sizes.items())}
