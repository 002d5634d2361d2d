"""Locks, fair semaphores, worker threads, CPU allowances, and pauses of the garbage collector."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Self, TypeVar
from weakref import WeakSet

from memtier_plugin.core.errors import Exhausted, MemTierError

# -- A thread lock that is free in a forked child


class Mutex:
    """A `threading.Lock` that is free in a forked child.

    The thread that held it at the fork does not exist in the child.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _mutexes.add(self)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; return whether it was taken (as `threading.Lock.acquire`)."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


_mutexes: Final[WeakSet[Mutex]] = WeakSet()


def _renew_all() -> None:
    for mutex in _mutexes:
        mutex._renew()


os.register_at_fork(after_in_child=_renew_all)


# -- A fair semaphore that admits threads in order of arrival


class Turns:
    """A semaphore that admits the longest waiter first.

    The standard library's may readmit a thread that has just left before those that wait, so under
    load some threads starve.
    """

    def __init__(self, places: int) -> None:
        self._lock = Mutex()
        self._free = places
        self._waiting: deque[threading.Event] = deque()

    def __enter__(self) -> Self:
        with self._lock:
            if self._free and not self._waiting:
                self._free -= 1
                return self
            turn = threading.Event()
            self._waiting.append(turn)
        try:
            turn.wait()
        except BaseException:  # on an interrupt, pass the slot to the next waiter
            with self._lock:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    raise
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1


# -- Reusable daemon threads for work that may outlast its caller's deadline
#
# A store keeps one connection per thread.  And a thread that exits runs OpenSSL's cleanup: a
# process forked at that moment would inherit OpenSSL's locks held forever.

T = TypeVar("T")
_QueuedJob = tuple[Future[Any], Callable[[], Any], Future[Any] | None]


class TooManyJobs(MemTierError):
    """Too many earlier jobs are still running; this one was not started."""


class WorkerPool:
    """A pool of daemon threads that runs at most ``max_jobs`` jobs; a forked child gets its own.

    Create one per module, at import: each pool registers a fork handler.
    """

    def __init__(self, name: str, max_jobs: int = 64) -> None:
        self.name, self.max_jobs = name, max_jobs
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Start afresh: a forked child does not inherit its parent's threads."""
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_QueuedJob] = SimpleQueue()
        self._idle = 0
        self._pending: set[Future[Any]] = set()
        self._last_of_queue: dict[Hashable, Future[Any]] = {}

    def submit(self, job: Callable[[], T], line: Hashable = None) -> Future[T]:
        """Start a job; jobs of the same ``line`` run one after another, in order of submission.

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
                raise TooManyJobs(f"{self.max_jobs} jobs of {self.name} are still running")
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
        """Wait up to ``seconds`` for running jobs."""
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


# -- Per-request CPU allowances, and cancellation when nobody waits for the answer
#
# Checked where work can be dropped safely: before reading a text, and before a search.


class _Allowance(threading.local):
    until: float | None = None  # in CPU seconds of this thread
    is_wanted: Callable[[], bool] | None = None


_allowance = _Allowance()


@contextmanager
def allow(seconds: float, is_wanted: Callable[[], bool] | None = None) -> Iterator[None]:
    """Limit the CPU time of this thread within the block; see `require`."""
    _allowance.until, _allowance.is_wanted = time.thread_time() + seconds, is_wanted
    try:
        yield
    finally:
        _allowance.until = _allowance.is_wanted = None


def require() -> None:
    """Raise if the request has used up its time or its answer is no longer wanted.

    Raises:
        Exhausted: the request is over.
    """
    if _allowance.until is not None and time.thread_time() > _allowance.until:
        raise Exhausted("the request took too much CPU time: send less text at a time")
    if _allowance.is_wanted is not None and not _allowance.is_wanted():
        raise Exhausted("nobody waits for the answer any more")


# -- Defer Python's cyclic garbage collector where a pause would be noticed


@contextmanager
def delayed_collection() -> Iterator[None]:
    """Suspend cyclic garbage collection in the block, unless another thread re-enables it.

    A recall allocates thousands of small containers without cycles that are freed when it ends.
    They would trigger a collection every few hundred allocations, and now and then one that walks
    the host's whole heap: a tenth of a recall's time, for nothing.
    """
    # disabled by the host, or by another recall that enables it when it ends
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
