"""Run hooks for a host: no exception reaches it, and every deadline is kept.

A hook's work runs in a worker thread. When its deadline passes, the host continues without an
answer, status and log report it, and the worker finishes, so that a late write still happens.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Literal, TypeVar

from memtier_plugin.core.errors import MemTierError, Paused
from memtier_plugin.core.host import RunContext
from memtier_plugin.core.plugins import record_failure
from memtier_plugin.core.settings.schema import Hooks
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool

T = TypeVar("T")
HookName = Literal[
    "before_prompt_build", "agent_end", "session_start", "session_end", "before_compaction"
]
_QueuedJob = tuple[Future[Any], Callable[[], Any], Future[Any] | None]

MAX_WORKERS: Final = 64
EXIT_TIMEOUT: Final = 5.0  # seconds an ending process gives to late writes


class DeadlinePassed(MemTierError):
    """A hook missed its deadline; its work continues in the background."""


class WorkerPool:
    """A pool of daemon threads, reused because a store keeps one connection per thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_QueuedJob] = SimpleQueue()
        self._idle = 0
        self._pending: set[Future[Any]] = set()
        self._last_of_queue: dict[Hashable, Future[Any]] = {}

    def submit(self, job: Callable[[], T], line: Hashable = None) -> Future[T]:
        """Start a job; jobs of the same line run one after another, in order of submission.

        Raises:
            DeadlinePassed: too many earlier jobs are still running; the job is not started.
        """
        future: Future[T] = Future()
        with self._lock:
            self._pending = {late for late in self._pending if not late.done()}
            self._last_of_queue = {
                key: last for key, last in self._last_of_queue.items() if not last.done()
            }
            if len(self._pending) >= MAX_WORKERS:
                raise DeadlinePassed(f"{MAX_WORKERS} hooks called earlier are still at work")
            before = self._last_of_queue.get(line)
            self._pending.add(future)
            if line is not None:
                self._last_of_queue[line] = future
            short = self._idle == 0
            if not short:
                self._idle -= 1
        self._jobs.put((future, job, before))
        if short:
            threading.Thread(target=self._run_jobs, name="memtier-hook", daemon=True).start()
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


workers = WorkerPool()


def _reset_after_fork() -> None:
    global workers
    workers = WorkerPool()  # a forked child does not inherit its parent's threads


os.register_at_fork(after_in_child=_reset_after_fork)


def run_guarded(
    hook: HookName,
    deadline: Callable[[Hooks], int],
    context: RunContext,
    work: Callable[[MemTier, float], T | None],
) -> T | None:
    """Run a hook's work on the context's memory; return its answer, or None if it failed.

    ``work`` gets the memory and its deadline, in ``time.monotonic()`` seconds. The prompt's hook is
    not queued: it must not wait for an earlier run's late write.
    """
    started = time.monotonic()
    line = None
    if hook != "before_prompt_build":
        line = replace(context, run_id=None, sender=None, parent=None)
    answers: list[T | None] = []
    try:
        seconds = deadline(memory_pool.settings(context).hooks) / 1000
        late = threading.Event()

        def job() -> None:
            _run_work(hook, context, work, answers, late, (started, started + seconds))

        future = workers.submit(job, line)
        if wait([future], started + seconds - time.monotonic()).done:
            future.result()
        if answers:
            return answers[0]  # in time, even if noting it still waits for a lock
        late.set()
        error = DeadlinePassed(f"not done after {seconds:g} s; it continues in the background")
        workers.submit(lambda: _note_late(hook, context, error, round(1000 * seconds)))
        raise error
    except Exception as error:  # foreign code and hosts: nothing may break the host
        record_failure("memtier", hook, error)
        return None


def _run_work(
    hook: HookName,
    context: RunContext,
    work: Callable[[MemTier, float], T | None],
    answers: list[T | None],
    late: threading.Event,
    span: tuple[float, float],
) -> None:
    started, until = span

    def ms() -> int:  # how long the host waited; it never waits past the deadline
        return round(1000 * (min(time.monotonic(), until) - started))

    with memory_pool.use(context) as memory:
        try:
            answer = None if memory.paused else work(memory, until)
        except Paused:
            answer = None
        except Exception as error:
            _note_outcome(memory, hook, context, ms(), error)
            raise
        answers.append(answer)
        if not memory.paused and (
            answer is None or not late.is_set()
        ):  # a late answer reached nobody
            _note_outcome(memory, hook, context, ms())


def _note_late(hook: HookName, context: RunContext, error: Exception, ms: int) -> None:
    with memory_pool.use(replace(context, session_id=None)) as memory:
        _note_outcome(memory, hook, context, ms, error)


def _note_outcome(
    memory: MemTier, hook: HookName, context: RunContext, ms: int, error: Exception | None = None
) -> None:
    """Record a hook's outcome for `status`; an unwritable home does not cost the answer."""
    text = f"{type(error).__name__}: {error}" if error else None
    try:
        memory.note_hook(context.agent_id, hook, ok=error is None, error=text, ms=ms)
    except MemTierError as trouble:
        record_failure("memtier", hook, trouble)


def _drain_and_close() -> None:
    workers.drain(EXIT_TIMEOUT)
    memory_pool.close()


atexit.register(_drain_and_close)
