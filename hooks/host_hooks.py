"""The hooks that hosts call: recall before a prompt, record and credit a run, keep sessions."""

from __future__ import annotations

import time
from typing import Final

from memtier_plugin.core.hookspecs import hookimpl
from memtier_plugin.core.results import PromptAddition, PromptEvent, RunContext, RunEvent, Shown
from memtier_plugin.facts import forgetting
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool
from memtier_plugin.retrieval import recall as _recall  # noqa: F401 loaded before the deadline starts
from memtier_plugin.trust.escaping import add_first_line, add_line, remove_blocks

from .guard import run_guarded
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
