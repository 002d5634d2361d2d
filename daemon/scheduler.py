"""When what runs: consolidating and embedding at each project's interval, a sweep once a day."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from memtier_plugin.errors import MemTierError
from memtier_plugin.memory import MemTier
from memtier_plugin.reembedding import EmbeddingReport
from memtier_plugin.settings import load_settings

from . import jobs, lock
from .jobs import OnRun

DAY: Final = 24 * 3600.0
LOOK_FOR_PROJECTS: Final = 60.0  # seconds
STOP_PATIENCE: Final = 4.0  # seconds; a stop is to be over within five

_log = logging.getLogger("memtier")


class Scheduler:
    """Serves projects from a thread of its own, one job at a time.

    A project that another process serves is left to it, and taken over once that one is gone.
    """

    def __init__(self, *, interval: float | None = None, on_run: OnRun | None = None) -> None:
        self._interval = interval
        self._on_run = on_run
        self._lock = threading.Lock()
        self._held: dict[tuple[Path, str], int] = {}
        self._served: set[tuple[Path, str]] = set()
        self._stop = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        # One thread: no two jobs ever overlap. A late job runs late, but once.
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )
        # Its warnings say that a job still runs when it is due again, which is no trouble here.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        self._scheduler.start()

    def add(self, home: Path, project: str) -> None:
        """Serve a project from now on; adding it again changes nothing.

        Raises:
            SettingsError: the project's settings are wrong.
        """
        if (home, project) in self._served:
            return
        minutes = load_settings(home, project).consolidation.interval_minutes
        seconds = self._interval or minutes * 60
        with self._lock:
            if (home, project) in self._served:
                return
            self._served.add((home, project))
        regular = (self._consolidate, seconds), (self._embed, seconds), (jobs.tidy, DAY)
        for work, pause in regular:
            self._scheduler.add_job(
                self._run,
                "interval",
                [work, home, project],
                seconds=pause,
                next_run_time=datetime.now(UTC),
            )

    def watch(self, home: Path) -> None:
        """Serve all projects of a home, those yet to come included."""
        self._add_all(home)
        seconds = min(self._interval or LOOK_FOR_PROJECTS, LOOK_FOR_PROJECTS)
        self._scheduler.add_job(self._add_all, "interval", [home], seconds=seconds)

    def stop(self, patience: float = STOP_PATIENCE) -> bool:
        """Stop after the batch at work; returns False if that took more than ``patience``.

        The projects are let go of in either case only when nothing works on them any more.
        """
        self._stop.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        over = self._idle.wait(patience)
        if over:
            with self._lock:
                for fd in self._held.values():
                    lock.release(fd)
                self._held.clear()
        return over

    def _add_all(self, home: Path) -> None:
        for project in jobs.projects(home):
            try:
                self.add(home, project)
            except MemTierError as error:
                _log.warning("project %r is not served: %s", project, error)

    def _consolidate(self, memory: MemTier) -> None:
        for report in jobs.consolidate(memory, self._stop):
            if self._on_run is not None:
                self._on_run(memory.project, report)

    def _embed(self, memory: MemTier) -> None:
        _tell(memory, jobs.embed(memory, self._stop))

    def _run(self, work: Callable[[MemTier], None], home: Path, project: str) -> None:
        self._idle.clear()
        try:
            if not self._stop.is_set() and self._take(home, project):
                with MemTier.open(home, project) as memory:
                    work(memory)
        except MemTierError as error:
            _log.warning("project %r: %s", project, error)
        finally:
            self._idle.set()

    def _take(self, home: Path, project: str) -> bool:
        """Lock the project unless it is ours already; False while another process serves it."""
        if (home, project) not in self._held:
            fd = lock.take(home, project)
            if fd is None:
                _log.info("project %r is served by another process", project)
                return False
            self._held[home, project] = fd
        return True


def run(
    home: Path,
    projects: Iterable[str] | None = None,
    *,
    once: bool = False,
    interval: float | None = None,
    stop: threading.Event | None = None,
    on_run: OnRun | None = None,
) -> bool:
    """Serve projects of a home (None: all, those yet to come included) until ``stop`` is set.

    With ``once``, do every job of each project now and return. ``interval`` is in seconds and
    overrides the settings. Returns False if a job was still at work when the patience ended.
    """
    stop = stop or threading.Event()
    if once:
        for project in jobs.projects(home) if projects is None else projects:
            _once(home, project, stop, on_run)
        return True
    scheduler = Scheduler(interval=interval, on_run=on_run)
    try:
        if projects is None:
            scheduler.watch(home)
        else:
            for project in projects:
                scheduler.add(home, project)
        stop.wait()
    finally:
        over = scheduler.stop()
    return over


def _once(home: Path, project: str, stop: threading.Event, on_run: OnRun | None) -> None:
    fd = lock.take(home, project)
    if fd is None:
        _log.info("project %r is served by another process", project)
        return
    try:
        with MemTier.open(home, project) as memory:
            for report in jobs.consolidate(memory, stop):
                if on_run is not None:
                    on_run(project, report)
            if not stop.is_set():
                _tell(memory, jobs.embed(memory, stop))
            if not stop.is_set():
                jobs.tidy(memory)
    finally:
        lock.release(fd)


def _tell(memory: MemTier, report: EmbeddingReport | None) -> None:
    if report is not None and (report.embedded or report.dropped):
        _log.info(
            "project %r: embedded %d items, dropped %d vectors of other models, %d items left",
            memory.project,
            report.embedded,
            report.dropped,
            report.left,
        )
