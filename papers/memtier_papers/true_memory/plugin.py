"""The plugin of True Memory: the gate's job, the profile `rrf`, surprise, made-up answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memtier_plugin.core.hookspecs import JobSpec, hookimpl
from memtier_plugin.core.results import RecallRequest
from memtier_plugin.core.settings.schema import Settings

if TYPE_CHECKING:
    from memtier_plugin.retrieval.candidates import Expansion
    from memtier_plugin.retrieval.search import Ranker


@hookimpl
def memtier_jobs() -> Sequence[JobSpec]:
    """Return the job `gate`, due where `gate.mode` is on."""
    return [JobSpec("gate", _group_of, _judge)]


@hookimpl
def memtier_ranker(profile: str) -> Ranker | None:
    """Return the ranker of the profile `rrf`."""
    if profile != "rrf":
        return None
    from memtier_papers.true_memory.ranker import RRF

    return RRF


@hookimpl
def memtier_pool_signals(settings: Settings) -> Mapping[str, Callable[[Any, Any, Any], Any]]:
    """Return the signal of surprise, where it has a weight."""
    if not settings.retrieval.weights.surprise:
        return {}
    from memtier_papers.true_memory.ranker import score_surprise

    return {"surprise": score_surprise}


@hookimpl
def memtier_expand(
    actor: Any, text: str, request: RecallRequest, viewer: Any, until: float | None
) -> Expansion | None:
    """Return a made-up answer, where `ask.hypothetical` is on."""
    if not actor.store.settings.ask.hypothetical:
        return None
    from memtier_papers.true_memory.hypothetical import HypothesisWriter

    writer = HypothesisWriter(actor)
    return writer.write(text, viewer, until) if writer.applies(request) else None


def _group_of(settings: Settings) -> str | None:
    return None if settings.gate.mode == "off" else "local"


def _judge(memory: Any, run: Any) -> None:
    from memtier_papers.true_memory.gatekeeper import Gatekeeper

    while Gatekeeper(memory.actor).run(stop=run.stop.is_set).left and not run.stop.is_set():
        pass
