"""Session hooks: warm up at the start, finish at the end, save before a compaction."""

from __future__ import annotations

from memtier_plugin.core.hookspecs import hookimpl
from memtier_plugin.core.results import RunContext, RunEvent
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool

from .guard import run_guarded


@hookimpl(trylast=True)
def session_start(context: RunContext) -> None:
    """Open the store, index what other processes wrote, and start overdue background jobs."""
    run_guarded(
        "session_start",
        lambda hooks: hooks.session_deadline_ms,
        context,
        lambda memory, _until: _warm_up(memory),
    )


@hookimpl(trylast=True)
def session_end(context: RunContext) -> None:
    """Wait for the session's late writes; the last session to end closes the store."""
    run_guarded(
        "session_end",
        lambda hooks: hooks.session_deadline_ms,
        context,
        lambda _memory, _until: memory_pool.end_session(context),
    )


@hookimpl(trylast=True)
def before_compaction(event: RunEvent, context: RunContext) -> None:
    """Record the messages that are not stored yet, and keep what the session was about.

    No credit, as the run has not ended.
    """
    run_guarded(
        "before_compaction",
        lambda hooks: hooks.end_deadline_ms,
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
