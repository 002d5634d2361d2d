"""Break a hit's score down by signal, as `explain` reports it.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from memtier_plugin.core.events import CreditEvent, RecallEvent
from memtier_plugin.core.recall_lines import PACKED_FIELDS, STEPS, is_packed
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.core.results import Hit
from memtier_plugin.core.times import to_iso
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader

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
    data = {**recall.data, **RecallEvent.of(recall).in_full()}
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
    """Return the line that ranks lowest, and by which signals it was ahead of a hit."""
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
