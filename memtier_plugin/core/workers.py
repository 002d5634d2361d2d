"""Daemon threads that are kept and reused, and do what may outlast the patience of a caller.

A store keeps one connection per thread; and a thread that ends cleans up after OpenSSL, whose locks
a process forked in that moment would inherit, taken for good.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from memtier_plugin.core.errors import MemTierError

T = TypeVar("T")
_QueuedJob = tuple[Future[Any], Callable[[], Any], Future[Any] | None]


class TooManyJobs(MemTierError):
    """So many earlier jobs are still at work that this one was not started."""


class WorkerPool:
    """A pool of daemon threads for at most ``max_jobs`` jobs at once; a forked child has its own.

    Made once, by the module that uses it, as it registers itself for forks.
    """

    def __init__(self, name: str, max_jobs: int = 64) -> None:
        self.name, self.max_jobs = name, max_jobs
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Begin anew: a forked child does not inherit its parent's threads."""
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_QueuedJob] = SimpleQueue()
        self._idle = 0
        self._pending: set[Future[Any]] = set()
        self._last_of_queue: dict[Hashable, Future[Any]] = {}

    def submit(self, job: Callable[[], T], line: Hashable = None) -> Future[T]:
        """Start a job; jobs of the same line run one after another, in order of submission.

        Raises:
            TooManyJobs: too many earlier jobs are still running; the job is not started.
        """
        future: Future[T] = Future()
        with self._lock:
            self._pending = {late for late in self._pending if not late.done()}
            self._last_of_queue = {
                key: last for key, last in self._last_of_queue.items() if not last.done()
            }
            if len(self._pending) >= self.max_jobs:
                raise TooManyJobs(f"{self.max_jobs} jobs of {self.name} are still at work")
            before = self._last_of_queue.get(line)
            self._pending.add(future)
            if line is not None:
                self._last_of_queue[line] = future
            short = self._idle == 0
            if not short:
                self._idle -= 1
        self._jobs.put((future, job, before))
        if short:
            threading.Thread(target=self._run_jobs, name=self.name, daemon=True).start()
        return future

    def drain(self, seconds: float) -> None:
        """Wait for running jobs, for at most ``seconds``."""
        with self._lock:
            pending = set(self._pending)
        wait(pending, seconds)

    def _run_jobs(self) -> None:
        while True:
            future, job, before = self._jobs.get()
            if before is not None:
                wait([before])
            try:
                settle = partial(future.set_result, job())
            except BaseException as error:  # re-raised where the future is awaited
                settle = partial(future.set_exception, error)
            # Mark the worker idle before publishing the result, so that the waiter reuses it.
            with self._lock:
                self._idle += 1
            settle()
