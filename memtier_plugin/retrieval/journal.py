"""The journal of an agent's recalls: written, credited when a run ends, and read by `explain`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import IndexProblem, LedgerError, NotFound
from memtier_plugin.core.event_lines import PACKED_FIELDS, STEPS, is_packed
from memtier_plugin.core.events import (
    CreditEvent,
    DeliverEvent,
    RankedItem,
    RecallEvent,
    RemindEvent,
)
from memtier_plugin.core.formats import ID_LENGTH, MIN_ID_END, to_iso
from memtier_plugin.core.records import INJECTING, JournalEvent
from memtier_plugin.core.results import REMINDS, Hit, Recall
from memtier_plugin.core.settings.schema import Weights
from memtier_plugin.retrieval.plan import RecallPlan
from memtier_plugin.retrieval.session import AlreadyShown
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.protocol import LOCK_SECONDS
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import is_offer, settle_offers
from memtier_plugin.storage.store import Actor

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
            self._note_shown(event, recall)

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
            self._note_shown(offer, RecallEvent.of(offer))

    def _note_shown(self, event: JournalEvent, recall: RecallEvent) -> None:
        self._already_shown.record_injected(recall, event.timestamp)
        if items := tuple(each.item for each in recall.injected if REMINDS in each.signals):
            reminder = RemindEvent(items=items, recall=event.id)
            event = self._actor.event(reminder, run=event.run_id)
            self._append(event, timeout=LOCK_SECONDS)

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
        purposes = {event.id: event.data.get("purpose") for event in recalls.values()}
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
    recalled_for = RecallEvent.of(recall).sender if sender else None
    return bool(recalled_for and sender != recalled_for)


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
    by_plugin = recall.route or plan.result.steps  # else the steps are always the same
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
        steps=tuple(step.to_json() for step in recall.steps) if by_plugin else (),
        label=recall.label,
        ms=round(recall.ms, 3),
        postings=recall.postings,
        vectors=recall.vectors,
        tokens=recall.tokens,
        injected=tuple(_ranked_item(hit, ranks[hit.item.id], weights) for hit in recall.injected),
        probability=None if recall.probability is None else round(recall.probability, 4),
        silent=recall.silent or None,
        withheld=recall.withheld.to_json() if recall.withheld else None,
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


# -- Break a hit's score down by signal, as `explain` reports it.  Pure

RECOMPUTED: Final = "recomputed"  # where signals are from that the journal does not have
JOURNALLED: Final = 0.5 / STEPS  # by how much a journalled signal may be off
_ROUNDING: Final = 1e-6  # what rounding in the journal leaves of a sum
_MAX_LACKED: Final = 3  # signals named as what an item lacked most

SignalWeights = Mapping[str, float]


def position_of(hits: Sequence[Hit], item_id: str) -> int | None:
    """Return the index of an item among hits."""
    return next((index for index, hit in enumerate(hits) if hit.id == item_id), None)


def signal_contributions(signals: Mapping[str, float], weights: SignalWeights) -> dict[str, float]:
    """Return what each weighted signal adds to a score, the largest first."""
    parts = {name: weights[name] * value for name, value in signals.items() if name in weights}
    parts = {name: round(value, 6) for name, value in parts.items() if value}
    return dict(sorted(parts.items(), key=lambda part: (-abs(part[1]), part[0])))


def measure_hit(hit: Hit, weights: SignalWeights) -> dict[str, Any]:
    """Return the score of a hit, its learned weight, its signals and what each of them adds."""
    return {
        "score": round(hit.score, 9),
        "weight": hit.weight,
        "signals": {name: round(value, 6) for name, value in hit.signals.items()},
        **_sum_up(hit.signals, hit.score, weights),
    }


def _sum_up(
    signals: Mapping[str, float], score: float, weights: SignalWeights, *, rounded: float = 0.0
) -> dict[str, Any]:
    """Return what each signal adds to a score, and the rest of it.

    Args:
        rounded: by how much the signals may be off, as the journal has them.
    """
    parts = signal_contributions(signals, weights)
    # Of an extension's signal, or of the near-duplicate whose rank was taken.
    unexplained = score - sum(parts.values()) if signals else 0.0
    noise = 1e-4 + rounded * (1.0 + sum(map(abs, weights.values())))
    rest = round(unexplained, 6) if abs(unexplained) > noise else 0.0
    return {"contributions": parts, "other": rest}


def read_in_full(recall: JournalEvent, reader: Reader) -> JournalEvent:
    """Return a recall's event with every field, its near misses by their full ids."""
    if not is_packed(recall.data):
        return recall
    data = {**recall.data, **RecallEvent.of(recall).to_json()}
    data["at"] = data["at"] or to_iso(recall.timestamp)
    data["near_misses"] = [
        {**hit, "item": _full_id(hit["item"], reader)} for hit in data["near_misses"]
    ]
    return replace(recall, data={name: v for name, v in data.items() if name not in PACKED_FIELDS})


