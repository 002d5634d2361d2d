"""Define the background jobs of a project.

Their outcomes are kept in the project's `background.json`, for `memtier status`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import HostAway, MemTierError
from memtier_plugin.core.hookspecs import JobSpec
from memtier_plugin.core.records import Extractor
from memtier_plugin.core.settings.schema import NOWHERE, Settings
from memtier_plugin.facts.backlog import MODEL, RULES
from memtier_plugin.facts.consolidation import ConsolidationReport
from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.memory import MemTier
from memtier_plugin.operations import job_state
from memtier_plugin.operations.reembed import EmbeddingReport, read_embedding_state
from memtier_plugin.providers.chat import NO_MODEL
from memtier_plugin.storage import home_files

OnReport = Callable[[str, ConsolidationReport], None]

_MAX_STALLED_BATCHES: Final = 3  # batches in a row without progress

_log = logging.getLogger("memtier")


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job's stop event, and the callback for its consolidation reports."""

    stop: threading.Event
    on_run: OnReport | None = None


def consolidate_backlog(
    memory: MemTier, stop: threading.Event, extractor: Extractor = RULES
) -> Iterator[ConsolidationReport]:
    """Consolidate new entries into facts, batch by batch, yielding a report for each.

    Ends after the current batch once ``stop`` is set; yields nothing for a project that is paused
    or has consolidation switched off.

    Raises:
        HostAway: no running host offers its model.
        MemTierError: a batch failed; the remaining entries are left for the next run.
    """
    if memory.paused or not memory.settings.consolidation.enabled:
        return
    batch, before, still = memory.settings.consolidation.batch, math.inf, 0
    while not stop.is_set():
        report = memory.consolidate(limit=batch, extractor=extractor, stop=stop.is_set)
        yield report
        if report.problem:
            raise MemTierError(report.problem)
        if report.waits:
            raise HostAway(report.waits)
        if not report.left:
            return
        still = 0 if report.left < before else still + 1
        if still == _MAX_STALLED_BATCHES:
            raise MemTierError(f"no progress: {report.left} entries are left again and again")
        before = report.left


def embed_missing(memory: MemTier, stop: threading.Event) -> EmbeddingReport | None:
    """Embed items without a vector of the current model, within the approved cost.

    Returns None if there was nothing to do.

    Raises:
        MemTierError: it ended early; the next run continues.
    """
    if memory.paused:
        return None
    state = read_embedding_state(memory.store)
    if not (state.missing or state.old):
        return None
    return memory.reembedding.run(stop=stop.is_set)


def sweep_project(memory: MemTier) -> None:
    """Complete interrupted work, index every ledger, and apply retention."""
    memory.purger.complete()
    home_files.remove_unfinished(memory.store)
    memory.catch_up(full=True)
    if not memory.paused:
        memory.regression.watch()
    memory.expire_recalls()
    expired = memory.retain()
    ids = (*expired.entries, *expired.facts, *expired.left)
    if ids and memory.settings.retention.purge:
        memory.purge(Selection(ids=ids))
    if expired.entries:
        _log.info(
            "project %r: retention: %d entries and %d facts were forgotten",
            memory.project,
            len(expired.entries),
            len(expired.facts),
        )


def write_summaries(memory: MemTier, stop: threading.Event) -> int:
    """Summarise finished sessions and days, and changed facts; return how many are new."""
    written = 0
    if memory.paused or not memory.settings.summaries.enabled:
        return written
    written += memory.working.run(stop=stop.is_set)
    while not stop.is_set():
        report = memory.summariser.run(stop=stop.is_set)
        written += report.written
        if not report.left or not report.written:
            break
    return written


def bring_in(home: Path, project: str, agent: str, workspace: Path) -> None:
    """Bring in what a team shares in a workspace's repository.

    Raises:
        MemTierError: not all of it was brought in.
    """
    from memtier_plugin.transfer.team import Team  # imported here, as other jobs need none of it

    with MemTier.open(home, project, agent, workspace=workspace, create=False) as memory:
        done = Team(memory).bring_in()
    _log.info("project %r: %d facts of the team are new", project, len(done.new))
    for why in done.bad:
        _log.warning("project %r: left out: %s", project, why)


