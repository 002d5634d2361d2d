"""The plugin of MemTier: other ways to credit lines, and what they write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memtier_plugin.core.event_payload import EventPayload
from memtier_plugin.core.hookspecs import JobSpec, hookimpl
from memtier_plugin.core.settings.schema import Causes as CauseSettings
from memtier_plugin.core.settings.schema import Settings

if TYPE_CHECKING:
    from memtier_papers.learn_log import LearnLog
    from memtier_papers.memtier.causes import Causes
    from memtier_papers.memtier.logprob_credit import LogprobCreditor
    from memtier_papers.memtier.retirement import Retirement
    from memtier_plugin.memory import MemTier

_log = logging.getLogger("memtier")


@hookimpl
def memtier_jobs() -> Sequence[JobSpec]:
    """Return the jobs `attribution` and `causes`."""
    return [
        JobSpec(
            "attribution",
            lambda settings: "endpoint" if settings.attribution.proxy == "logprob" else None,
            _attribute,
        ),
        JobSpec("causes", _when_causes, lambda memory, _run: follow_causes(memory)),
    ]


@hookimpl
def memtier_event_kinds() -> Sequence[type[EventPayload]]:
    """Return the lines of runs that were scored, and of what was learned."""
    from memtier_papers.learn_log import LearnEvent
    from memtier_papers.memtier.logprob_credit import AttributeEvent

    return [AttributeEvent, LearnEvent]


@hookimpl
def memtier_services() -> Mapping[str, Callable[[MemTier], Any]]:
    """Return what a memory has by these names."""
    return {
        "causes": causes_of,
        "retirement": retirement_of,
        "learned": learned_of,
        "logprob_creditor": logprob_creditor_of,
    }


def causes_of(memory: MemTier) -> Causes:
    """Return what lines change in the reward of runs, for the person at the machine."""
    from memtier_papers.memtier.causes import Causes

    return Causes(memory.actor)


def retirement_of(memory: MemTier) -> Retirement:
    """Return the proposals to forget what never helped."""
    from memtier_papers.memtier.retirement import Retirement

    return Retirement(memory.actor)


def learned_of(memory: MemTier) -> LearnLog:
    """Return the log of what was learned and put into the project's settings."""
    from memtier_papers.learn_log import LearnLog

    return LearnLog(memory.actor)


def logprob_creditor_of(memory: MemTier) -> LogprobCreditor:
    """Return what credits ended runs by a model's log-probabilities."""
    from memtier_papers.memtier.logprob_credit import LogprobCreditor

    return LogprobCreditor(memory.actor)


def follow_causes(memory: MemTier) -> None:
    """Bound weights by measured uplift, and propose to forget what never helped, as configured."""
    if memory.paused:
        return
    if bounded := causes_of(memory).bound_weights():
        _log.info("project %r: %d weights follow their uplift", memory.project, bounded)
    if memory.settings.causes.propose:
        retirement_of(memory).propose()


def _when_causes(settings: Settings) -> str | None:
    return "daily" if settings.causes != CauseSettings() else None


def _attribute(memory: MemTier, run: Any) -> None:
    creditor = logprob_creditor_of(memory)
    while creditor.run(stop=run.stop.is_set).left and not run.stop.is_set():
        pass
