"""What the daemon does to a project, each a short call on its memory, and how to start it aside."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import memtier_plugin
from memtier_plugin.consolidation import ConsolidationReport
from memtier_plugin.errors import CapReached, EndpointError, SettingsError
from memtier_plugin.home import OPEN_FLAGS, outside_name, private_folder
from memtier_plugin.memory import MemTier
from memtier_plugin.reembedding import EmbeddingReport, embedding_state

from .lock import held

OnRun = Callable[[str, ConsolidationReport], None]

LOG_BYTES: Final = 1_000_000

_log = logging.getLogger("memtier")


def projects(home: Path) -> list[str]:
    """Return the names of all projects of a home."""
    top = home / "projects"
    if not top.is_dir():
        return []
    return sorted(outside_name(top, folder.name) for folder in top.iterdir() if folder.is_dir())


def consolidate(memory: MemTier, stop: threading.Event) -> Iterator[ConsolidationReport]:
    """Turn what is new into facts and yield a report for each batch, until nothing is left.

    Ends after the batch at work once ``stop`` is set; yields nothing for a project that is
    switched off or wants no consolidation.
    """
    if memory.paused or not memory.settings.consolidation.enabled:
        return
    batch = memory.settings.consolidation.batch
    while not stop.is_set():
        report = memory.consolidate(limit=batch)
        yield report
        if report.read < batch:
            return


def embed(memory: MemTier, stop: threading.Event) -> EmbeddingReport | None:
    """Make the vectors that the current model has not made yet, as far as the user allows it.

    Why it ended early stands in `status`, and is tried again the next time. Returns None where
    there was nothing to do.
    """
    if memory.paused:
        return None
    try:
        state = embedding_state(memory.store)
        if not (state.missing or state.old):
            return None
        return memory.reembedding.run(stop=stop.is_set)
    except (CapReached, EndpointError, SettingsError) as error:
        _log.warning("project %r: %s", memory.project, error)
        return None


def tidy(memory: MemTier) -> None:
    """Compare the index with every ledger, and drop recall events past their retention."""
    memory.catch_up(full=True)
    memory.expire_recalls()


def start_detached(home: Path, project: str) -> bool:
    """Start every job once in a process of its own that outlives this one.

    Returns False, and starts nothing, where a daemon serves the project already.
    """
    if held(home, project):
        return False
    path = private_folder(home, "logs") / "daemon.log"
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    # The child must find this package also where it is not installed.
    package = str(Path(memtier_plugin.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), package)))
    where = ("--home", str(home), "--project", project)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | OPEN_FLAGS, 0o600)
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "memtier_plugin.daemon", "--once", *where],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "PYTHONPATH": paths},
            cwd=home,
            start_new_session=True,
        )
    finally:
        os.close(log)
    # Somebody has to wait for it, or a host that stays keeps a zombie.
    threading.Thread(target=child.wait, name="memtier-daemon", daemon=True).start()
    return True
