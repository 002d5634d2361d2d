"""HMO's plugin: the job that rates lines and maintains tiers, and the tiered search."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memtier_papers.hmo.settings import Priority, TieredSearch
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.hookspecs import IndexTables, JobSpec, hookimpl
from memtier_plugin.core.records import EventPayload, JournalEvent
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.structs import Record

if TYPE_CHECKING:
    from memtier_papers.hmo.job import Prioritiser
    from memtier_plugin.memory import MemTier
    from memtier_plugin.retrieval.search import Ranker

_log = logging.getLogger("memtier")


@hookimpl
def memtier_settings() -> Mapping[type[Record], str]:
    """Return the settings of priorities and of the tiered search."""
    return {TieredSearch: "retrieval", Priority: "priority"}


@hookimpl
def memtier_jobs() -> Sequence[JobSpec]:
    """Return the job `priority`, due if `priority.enabled` is on."""
    return [JobSpec("priority", _group_of, _prioritise)]


@hookimpl
def memtier_ranker(profile: str) -> Ranker | None:
    """Return the ranker of `retrieval.search: tiers`."""
    if profile != "tiers":
        return None
    from memtier_papers.hmo.tiers import TIERED

    return TIERED


@hookimpl
def memtier_explain(
    recall: JournalEvent, items: Mapping[str, Any], reader: Any, settings: Settings, now: datetime
) -> Mapping[str, Any]:
    """Return the priorities of the rated items, by id."""
    from memtier_papers.hmo.headers import describe_priorities
    from memtier_papers.hmo.tables import PriorityReader

    priorities = reader.plugin_tables(PriorityReader)
    sender = RecallEvent.of(recall).sender or ""
    share = settings.of(Priority).importance_share
    return {
        "priorities": describe_priorities(priorities, [*items], recall.agent_id, sender, now, share)
    }


@hookimpl
def memtier_event_kinds() -> Sequence[type[EventPayload]]:
    """Return the events of ratings, personas and tiers."""
    from memtier_papers.hmo.events import ImportanceEvent, PersonaEvent, PrioritiseEvent

    return [ImportanceEvent, PersonaEvent, PrioritiseEvent]


@hookimpl
def memtier_index_tables() -> Sequence[IndexTables]:
    """Return the tables of importance and tiers."""
    from memtier_papers.hmo.tables import TABLES

    return [TABLES]


@hookimpl
def memtier_status(
    recalls: Sequence[JournalEvent], reader: Any, settings: Settings
) -> Mapping[str, Any]:
    """Return how many entries are rated, and how many are in cache and buffer."""
    if not settings.of(Priority).enabled:
        return {}
    from memtier_papers.hmo.tables import PriorityReader

    counts = reader.plugin_tables(PriorityReader).counts()
    tiers = "{cache} by priority in the cache, {buffer} in the buffer".format(**counts)
    return {"priority": {**counts, "said": f"{counts['rated']} entries rated, {tiers}"}}


def prioritiser_of(memory: MemTier) -> Prioritiser:
    """Return the prioritiser of a memory's project."""
    from memtier_papers.hmo.job import Prioritiser
    from memtier_plugin.retrieval.pasted_text import remove_pasted

    return Prioritiser(memory.actor, remove_pasted)


def _group_of(settings: Settings) -> str | None:
    if not settings.of(Priority).enabled:
        return None
    return "local" if settings.of(Priority).model == "none" else "endpoint"


def _prioritise(memory: MemTier, run: Any) -> None:
    from memtier_papers.hmo.formula import DEFAULT_IMPORTANCE

    prioritiser = prioritiser_of(memory)
    while True:
        report = prioritiser.run(stop=run.stop.is_set)
        if report.defaulted:
            _log.warning(
                "project %r: priority.model answered no number for %d of %d entries: rated %d",
                memory.project,
                report.defaulted,
                report.by_model,
                DEFAULT_IMPORTANCE,
            )
        if report.problem:
            _log.warning("project %r: rated by rules: %s", memory.project, report.problem)
        if not (report.left and (report.rated or report.moved)) or run.stop.is_set():
            return
