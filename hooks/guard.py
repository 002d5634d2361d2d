"""Run hooks for a host, keeping exceptions from it and meeting every deadline.

A hook runs in a worker thread. If its deadline passes, the host continues without an answer, status
and log report it, and the worker still finishes its writes.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from contextlib import suppress
from typing import Final, Literal, TypeVar

from memtier_plugin.core.concurrency import TooManyJobs, WorkerPool
from memtier_plugin.core.errors import MemTierError, Paused
from memtier_plugin.core.plugins import record_failure
from memtier_plugin.core.results import RunContext
from memtier_plugin.core.structs import replace_fields as replace
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool

T = TypeVar("T")
HookName = Literal[
    "before_prompt_build", "agent_end", "session_start", "session_end", "before_compaction"
]

_DEADLINES: Final[Mapping[HookName, str]] = {  # settings under `hooks`
    "before_prompt_build": "prompt_deadline_ms",
    "agent_end": "end_deadline_ms",
    "before_compaction": "end_deadline_ms",
    "session_start": "session_deadline_ms",
    "session_end": "session_deadline_ms",
}
EXIT_TIMEOUT: Final = 5.0  # seconds for late writes when a process ends


class DeadlinePassed(MemTierError):
    """A hook missed its deadline; its work continues in the background."""


workers = WorkerPool("memtier-hook")


def run_guarded(
    hook: HookName,
    context: RunContext,
    work: Callable[[MemTier, float], T | None],
    answered: Callable[[MemTier, T], None] | None = None,
) -> T | None:
    """Run a hook's work on the context's memory; return its answer, or None if it failed.

    The prompt's hook is not queued, so that it never waits for an earlier run's late write.

    Args:
        work: called with the memory and its deadline, in ``time.monotonic()`` seconds.
        answered: called with an answer in time, before the next queued hook.
    """
    started = time.monotonic()
    queue = replace(context, run_id=None, sender=None, parent=None)
    line = None if hook == "before_prompt_build" else queue
    answers: list[T | None] = []
    try:
        seconds = getattr(memory_pool.settings(context).hooks, _DEADLINES[hook]) / 1000
        late = threading.Event()

        def job() -> None:
            _run_work(hook, context, work, answers, late, (started, started + seconds))

        future = workers.submit(job, line)
        if hook == "agent_end":  # it may wait for other runs while the next turn begins
            with suppress(TooManyJobs):
                workers.submit(lambda: _note_begun(hook, context))
        if wait([future], started + seconds - time.monotonic()).done:
            future.result()
        if answers:
            answer = answers[0]  # in time, even if recording it still waits for a lock
            if answered and answer is not None:
                workers.submit(lambda: _use(context, answered, answer), queue)
            return answer
        late.set()
        # Not "error": the clause below unbinds that name, which a later job would miss.
        missed = DeadlinePassed(f"not done after {seconds:g} s; it continues in the background")
        workers.submit(lambda: _note_late(hook, context, missed, round(1000 * seconds)))
        raise missed
    except Exception as error:  # foreign code: nothing may break the host
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

    def ms() -> int:  # the host's wait, at most the deadline
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
        ):  # a late answer was not used
            _note_outcome(memory, hook, context, ms())


def _use(context: RunContext, answered: Callable[[MemTier, T], None], answer: T) -> None:
    with memory_pool.use(context) as memory:
        answered(memory, answer)


def _note_begun(hook: HookName, context: RunContext) -> None:
    with suppress(MemTierError), memory_pool.use(replace(context, session_id=None)) as memory:
        memory.note_hook_begun(context.agent_id, hook)


def _note_late(hook: HookName, context: RunContext, error: Exception, ms: int) -> None:
    with memory_pool.use(replace(context, session_id=None)) as memory:
        _note_outcome(memory, hook, context, ms, error)


def _note_outcome(
    memory: MemTier, hook: HookName, context: RunContext, ms: int, error: Exception | None = None
) -> None:
    """Record a hook's outcome for `status`; an unwritable home does not lose the answer."""
    text = f"{type(error).__name__}: {error}" if error else None
    try:
        memory.note_hook(context.agent_id, hook, ok=error is None, error=text, ms=ms)
    except MemTierError as trouble:
        record_failure("memtier", hook, trouble)


def _drain_and_close() -> None:
    workers.drain(EXIT_TIMEOUT)
    memory_pool.close()


atexit.register(_drain_and_close)