def _full_id(end: str, reader: Reader) -> str:
    """Return the id of a near miss; its end where no item has it, or several do."""
    ids = [i for forgotten in (False, True) for i in reader.ids_ending(end, 2, forgotten=forgotten)]
    return ids[0] if len(ids) == 1 else end


def report_lead(last: Hit, hit: Hit, weights: SignalWeights, hits: Sequence[Hit]) -> dict[str, Any]:
    """Return the lowest ranked line, and the signals that put it ahead of a hit."""
    of_hit = signal_contributions(hit.signals, weights)
    of_line = signal_contributions(last.signals, weights)
    leads = {name: value - of_hit.get(name, 0.0) for name, value in of_line.items()}
    largest = sorted(leads.items(), key=lambda lead: (-lead[1], lead[0]))[:_MAX_LACKED]
    return {
        "id": last.id,
        "rank": hits.index(last) + 1,
        **measure_hit(last, weights),
        "lacked": {name: round(value, 6) for name, value in largest if value > _ROUNDING},
    }


def find_journalled(event: JournalEvent, item_id: str) -> dict[str, Any] | None:
    """Return what the journal has of an item: its rank and signals, and its line if it had one."""
    weights = event.data.get("weights", {})
    for name in ("injected", "near_misses"):
        for number, hit in enumerate(event.data[name], 1):
            if hit["item"] == item_id:
                injected = name == "injected"
                return {
                    **hit,
                    **_sum_up(hit["signals"], hit["score"], weights, rounded=JOURNALLED),
                    "injected": injected,
                    "place": number if injected else None,
                }
    return None


def explain_journalled(
    hit: Mapping[str, Any], stored: Mapping[str, Stored], weights: SignalWeights
) -> dict[str, Any]:
    """Return a journalled hit with what its signals added, its text and its weight now."""
    current = stored.get(hit["item"])
    parts = _sum_up(hit["signals"], hit["score"], weights, rounded=JOURNALLED)
    kept = "journal" if hit["signals"] else "not kept"
    document = {"signals_from": kept, **hit, **parts, "id": hit["item"]}
    if current is None or current.state.forgotten:
        return {**document, "text": None, "file": None, "line": None}
    return {
        **document,
        "text": current.item.text,
        "weight_then": hit["weight"],
        "weight_now": current.state.weight,
        "file": current.file,
        "line": current.line,
    }


def credits_of(reader: Reader, recall: JournalEvent) -> Sequence[JournalEvent]:
    """Return the credits of a recall's run, and of runs that named the recall when they ended."""
    kinds, run = [CreditEvent.KIND], recall.run_id
    injected = [ranked["item"] for ranked in recall.data["injected"]]
    if not injected:
        return []
    named = [
        credit
        for credit in reader.events(items=injected, agent=recall.agent_id, kinds=kinds)
        if recall.id in credit.data.get("recalls", ())
    ]
    by_run = reader.events(agent=recall.agent_id, run=run, kinds=kinds) if run else []
    return [*by_run, *(credit for credit in named if credit.run_id != run)]


def find_recall(
    actor: Actor, reader: Reader, recall_id: str, sender: str | None, *, reads_all: bool
) -> JournalEvent:
    """Return the recall of an id, or of an id's end, that an agent may read.

    Raises:
        NotFound: there is none, or more than one.
    """
    agent, project = actor.agent, actor.store.project
    if MIN_ID_END <= len(recall_id) < ID_LENGTH:
        matches = reader.recalls_ending(recall_id.upper())
    else:
        event = reader.event(recall_id)
        matches = [event] if event is not None and event.kind == "recall" else []
    if not actor.everybody:
        # What the person at the machine saw is for no agent, whatever that one may read.
        matches = [event for event in matches if not RecallEvent.of(event).everybody]
    if not reads_all:
        # Whether another agent has such a recall is not for this one to know.
        matches = [event for event in matches if event.agent_id == agent]
    if sender is not None:
        matches = [e for e in matches if (RecallEvent.of(e).sender or "") == sender]
    if len(matches) != 1:
        count = "more than one recall" if matches else "no recall"
        raise NotFound(
            f"the journal of {project!r} has {count} {recall_id!r} of {agent}; "
            "`memtier log` shows the ids"
        )
    return matches[0]
