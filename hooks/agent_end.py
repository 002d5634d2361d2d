"""Hook `agent_end`: record the run, derive its outcome and credit the lines injected into it."""

from __future__ import annotations

from memtier_plugin.core.hookspecs import hookimpl
from memtier_plugin.core.results import RunContext, RunEvent
from memtier_plugin.facts import forgetting
from memtier_plugin.memory import MemTier

from .guard import run_guarded


@hookimpl(trylast=True)
def agent_end(event: RunEvent, context: RunContext) -> None:
    """Record the run and assign its credit."""
    run_guarded(
        "agent_end",
        lambda hooks: hooks.end_deadline_ms,
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
