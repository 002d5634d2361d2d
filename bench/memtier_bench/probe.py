"""Run the recalls of the scale benchmark in a separate process, like a host's.

Only the public API is imported before the clock starts, so the first recall pays for what it loads.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import memtier_plugin
from memtier_bench.metrics import latency_percentiles
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.formats import from_iso
from memtier_plugin.memory import MemTier

PROJECT: Final = "scale"
HITS_CONSIDERED: Final = 10  # hits

_PROBE: Final = """\
import time
started = time.perf_counter()
from memtier_plugin import MemTier
imported = time.perf_counter() - started
import importlib, json, sys
module = importlib.import_module("memtier_bench." + sys.argv[2])
done = getattr(module, sys.argv[1])(json.load(sys.stdin))
json.dump({"import_ms": round(1000 * imported, 3), **done}, sys.stdout)
"""


def peak_rss_mb() -> float:
    """Return the peak memory of this process, in megabytes."""
    if sys.platform == "linux":
        # Not getrusage: there a new process inherits the peak of its parent.
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return round(int(status.partition("VmHWM:")[2].split()[0]) / 2**10, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 1)


def agent_name(number: int) -> str:
    """Return the name of agent ``number``, counted from zero."""
    return f"agent-{number}"


def child_environment() -> dict[str, str]:
    """Return the environment for a process that must import this same package."""
    # The package may be a checkout found only on this process's path.
    package = str(Path(memtier_plugin.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    # With bytecode, as in an installation.
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}


def run_in_fresh_process(
    function: str,
    task: Mapping[str, Any],
    module: str = "probe",
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Call a function of a bench module in a new process; return its result and `import_ms`.

    Args:
        environment: variables besides those of this process.

    Raises:
        MemTierError: it failed there.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, function, module],
        check=False,
        input=json.dumps(task),
        capture_output=True,
        text=True,
        env={**child_environment(), **(environment or {})},
    )
    if done.returncode:
        raise MemTierError(f"what ran in a fresh process failed:\n{done.stderr.strip()}")
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def ask(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run the queries as the first agent in this process; return their costs."""
    started = time.perf_counter()
    seconds, postings, vectors = [], [], []
    labels: Counter[str] = Counter()
    with _open_memory(task, agent_name(0)) as memory:
        for query in task["queries"]:
            recall = memory.recall(query, purpose="search", at=from_iso(task["at"]))
            seconds.append(time.perf_counter() - started)
            postings.append(recall.postings)
            vectors.append(recall.vectors)
            labels[recall.label] += 1
            started = time.perf_counter()
    return {
        "cold_ms": round(1000 * seconds[0], 3),
        "latency_ms": latency_percentiles(seconds[1:]),
        "postings_read": round(fmean(postings), 1),
        "postings_read_max": max(postings),
        "vectors_read": round(fmean(vectors), 1),
        "vectors_read_max": max(vectors),
        "labels": labels,
        "peak_rss_mb": peak_rss_mb(),
    }


def find(task: Mapping[str, Any]) -> dict[str, Any]:
    """Query the planted lines, each as its agent; return the shares found in ten hits."""
    found_by_kind: dict[str, list[bool]] = {}
    for agent, questions in task["asked"].items():
        with _open_memory(task, agent) as memory:
            for kind, question, entry in questions:
                recall = memory.recall(question, purpose="search", at=from_iso(task["at"]))
                hits = recall.hits[:HITS_CONSIDERED]
                sources = {source.entry for hit in hits for source in hit.sources}
                found_by_kind.setdefault(kind, []).append(entry in sources)
    by = {kind: round(fmean(results), 4) for kind, results in found_by_kind.items()}
    return {"by": by, "recall10": round(fmean(by.values()), 4)}


def _open_memory(task: Mapping[str, Any], agent: str) -> MemTier:
    home, settings = Path(task["home"]), task["overrides"]
    return MemTier.open(home, PROJECT, agent, settings=settings, create=False)
