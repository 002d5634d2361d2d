"""The plugin of True Memory: the background job that judges lines by the encoding gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memtier_plugin.core.hookspecs import JobSpec, hookimpl

if TYPE_CHECKING:
    from memtier_plugin.core.settings.schema import Settings


@hookimpl
def memtier_jobs() -> Sequence[JobSpec]:
    """Return the job `gate`, due where `gate.mode` is on."""
    return [JobSpec("gate", _group_of, _judge)]


def _group_of(settings: Settings) -> str | None:
    return None if settings.gate.mode == "off" else "local"


def _judge(memory: Any, run: Any) -> None:
    from memtier_papers.true_memory.gatekeeper import Gatekeeper

    while Gatekeeper(memory.actor).run(stop=run.stop.is_set).left and not run.stop.is_set():
        pass
