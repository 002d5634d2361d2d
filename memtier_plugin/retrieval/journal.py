"""The journal of an agent's recalls, and which of them a run that ends had in its prompt."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import fields
from itertools import islice
from typing import Final

from msgspec import Struct

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import IndexProblem, LedgerError
from memtier_plugin.core.events import RankedItem, RecallEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import INJECTING, JournalEvent
from memtier_plugin.core.results import Hit, Recall
from memtier_plugin.core.settings.schema import Weights
from memtier_plugin.core.upkeep_events import DeliverEvent
from memtier_plugin.retrieval.plan import RecallPlan
from memtier_plugin.retrieval.session import AlreadyShown
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.protocol import LOCK_SECONDS
from memtier_plugin.storage.state import is_offer, settle_offers

MAX_NEAR_MISSES: Final = 8  # hits without a line that are journalled, the best
_RUNS: Final = 512  # not ended, whose recalls are kept in memory
_ASKED: Final = 20  # recalls among which a session's questions are looked for

_OWN_SIGNALS: Final = {field.name for field in fields(Weights)}
_UNKNOWN: Final = "this agent's journal has no such recall"
LATE: Final = "its block came late: the host never said that the prompt has it"
_SEARCH: Final = "it was no recall with purpose='inject', so no prompt is known to have had it"

_log = logging.getLogger("memtier")


class RunRecalls(Struct, frozen=True):
    """The recalls that a run is credited for, and why others that were named are not."""

    credited: list[JournalEvent]
    refused: Mapping[str, str]


class RecallJournal:
    """Writes recalls, and keeps those of runs that have not ended in memory; thread-safe."""

    def __init__(self, actor: Actor, already_shown: AlreadyShown) -> None:
        self._actor = actor
        self._store, self._agent = actor.store, actor.agent
        self._already_shown = already_shown
        self._by_run: dict[tuple[str, str], list[JournalEvent]] = {}
        self._mutex = Mutex()

    def write(self, event: JournalEvent, recall: RecallEvent) -> None:
        """Write a recall; one that cannot be written is credited in this process all the same.

        Args:
            recall: what the event holds.
        """
        self._append(event, timeout=0.2)
        if recall.purpose in INJECTING:
            run = (event.run_id or "", recall.session_id or "")
            with self._mutex:
                self._by_run.setdefault(run, []).append(event)
                while len(self._by_run) > _RUNS:  # runs that never ended
                    self._by_run.pop(next(iter(self._by_run)))
        if recall.purpose == "inject":
            self._already_shown.record_injected(recall, event.timestamp)

    def acknowledge(self, recall_id: str, sender: str | None = None) -> None:
        """Write that a prompt has the block of an offer; it holds in this process in any case.

        Args:
            sender: who must have been asked for, if somebody was.
        """
        with self._mutex:
            made = [e for events in self._by_run.values() for e in events if e.id == recall_id]
        for offer in filter(is_offer, made or self._written(None, [recall_id])):
            if _is_for_another(offer, sender):
                continue
            delivery = self._actor.event(DeliverEvent(recall=recall_id), run=offer.run_id)
            self._append(delivery, timeout=LOCK_SECONDS)
            with self._mutex:
                for run, events in self._by_run.items():
                    self._by_run[run] = settle_offers(events, [delivery])
            self._already_shown.record_injected(RecallEvent.of(offer), offer.timestamp)

    def _append(self, event: JournalEvent, timeout: float) -> None:
        try:
            self._store.append_events([event], timeout=timeout)
        except LedgerError as error:
            _log.warning("%s %s is not in the journal: %s", event.kind, event.id, error)

    def recalls_of_run(
        self,
        run_id: str | None,
        session_id: str,
        recall_ids: Collection[str] | None,
        sender: str | None = None,
    ) -> RunRecalls:
        """Return the recalls whose block a run had in its prompt, wherever they were made.

        Args:
            sender: whose run it is; what was recalled for another counts as unknown.
            recall_ids: only these, whatever run or session they named; by default those of the
                run, or without a run those of the session since its last run.
        """
        recalls = {event.id: event for event in self._take(run_id, session_id, recall_ids, sender)}
        try:
            written = self._written(run_id, recall_ids)
            recalls |= {e.id: e for e in written if e.id not in recalls or not is_offer(e)}
        except IndexProblem as problem:
            _log.warning("only this process's recalls are credited: %s", problem)
        recalls = {i: e for i, e in recalls.items() if not _is_for_another(e, sender)}
        purposes = {event.id: RecallEvent.of(event).purpose for event in recalls.values()}
        refused = dict.fromkeys(set(recall_ids or ()) - recalls.keys(), _UNKNOWN)
        refused |= {
            i: LATE if purpose == "offer" else _SEARCH
            for i, purpose in purposes.items()
            if purpose != "inject"
        }
        return RunRecalls([e for i, e in recalls.items() if i not in refused], refused)

    def recalls_before(self, run_id: str, session_id: str) -> list[RecallEvent]:
        """Return a run's recalls so far, in their order; `recalls_of_run` still has them."""
        with self._mutex:
            events = {e.id: e for e in self._by_run.get((run_id, session_id), ())}
        try:
            events |= {event.id: event for event in self._written(run_id, None)}
        except IndexProblem as problem:
            _log.warning("only this process's recalls are looked at: %s", problem)
        ordered = sorted(events.values(), key=lambda each: (each.timestamp, each.id))
        return [*map(RecallEvent.of, ordered)]

    def asked_in(self, session: str, sender: str | None) -> list[str]:
        """Return a sender's newest questions by `ask` in a session, the last one first."""
        events = self._store.reader().events([RecallEvent.KIND], agent=self._agent, newest=_ASKED)
        events = [*reversed(self._store.unindexed_events(self._agent)), *events]
        recalls = [RecallEvent.of(event) for event in events if event.kind == RecallEvent.KIND]
        key = ("ask", session, sender or "")
        questions = (r.query for r in recalls if (r.purpose, r.session_id, r.sender or "") == key)
        return [*dict.fromkeys(questions)]

    def _take(
        self,
        run_id: str | None,
        session_id: str,
        recall_ids: Collection[str] | None,
        sender: str | None,
    ) -> list[JournalEvent]:
        """Return what memory has of a run's recalls, and forget it; of all runs by their ids."""
        run = run_id or "", session_id
        with self._mutex:
            taken = self._by_run.pop(run, [])
            if others := [event for event in taken if _is_for_another(event, sender)]:
                self._by_run[run] = others
            if recall_ids is None:
                return taken
            others = [event for events in self._by_run.values() for event in events]
        return [event for event in taken + others if event.id in recall_ids]

    def _written(
        self, run_id: str | None, recall_ids: Collection[str] | None
    ) -> list[JournalEvent]:
        """Return what the journal has of a run's recalls, or of the recalls of these ids."""
        reader = self._store.reader()
        events = self._store.unindexed_events(self._agent)
        if recall_ids is not None:
            events += [event for i in recall_ids if (event := reader.event(i))]
        elif run_id:
            events += reader.events(agent=self._agent, run=run_id, kinds=[RecallEvent.KIND])
        else:
            return []
        return [
            event
            for event in reader.settle(events)
            if event.agent_id == self._agent
            and event.kind == RecallEvent.KIND
            and (event.run_id == run_id if recall_ids is None else event.id in recall_ids)
        ]


