"""True Memory's plugin: the gate's job, the profile `rrf`, surprise, made-up answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memtier_papers.true_memory.settings import (
    FusedProfile,
    Gate,
    MadeUpAnswers,
    PeopleSettings,
    Rerank,
    Rrf,
    SignalWeights,
)
from memtier_plugin.core.hookspecs import IndexTables, JobSpec, OverviewKind, hookimpl, off_while
from memtier_plugin.core.records import EventPayload
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.structs import Record

if TYPE_CHECKING:
    from memtier_plugin.retrieval.candidates import Expansion
    from memtier_plugin.retrieval.search import Ranker


@hookimpl
def memtier_settings() -> Mapping[type[Record], str]:
    """Return this paper's settings."""
    return {
        FusedProfile: "retrieval",
        SignalWeights: "retrieval.weights",
        Rrf: "rrf",
        Rerank: "rerank",
        PeopleSettings: "people",
        Gate: "gate",
        MadeUpAnswers: "ask",
    }


@hookimpl
def memtier_jobs() -> Sequence[JobSpec]:
    """Return the job `gate`, due if `gate.mode` is on."""
    return [JobSpec("gate", _group_of, _judge)]


@hookimpl
def memtier_event_kinds() -> Sequence[type[EventPayload]]:
    """Return the verdicts of the gate."""
    from memtier_papers.true_memory.verdicts import GateEvent

    return [GateEvent]


@hookimpl
def memtier_index_tables() -> Sequence[IndexTables]:
    """Return the table of the gate's verdicts."""
    from memtier_papers.true_memory.verdicts import TABLES

    return [TABLES]


@hookimpl
def memtier_ranker(profile: str) -> Ranker | None:
    """Return the ranker of the profile `rrf`."""
    if profile != "rrf":
        return None
    from memtier_papers.true_memory.ranker import RRF

    return RRF


@hookimpl
@off_while(SignalWeights, surprise=0)
def memtier_pool_signals(settings: Settings) -> Mapping[str, Callable[[Any, Any, Any], Any]]:
    """Return the surprise signal, if it has a weight."""
    from memtier_papers.true_memory.surprise_search import score_surprise

    return {"surprise": score_surprise}


@hookimpl
@off_while(MadeUpAnswers, hypothetical=False)
def memtier_expand(
    actor: Any, text: str, request: RecallRequest, viewer: Any, until: float | None
) -> Expansion | None:
    """Return a made-up answer, if `ask.hypothetical` is on."""
    from memtier_papers.true_memory.hypothetical import HypothesisWriter

    writer = HypothesisWriter(actor)
    return writer.write(text, viewer, until) if writer.applies(request) else None


@hookimpl(trylast=True)  # after any other plugin's reranker
@off_while(Rerank, model="none")
def memtier_rerank(
    query: str,
    hits: Sequence[Hit],
    deadline: float,
    settings: Settings,
    redact: Callable[[str], str],
) -> Sequence[Hit] | None:
    """Order hits by the model of `rerank.model`, if there is one."""
    from memtier_papers.true_memory.reranking import rerank

    return rerank(query, hits, deadline, settings, redact)


@hookimpl
@off_while(Rerank, model="none")
def memtier_order_pages(
    question: str,
    pages: Sequence[Any],
    reader: Any,
    settings: Settings,
    redact: Callable[[str], str],
) -> Sequence[Any] | None:
    """Order the pages that `ask` reads by the model of `rerank.model`, if there is one."""
    from memtier_papers.true_memory.reranking import PAGE_SECONDS, order_pages

    return order_pages(redact(question), pages, reader, settings, PAGE_SECONDS)


@hookimpl
@off_while(Rerank, model="none")
def memtier_warm_up(settings: Settings) -> None:
    """Load the model of `rerank.model`, or open its client."""
    from memtier_papers.true_memory.reranking import warm_up

    warm_up(settings)


@hookimpl
@off_while(PeopleSettings, profiles=False)
def memtier_overviews(settings: Settings) -> Sequence[OverviewKind]:
    """Return the profiles of people, if `people.profiles` is on."""
    from memtier_papers.true_memory.profiles import RELATION, PeopleReader

    return [OverviewKind(RELATION, lambda store: PeopleReader(store).overviews())]


@hookimpl
@off_while(PeopleSettings, profiles=False)
def memtier_find_overviews(query: Any, search: Any) -> Mapping[int, str]:
    """Return the profiles of the people that a question names, if `people.profiles` is on."""
    from memtier_papers.true_memory.profile_search import find_profiles

    return find_profiles(query, search)


@hookimpl
@off_while(PeopleSettings, profiles=False)
def memtier_annotate(hits: Sequence[Hit]) -> Sequence[Hit] | None:
    """Add a note to the profiles of people who share a name."""
    if sum(getattr(hit.item, "shelf", "") == "profile" for hit in hits) < 2:
        return None
    from memtier_papers.true_memory.profile_search import note_namesakes

    return note_namesakes(hits)


@hookimpl
def memtier_profiles(store: Any, name: str | None) -> Sequence[Any]:
    """Return the profiles of a project's people."""
    from memtier_papers.true_memory.profiles import PeopleReader

    return PeopleReader(store).profiles(name)


def _group_of(settings: Settings) -> str | None:
    return None if settings.of(Gate).mode == "off" else "local"


def _judge(memory: Any, run: Any) -> None:
    from memtier_papers.true_memory.gatekeeper import Gatekeeper

    while Gatekeeper(memory.actor).run(stop=run.stop.is_set).left and not run.stop.is_set():
        pass
