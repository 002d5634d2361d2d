"""The journal of an agent's recalls, and which of them a run that ends had in its prompt."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from typing import Final

from memtier_plugin.core.errors import IndexProblem, LedgerError
from memtier_plugin.core.events import RankedItem, RecallEvent
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.core.results import Hit, Recall
from memtier_plugin.core.times import to_iso
from memtier_plugin.retrieval.plan import RecallPlan
from memtier_plugin.storage.store import Store

MAX_NEAR_MISSES: Final = 8  # hits without a line that are journalled, the best
_RUNS: Final = 512  # not ended, whose recalls are kept in memory

_log = logging.getLogger("memtier")


class RecallJournal:
    """Writes recalls, and keeps those of runs that have not ended in memory; thread-safe."""

    def __init__(self, store: Store, agent: str) -> None:
        self._store = store
        self._agent = agent
        self._by_run: dict[tuple[str, str], list[JournalEvent]] = {}
        self._mutex = threading.Lock()

    def write(self, event: JournalEvent) -> None:
        """Write a recall; one that cannot be written is credited in this process all the same."""
        try:
            self._store.append_events([event], timeout=0.2)
        except LedgerError as error:
            _log.warning("recall %s is not in the journal: %s", event.id, error)
        recall = RecallEvent.of(event)
        if recall.purpose == "inject":
            run = (event.run_id or "", recall.session_id or "")
            with self._mutex:
                self._by_run.setdefault(run, []).append(event)
                while len(self._by_run) > _RUNS:  # runs that never ended
                    self._by_run.pop(next(iter(self._by_run)))

    def recalls_of_run(
        self, run_id: str | None, session_id: str, recall_ids: Collection[str] | None
    ) -> list[JournalEvent]:
        """Return the recalls whose block a run had in its prompt, wherever they were made.

        Args:
            recall_ids: only these; by default those of the run, or without a run those of the
                session since its last run.
        """
        with self._mutex:
            own = self._by_run.pop((run_id or "", session_id), [])
        recalls = {event.id: event for event in own}
        try:
            recalls |= {event.id: event for event in self._written(run_id, recall_ids or ())}
        except IndexProblem as problem:
            _log.warning("only this process's recalls are credited: %s", problem)
        return [
            event
            for event in recalls.values()
            if (recall_ids is None or event.id in recall_ids)
            and RecallEvent.of(event).purpose == "inject"
        ]

    def _written(self, run_id: str | None, recall_ids: Collection[str]) -> list[JournalEvent]:
        """Return what the journal has of a run's recalls, and of the recalls of these ids."""
        reader = self._store.reader()
        events: list[JournalEvent] = []
        unindexed = self._store.unindexed_events(self._agent)
        if run_id:
            events += [event for event in unindexed if event.run_id == run_id]
            events += reader.events(agent=self._agent, run=run_id, kinds=["recall"])
        events += [event for i in recall_ids if (event := reader.event(i))]
        mine = (event for event in events if event.agent_id == self._agent)
        return [event for event in mine if event.kind == "recall"]


def recall_event(
    recall: Recall, plan: RecallPlan, *, query: str, profile: str, weights: Mapping[str, float]
) -> RecallEvent:
    """Build the event of a recall.

    Args:
        query: as it may be kept.
    """
    asked, request = plan.query, plan.query.request
    ranks: dict[str, int] = {}
    for rank, hit in enumerate(recall.hits, 1):
        ranks.setdefault(hit.item.id, rank)
    injected = {hit.item.id for hit in recall.injected}
    missed = [hit for hit in recall.hits if hit.item.id not in injected][:MAX_NEAR_MISSES]
    return RecallEvent(
        query=query,
        purpose=request.purpose,
        profile=profile,
        weights=weights,
        session_id=request.session_id,
        at=to_iso(asked.viewer.at),
        sender=request.sender,
        k=asked.k,
        token_budget=asked.token_budget,
        repeats=plan.already_shown,
        depth=recall.depth,
        route=recall.route.to_json() if recall.route else None,
        steps=tuple(step.to_json() for step in recall.steps),
        label=recall.label,
        ms=round(recall.ms, 3),
        postings=recall.postings,
        vectors=recall.vectors,
        tokens=recall.tokens,
        injected=tuple(_ranked_item(hit, ranks[hit.item.id]) for hit in recall.injected),
        probability=None if recall.probability is None else round(recall.probability, 4),
        silent=recall.silent or None,
        near_misses=tuple(_ranked_item(hit, ranks[hit.item.id]) for hit in missed),
    )


def _ranked_item(hit: Hit, rank: int) -> RankedItem:
    return RankedItem(
        item=hit.item.id,
        rank=rank,
        tier=hit.tier,
        score=round(hit.score, 9),
        weight=hit.weight,
        signals={name: round(value, 6) for name, value in hit.signals.items()},
        note=hit.note or None,
    )


def recall_label(plan: RecallPlan, vectors: int) -> str:
    """Return how a recall was made, in a word, or why it is less than it should be."""
    if plan.degradations:
        return f"degraded: {', '.join(dict.fromkeys(plan.degradations))}"
    if plan.judged.silent:
        return "silent"
    if not plan.hits:
        return "empty"
    return "hybrid" if vectors else "lexical"