def _is_for_another(recall: JournalEvent, sender: str | None) -> bool:
    """Return whether a recall was made for another person than the one who is named."""
    recalled_for = RecallEvent.of(recall).sender
    return bool(sender and recalled_for and sender != recalled_for)


def recall_event(
    recall: Recall, plan: RecallPlan, *, query: str, profile: str, weights: Mapping[str, float]
) -> RecallEvent:
    """Build the event of a recall.

    Args:
        query: as it may be kept.
    """
    understood, request = plan.query, plan.query.request
    ranks: dict[str, int] = {}
    for rank, hit in enumerate(recall.hits, 1):
        ranks.setdefault(hit.item.id, rank)
    injected = {hit.item.id for hit in recall.injected}
    others = (hit for hit in recall.hits if hit.item.id not in injected)
    missed = [*islice(others, MAX_NEAR_MISSES)]
    return RecallEvent(
        query=query,
        purpose=request.purpose if recall.injected or request.purpose != "offer" else "inject",
        profile=profile,
        weights=weights,
        session_id=request.session_id,
        at=to_iso(understood.viewer.at) if request.at else "",
        sender=request.sender,
        everybody=understood.viewer.asker is None or None,
        k=understood.k,
        token_budget=understood.token_budget,
        repeats=plan.already_shown,
        depth=recall.depth,
        route=recall.route.to_json() if recall.route else None,
        steps=tuple(step.to_json() for step in recall.steps),
        label=recall.label,
        ms=round(recall.ms, 3),
        postings=recall.postings,
        vectors=recall.vectors,
        tokens=recall.tokens,
        injected=tuple(_ranked_item(hit, ranks[hit.item.id], weights) for hit in recall.injected),
        probability=None if recall.probability is None else round(recall.probability, 4),
        silent=recall.silent or None,
        withheld=recall.withheld,
        near_misses=tuple(_ranked_item(hit, ranks[hit.item.id]) for hit in missed),
    )


def _ranked_item(hit: Hit, rank: int, weights: Mapping[str, float] | None = None) -> RankedItem:
    """Return a hit as it is journalled; without weights, without its signals."""
    return RankedItem(
        item=hit.item.id,
        rank=rank,
        tier=hit.tier,
        score=round(hit.score, 9),
        weight=hit.weight,
        signals={}
        if weights is None
        else {
            name: round(value, 6)
            for name, value in hit.signals.items()
            if name in weights or name not in _OWN_SIGNALS  # else it counts for nothing
        },
        note=hit.note or None,
        proof=hit.proof or None,
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
