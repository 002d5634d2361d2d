"""The hooks that hosts call: recall before a prompt, record and credit a run, keep sessions.

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
from memtier_plugin.core.errors import MemTierError, NotFound, Paused
from memtier_plugin.core.hookspecs import hookimpl
from memtier_plugin.core.plugins import record_failure
from memtier_plugin.core.results import (
    CallReminder,
    PromptAddition,
    PromptEvent,
    RunContext,
    RunEvent,
    Shown,
    ToolCallEvent,
)
from memtier_plugin.core.structs import replace_fields as replace
from memtier_plugin.facts import forgetting
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool
from memtier_plugin.retrieval import recall as _recall  # noqa: F401 loaded before the deadline starts
from memtier_plugin.trust.escaping import add_first_line, add_line, remove_blocks

from .tools import begin_run

# Share of the remaining time for the recall; the rest is for packing and returning.
_RECALL_SHARE: Final = 0.9
_REMINDER: Final = (
    "(MemTier: {} of the facts noted here await the user's review. Mention once, in one line at the"
    " end of the answer, that `/memtier review` shows them.)"
)


@hookimpl(trylast=True)  # after plugins' additions, whenever the plugins were loaded
def before_prompt_build(event: PromptEvent, context: RunContext) -> PromptAddition | None:
    """Return the block of recalled memory, or None if nothing is injected."""
    begin_run(context)
    return run_guarded(
        "before_prompt_build",
        context,
        lambda memory, until: _recall_block(memory, event, context, until),
        None if event.acknowledges else lambda memory, block: memory.acknowledge(block.recall_id),
    )


def _recall_block(
    memory: MemTier, event: PromptEvent, context: RunContext, until: float
) -> PromptAddition | None:
    query = remove_blocks(_query_text(event))
    if not query.strip():
        return None
    since = event.visible_since
    recall = memory.recall(
        query,
        session_id=context.session_id,
        run_id=context.run_id,
        purpose="offer",
        sender=context.sender,
        deadline_ms=max(1, int((until - time.monotonic()) * 1000 * _RECALL_SHARE)),
        shown=Shown(since=since, injected=event.keeps_injected) if since else None,
        kind=event.kind,
    )
    if not recall.injected:
        return None
    text = _with_reminder(memory, context, recall.text)
    if event.caution:
        text = add_first_line(text, event.caution)
    return PromptAddition(prepend_context=text, recall_id=recall.id)


def _with_reminder(memory: MemTier, context: RunContext, block: str) -> str:
    """Return a block with the day's reminder of pending reviews, if due.

    It is inside the block, so that it is not mistaken for part of the message; prompts without a
    block get none.
    """
    if not memory.settings.hooks.review_reminder or context.parent:
        return block
    audience = forgetting.Audience(context.agent_id, context.sender)
    number = forgetting.take_reminder(memory.folder, audience, memory.actor.clock())
    return add_line(block, _REMINDER.format(number)) if number else block


def _query_text(event: PromptEvent) -> str:
    """Return the prompt, or the user's last message if a host leaves the prompt empty."""
    contents = (message.content for message in reversed(event.messages) if message.role == "user")
    return event.prompt or next(contents, "")


@hookimpl(trylast=True)
def before_tool_call(event: ToolCallEvent, context: RunContext) -> CallReminder | None:
    """Return the rule that the agent is reminded of before a tool call, once a session."""
    return run_guarded(
        "before_tool_call", context, lambda memory, _until: _remind(memory, event, context)
    )


def _remind(memory: MemTier, event: ToolCallEvent, context: RunContext) -> CallReminder | None:
    if context.private:  # the journal would have its call
        return None
    from memtier_plugin.facts.call_reminders import remind  # few hosts call this

    text = remind(
        *(memory.actor, event.tool, event.arguments),
        session_id=context.session_id or "",
        run_id=context.run_id,
        sender=context.sender,
    )
    return CallReminder(text=text) if text else None


