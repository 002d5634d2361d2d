"""Schedule a project's jobs, and follow the servers of shared projects."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from memtier_plugin.core.errors import MemTierError, NotFound
from memtier_plugin.core.files import release_lock
from memtier_plugin.core.paths import ProjectFolder, encode_file_name, list_projects, shared_name
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.memory import MemTier

from . import child, jobs
from .jobs import JobRun, OnReport

# -- Follow the servers of shared projects, each in its own thread

_PAUSE_SECONDS: Final = 5.0  # after a failure: the server is unreachable, or refuses

_log = logging.getLogger("memtier")


class Followers:
    """The threads that follow shared projects, one each, until told to stop."""

    def __init__(self) -> None:
        self._threads: dict[tuple[Path, str], threading.Thread] = {}
        self._stops: dict[tuple[Path, str], threading.Event] = {}
        self._ended = False

    def start(self, home: Path, project: str) -> None:
        """Follow a project, if it is shared and not followed yet.

        Raises:
            LedgerError: the record of where it is shared cannot be read.
        """
        running = self._threads.get((home, project))
        if (running and running.is_alive()) or self._ended:
            return
        if shared_name(ProjectFolder.of(home, project).path) is None:
            return
        stop = threading.Event()
        thread = threading.Thread(
            target=self._follow, args=(home, project, stop), name="memtier-follower", daemon=True
        )
        self._threads[home, project], self._stops[home, project] = thread, stop
        thread.start()

    def stop(self, home: Path, project: str) -> None:
        """Tell a project's thread, if any, to stop."""
        self._threads.pop((home, project), None)
        if stop := self._stops.pop((home, project), None):
            stop.set()

    def stop_all(self) -> None:
        """Tell all threads to stop, and start no more."""
        self._ended = True
        for stop in [*self._stops.values()]:
            stop.set()

    def wait(self, patience: float) -> None:
        """Wait for the threads after `stop_all`, for some seconds each."""
        for thread in [*self._threads.values()]:
            thread.join(patience)

    def _follow(self, home: Path, project: str, stop: threading.Event) -> None:
        reported = ""
        while not stop.is_set():
            try:
                with MemTier.open(home, project, create=False) as memory:
                    memory.follow(stop)
                reported = ""
            except MemTierError as error:
                if str(error) != reported:
                    reported = str(error)
                    _log.warning("project %r is not followed: %s", project, error)
                stop.wait(_PAUSE_SECONDS)


# -- Schedule a project's jobs: local and endpoint jobs at its interval, a sweep once a day
#
# Local jobs and jobs that call an endpoint have a thread each, so that a slow endpoint delays
# nothing else; within a thread jobs never overlap.

DAY: Final = 24 * 3600.0
PROJECT_SCAN_SECONDS: Final = 60.0  # seconds
CLOCK_CHECK_SECONDS: Final = 5.0  # seconds
CLOCK_TOLERANCE: Final = 30.0  # seconds; smaller steps are ordinary drift
STOP_TIMEOUT: Final = 4.0  # seconds; a stop must complete within five


