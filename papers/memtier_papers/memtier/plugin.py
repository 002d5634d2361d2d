"""The plugin of MemTier: the job that credits by log-probabilities, and the journal's lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memtier_plugin.core.event_payload import EventPayload
from memtier_plugin.core.hookspecs import JobSpec, hookimpl
from memtier_plugin.core.settings.schema import Settings


@hookimpl
def memtier_jobs() -> Sequence[JobSpec]:
    """Return the job `attribution`, due where `attribution.proxy` is logprob."""
    return [JobSpec("attribution", _group_of, _attribute)]


@hookimpl
def memtier_event_kinds() -> Sequence[type[EventPayload]]:
    """Return the lines of runs that were scored, and of what was learned."""
    from memtier_papers.learn_log import LearnEvent
    from memtier_papers.memtier.logprob_credit import AttributeEvent

    return [AttributeEvent, LearnEvent]


def _group_of(settings: Settings) -> str | None:
    return "endpoint" if settings.attribution.proxy == "logprob" else None


def _attribute(memory: Any, run: Any) -> None:
    from memtier_papers.memtier.logprob_credit import LogprobCreditor

    creditor = LogprobCreditor(memory.actor)
    while creditor.run(stop=run.stop.is_set).left and not run.stop.is_set():
        pass