@hookimpl(trylast=True)
def agent_end(event: RunEvent, context: RunContext) -> None:
    """Record the run and assign its credit."""
    run_guarded(
        "agent_end",
        context,
        lambda memory, _until: _end_run(memory, event, context),
    )


def _end_run(memory: MemTier, event: RunEvent, context: RunContext) -> None:
    failure = None if event.success else "the host reported the run as failed"
    memory.end_run(
        event.messages,
        session_id=context.session_id or "default",
        run_id=context.run_id,
        sender=context.sender,
        parent=context.parent,
        error=event.error or failure,
        private=context.private,
        seen=event.seen,
    )
    memory.refresh_workspace(wait=False)  # the run may have changed the code
    if event.usage:
        memory.note_usage(event.usage, context.run_id)
    if memory.settings.hooks.review_reminder:
        audience = forgetting.Audience(context.agent_id, context.sender)
        now = memory.actor.clock()
        if not forgetting.is_counted(memory.folder, audience, now):
            from memtier_plugin.facts.review import note_waiting

            note_waiting(memory.store, audience, now)


@hookimpl(trylast=True)
def session_start(context: RunContext) -> None:
    """Open the store, index what other processes wrote, and start overdue background jobs."""
    run_guarded(
        "session_start",
        context,
        lambda memory, _until: _warm_up(memory),
    )


@hookimpl(trylast=True)
def session_end(context: RunContext) -> None:
    """Wait for the session's late writes; the last session to end closes the store."""
    run_guarded(
        "session_end",
        context,
        lambda _memory, _until: memory_pool.end_session(context),
    )


@hookimpl(trylast=True)
def before_compaction(event: RunEvent, context: RunContext) -> None:
    """Record messages not stored yet, and remember the session's topic.

    No credit, as the run has not ended.
    """
    run_guarded(
        "before_compaction",
        context,
        lambda memory, _until: _record_unsaved(memory, event, context),
    )


def _warm_up(memory: MemTier) -> None:
    memory.catch_up(full=False)
    memory.warm_up()
    status = memory.status()
    consolidation = memory.settings.consolidation.enabled and status["consolidation"]["due"]
    if consolidation or status["embedding"]["due"]:
        from memtier_plugin.daemon.child import start_detached

        start_detached(memory.home, memory.project)  # unless a daemon serves the project
    if memory.settings.share.git:
        _bring_in_shared(memory)


def _bring_in_shared(memory: MemTier) -> None:
    """Bring in what the team shares in git in a process of its own, if it is new."""
    from memtier_plugin.daemon.child import start_bringing_in
    from memtier_plugin.transfer.team import Team

    workspace = memory.actor.workspace
    with suppress(NotFound):  # no repository
        if workspace and Team(memory).is_due():
            start_bringing_in(memory.home, memory.project, memory.agent_id, workspace)


def _record_unsaved(memory: MemTier, event: RunEvent, context: RunContext) -> None:
    if event.messages:
        memory.record(
            event.messages,
            session_id=context.session_id or "default",
            run_id=context.run_id,
            sender=context.sender,
            parent=context.parent,
            private=context.private,
            seen=event.seen,
        )
    if context.session_id:
        memory.working.compacted(context.session_id, context.sender)


# -- Run hooks for a host, keeping exceptions from it and meeting every deadline

T = TypeVar("T")
HookName = Literal[
    "before_prompt_build",
    "before_tool_call",
    "agent_end",
    "session_start",
    "session_end",
    "before_compaction",
]

_DEADLINES: Final[Mapping[HookName, str]] = {  # settings under `hooks`
    "before_prompt_build": "prompt_deadline_ms",
    "before_tool_call": "prompt_deadline_ms",
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

    What an agent waits for is not queued, so that it never waits for an earlier run's late write.

    Args:
        work: called with the memory and its deadline, in ``time.monotonic()`` seconds.
        answered: called with an answer in time, before the next queued hook.
    """
    started = time.monotonic()
    queue = replace(context, run_id=None, sender=None, parent=None)
    line = None if hook in ("before_prompt_build", "before_tool_call") else queue
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