def _run_consolidation(extractor: Extractor, memory: MemTier, run: JobRun) -> None:
    for report in consolidate_backlog(memory, run.stop, extractor):
        if run.on_run is not None:
            run.on_run(memory.project, report)


def _run_summaries(memory: MemTier, run: JobRun) -> None:
    if written := write_summaries(memory, run.stop):
        _log.info("project %r: %d summaries and timelines", memory.project, written)


def _run_embedding(memory: MemTier, run: JobRun) -> None:
    report = embed_missing(memory, run.stop)
    if report is not None and (report.embedded or report.dropped):
        _log.info(
            "project %r: embedded %d items, dropped %d vectors of other models, %d items left",
            memory.project,
            report.embedded,
            report.dropped,
            report.left,
        )


GROUPS: Final = ("local", "endpoint", "daily")
_SHIPPED: Final = (
    JobSpec(
        "shared",
        lambda settings: None if settings.ledger.shared == NOWHERE else "local",
        lambda memory, _run: memory.synchronise(),
    ),
    JobSpec("consolidation", lambda _settings: "local", partial(_run_consolidation, RULES)),
    JobSpec("summaries", lambda _settings: "local", _run_summaries),
    JobSpec(
        "model",
        lambda settings: None if settings.consolidation.model == NO_MODEL else "endpoint",
        partial(_run_consolidation, MODEL),
    ),
    JobSpec(
        "embedding",
        lambda settings: "endpoint" if settings.embedding.is_remote else "local",
        _run_embedding,
    ),
)
_SHIPPED_LAST: Final = (  # they use the results of the others
    JobSpec("sweep", lambda _settings: "daily", lambda memory, _run: sweep_project(memory)),
)


def list_jobs() -> dict[str, JobSpec]:
    """Return all jobs by name, including plugins', in the order in which they run."""
    return {job.name: job for job in (*_SHIPPED, *plugins.find_jobs(), *_SHIPPED_LAST)}


def jobs_in_group(group: str, settings: Settings) -> list[str]:
    """Return the jobs of a group, in order; those that call an endpoint have their own group."""
    return [name for name, job in list_jobs().items() if job.group(settings) == group]


def run_job(name: str, memory: MemTier, run: JobRun, again: timedelta | None = None) -> bool:
    """Run a job and record its outcome; return False if it failed.

    Args:
        again: time until it is next due, if known.
    """
    _note_job(memory, name, started=True)
    error = waits = None
    try:
        list_jobs()[name].run(memory, run)
    except HostAway as reason:
        waits = str(reason)
        _log.info("project %r: %s waits: %s", memory.project, name, waits)
    except MemTierError as failure:
        error = str(failure)
        _log.warning("project %r: %s: %s", memory.project, name, failure)
    except Exception as failure:  # one job's bug must not end the others
        error = f"{type(failure).__name__}: {failure}"
        _log.exception("project %r: %s failed", memory.project, name)
    _note_job(memory, name, error=error, waits=waits, again=again)
    return error is None


def _note_job(
    memory: MemTier,
    name: str,
    *,
    started: bool = False,
    error: str | None = None,
    waits: str | None = None,
    again: timedelta | None = None,
) -> None:
    now = datetime.now(UTC)
    try:
        job_state.note_job(
            memory.folder,
            name,
            now,
            started=started,
            error=error,
            waits=waits,
            again=now + again if again else None,
        )
    except MemTierError as trouble:  # a full disk, which `status` reports anyway
        _log.warning("project %r: %s", memory.project, trouble)


def note_started(folder: Path) -> None:
    """Record that the daemon requested by a host is running."""
    with suppress(MemTierError):
        job_state.note_start_request(folder, None)