class RecurringTrigger(BaseTrigger):  # type: ignore[misc]  # apscheduler has no types
    """A trigger relative to the last run, so that a clock set forward causes one run, not many."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        """Return the next time to fire."""
        return now + timedelta(seconds=self._seconds())


class Scheduler:
    """Serves each project from a thread.

    A project that another process serves is taken over once that process is gone. With ``aside``
    every job runs in a child process, because this process serves recalls.
    """

    def __init__(
        self,
        *,
        interval: float | None = None,
        on_run: OnReport | None = None,
        aside: bool = False,
        look_at_clock: float = CLOCK_CHECK_SECONDS,
    ) -> None:
        self._ran: set[tuple[Path, str]] = set()  # at least once since they were added
        self._busy: Counter[tuple[Path, str]] = Counter()  # running jobs
        self._interval = interval
        self._on_run = on_run
        self._in_child = aside
        self._lock = threading.Lock()
        self._held: dict[tuple[Path, str], int] = {}
        self._served: dict[tuple[Path, str], float] = {}  # seconds between two runs
        self._reported: dict[tuple[Path, str], str] = {}
        self._stop = threading.Event()
        self._followers = Followers()
        self._at_work = 0
        self._idle = threading.Condition(self._lock)
        # One thread per group, so that its jobs never overlap. A late job runs once.
        self._scheduler = BackgroundScheduler(
            executors={group: ThreadPoolExecutor(1) for group in ("local", "endpoint", "default")},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )
        # The scheduler warns if a job is still running when it is due again, which is harmless
        # here.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        self._scheduler.start()
        threading.Thread(
            target=self._watch_clock, args=(look_at_clock,), name="memtier-clock", daemon=True
        ).start()

    def add(self, home: Path, project: str) -> None:
        """Start serving a project; adding it again changes nothing.

        Raises:
            SettingsError: the project's settings are invalid; it is not served.
        """
        key = (home, project)
        if key in self._served:
            return
        seconds = self._interval_seconds(home, project)
        with self._lock:
            if key in self._served:
                return
            self._served[key] = seconds
        for number, group in enumerate(jobs.GROUPS):
            every = (lambda: DAY) if group == "daily" else (lambda: self._served[key])
            self._scheduler.add_job(
                self._run,
                RecurringTrigger(every),
                [group, home, project],
                id=_job_id(group, home, project),
                executor="endpoint" if group == "endpoint" else "local",
                # Groups that share a thread start in this order.
                next_run_time=datetime.now(UTC) + timedelta(milliseconds=number),
            )

    def drop(self, home: Path, project: str) -> bool:
        """Stop serving a project; return False if its jobs are running, or have not run yet."""
        key = (home, project)
        with self._lock:
            if key in self._served and (key not in self._ran or self._busy[key]):
                return False
            self._remove(key)
            return True

    def _remove(self, key: tuple[Path, str]) -> None:
        """Stop serving a project; the lock is held."""
        home, project = key
        self._followers.stop(home, project)
        for group in jobs.GROUPS:
            if self._scheduler.get_job(_job_id(group, home, project)):
                self._scheduler.remove_job(_job_id(group, home, project))
        self._served.pop(key, None)
        self._busy.pop(key, None)
        self._ran.discard(key)
        if (fd := self._held.pop(key, None)) is not None:
            release_lock(fd)

    def watch(self, home: Path) -> None:
        """Serve all projects of a home, including new ones."""
        self._add_all(home)
        seconds = min(self._interval or PROJECT_SCAN_SECONDS, PROJECT_SCAN_SECONDS)
        self._scheduler.add_job(self._add_all, RecurringTrigger(lambda: seconds), [home])

    def stop(self, patience: float = STOP_TIMEOUT) -> bool:
        """Stop after the current batch; return False if that takes longer than ``patience``.

        The projects' locks are released only if no job is running.
        """
        self.ask_to_stop()
        self._followers.wait(patience / 2)
        with self._idle:
            over = self._idle.wait_for(lambda: not self._at_work, patience)
            if over:
                for fd in self._held.values():
                    release_lock(fd)
                self._held.clear()
        return over

    def ask_to_stop(self) -> None:
        """Start no more jobs and signal running ones to end, without waiting."""
        self._stop.set()
        self._followers.stop_all()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def _interval_seconds(self, home: Path, project: str) -> float:
        minutes = load_settings(home, project).consolidation.interval_minutes
        return self._interval or minutes * 60

    def _add_all(self, home: Path) -> None:
        for project in list_projects(home):
            with self._report_errors(home, project, "is not served"):
                self.add(home, project)

    def _run(self, group: str, home: Path, project: str) -> None:
        key = (home, project)
        with self._count_work(key), self._report_errors(home, project, f"{group} jobs"):
            if self._stop.is_set() or key not in self._served or self._drop_if_deleted(key):
                return
            fd = self._acquire(home, project)
            if fd is None:
                return
            self._followers.start(home, project)
            settings = load_settings(home, project)
            seconds = self._interval or settings.consolidation.interval_minutes * 60
            self._served[key] = seconds
            again = timedelta(seconds=DAY if group == "daily" else seconds)
            names = jobs.jobs_in_group(group, settings)
            if not names or self._stop.is_set():
                return
            if self._in_child:
                if not child.is_at_rest(home, project, names):
                    # Slightly less than `stop` waits for.
                    patience = STOP_TIMEOUT - 0.5
                    child.run_child(
                        home, project, names, fd, self._stop, again=again, patience=patience
                    )
                return
            run_jobs(home, project, names, JobRun(self._stop, self._on_run), again)

    @contextmanager
    def _count_work(self, key: tuple[Path, str]) -> Iterator[None]:
        with self._lock:
            self._at_work += 1
            self._busy[key] += 1
        try:
            yield
        finally:
            with self._idle:
                self._at_work -= 1
                self._busy[key] -= 1
                self._ran.add(key)
                self._idle.notify_all()

    @contextmanager
    def _report_errors(self, home: Path, project: str, activity: str) -> Iterator[None]:
        """Log an error of a project, unless it is the same as the last one, and continue."""
        try:
            yield
        except MemTierError as error:
            if self._reported.get((home, project)) != str(error):
                self._reported[home, project] = str(error)
                _log.warning("project %r: %s: %s", project, activity, error)
        else:
            self._reported.pop((home, project), None)

    def _drop_if_deleted(self, key: tuple[Path, str]) -> bool:
        """Stop serving a project whose folder was deleted, rather than recreate it."""
        home, project = key
        if (home / "projects" / encode_file_name(project)).is_dir():
            return False
        _log.info("project %r is gone", project)
        with self._lock:
            self._remove(key)
        return True

    def _acquire(self, home: Path, project: str) -> int | None:
        """Lock the project unless already locked; return None while another process serves it."""
        with self._lock:
            fd = self._held.get((home, project))
            if fd is not None and not child.is_still_ours(fd, home, project):
                release_lock(fd)
                del self._held[home, project]
                fd = None
            if fd is None:
                fd = child.acquire(home, project)
                if fd is None:
                    _log.info("project %r is served by another process", project)
                    return None
                self._held[home, project] = fd
        jobs.note_started(home / "projects" / encode_file_name(project))
        return fd

    def _watch_clock(self, every: float) -> None:
        """Reschedule jobs when the clock is set back, or they would wait for it to catch up.

        After the clock was set forward (or the machine slept) due jobs run at once, one time each.
        """
        before = time.time() - time.monotonic()
        while not self._stop.wait(every):
            now = time.time() - time.monotonic()
            moved, before = now - before, now
            if moved > -CLOCK_TOLERANCE:
                continue
            _log.warning("the clock was set back by %.0f seconds", -moved)
            for job in self._scheduler.get_jobs():
                if job.next_run_time is not None:
                    job.modify(next_run_time=job.next_run_time + timedelta(seconds=moved))


def _job_id(group: str, home: Path, project: str) -> str:
    return f"{group} {project} {home}"


def run_jobs(
    home: Path, project: str, names: Iterable[str], run: JobRun, again: timedelta | None = None
) -> bool:
    """Run jobs of a project that this process has locked; return False if one failed.

    Raises:
        MemTierError: the project cannot be opened.
    """
    well = True
    with MemTier.open(home, project, create=False) as memory:
        for name in names:
            if not run.stop.is_set():
                well = jobs.run_job(name, memory, run, again) and well
    return well


def serve_projects(
    home: Path,
    projects: Iterable[str] | None = None,
    *,
    once: bool = False,
    interval: float | None = None,
    stop: threading.Event | None = None,
    on_run: OnReport | None = None,
) -> bool:
    """Serve projects of a home (None: all, including new ones) until ``stop`` is set.

    With ``once``, run every job of each project now and return. ``interval`` is in seconds and
    overrides the settings. Returns False if a job did not stop in time or, with ``once``, failed.
    """
    stop = stop or threading.Event()
    if once:
        todo = JobRun(stop, on_run)
        names = list_projects(home) if projects is None else [*projects]
        well = [_run_once(home, project, todo) for project in names]
        return all(well)
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


def _run_once(home: Path, project: str, todo: JobRun) -> bool:
    try:
        settings = load_settings(home, project)
        if not (home / "projects" / encode_file_name(project)).is_dir():
            raise NotFound(f"there is no project {project!r} in {home}; `memtier init` makes one")
        jobs.note_started(home / "projects" / encode_file_name(project))
        fd = child.acquire(home, project)
        if fd is None:
            _log.info("project %r is served by another process", project)
            return True
        try:
            names = [name for group in jobs.GROUPS for name in jobs.jobs_in_group(group, settings)]
            return run_jobs(home, project, names, todo)
        finally:
            release_lock(fd)
    except MemTierError as error:  # the other projects are still served
        _log.error("project %r: %s", project, error)
        return False
