"""Add signals up by weight, and break a hit's score down by them, as `explain` does.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core.event_lines import PACKED_FIELDS, STEPS, is_packed
from memtier_plugin.core.events import CreditEvent, RecallEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.core.results import Hit
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader

# -- Ranking of `recall_first`: signals on one scale, added up by weight.  Pure
#
# Raw BM25 dominates every bounded signal (MemTier, section 3.2, "BM25 signal").  Here each signal
# lies in [0, 1] before it is weighted: lexical scores are divided by the query's best, the others
# are bounded by nature.  A signal with the same value for every candidate (a speaker who said it
# all) adds the same to each, so it cannot change the order.  The weighted sum, decay, cognitive
# weight and tier follow MemTier, section 3.2, eq. 2 and 3.

TIER_FACTOR: Final = {"episodic": 1.0, "semantic": 1.2, "procedural": 1.4}  # MemTier, 3.2
DAY_SECONDS: Final = 86_400.0
# Of the best lexical score; below it a timeline is not about what is asked.
MIN_TIMELINE_SHARE: Final = 0.5
# At most, of a summary of another time than the one asked about.
OUTSIDE_SPAN_WEIGHT: Final = 0.25


class Ranked(Struct, frozen=True):
    """A ranked candidate: its index in the pool, its score and its signals."""

    index: int
    score: float
    signals: Mapping[str, float]


def scale_by_max(values: Sequence[float]) -> list[float]:
    """Divide by the largest, so that the best candidate of this query has 1."""
    top = max(values, default=0.0)
    if top <= 0:
        return [0.0] * len(values)
    return [value / top if value > 0 else 0.0 for value in values]


def add_scaled(rows: Iterable[int], *scores: Mapping[int, float]) -> dict[int, float]:
    """Return the sum of several scores of these rows, each scaled so that its best row has 1.

    Args:
        scores: by row; of others than these rows too, the best row may be one of them.
    """
    total = dict.fromkeys(rows, 0.0)
    for by_row in scores:
        top = max(by_row.values(), default=0.0)
        if top > 0:
            for row in total.keys() & by_row.keys():
                total[row] += max(0.0, by_row[row]) / top
    return total


def decay(age_days: float, rate: float, *, bypass: bool = False) -> float:
    """Return the decay of an age (MemTier, section 3.2, eq. 3); the future counts as now.

    Args:
        bypass: a strong match does not decay.
    """
    return 1.0 if bypass else math.exp(-rate * max(0.0, age_days))


def tier_signal(tier: str, confidence: float) -> float:
    """Return the bonus of a tier in [0, 1] (MemTier, section 3.2), scaled by a fact's confidence.

    A fact that a rule found earns less of it than one that somebody stated to be remembered.
    """
    return (TIER_FACTOR[tier] - 1) / 0.4 * max(0.0, min(1.0, 2 * confidence - 1))


def weight_signal(weight: float) -> float:
    """Map a cognitive weight from [-1, 1] to [0, 1] (MemTier, section 3.2)."""
    return (weight + 1) / 2


def overview_signal(
    kinds: Sequence[str],
    times: Sequence[float],
    observed: Sequence[float],
    words: Sequence[float],
) -> list[float]:
    """Return how well each candidate is the summary, or the timeline, that a query asks for.

    Any summary of the time asked about will do, and where no time is named the newest; a timeline
    must be about what is asked.

    Args:
        kinds: what each candidate is: "summary", "timeline", "profile" (of somebody who is asked
            about) or none of them.
        times: how near each is to the time that the query names; empty when it names none.
        observed: when each was said.
        words: the lexical score of each.
    """
    top = max(words, default=0.0)
    shares = [score / top if score > MIN_TIMELINE_SHARE * top else 0.0 for score in words]
    recency = [time if time == 1.0 else OUTSIDE_SPAN_WEIGHT * time for time in times]
    if not times:
        newest = {at for at, kind in zip(observed, kinds, strict=True) if kind == "summary"}
        ranks = {at: rank for rank, at in enumerate(sorted(newest, reverse=True))}
        recency = [1.0 / (1.0 + ranks[at] / 4) if at in ranks else 0.0 for at in observed]
    return [
        {"summary": near, "timeline": share, "profile": 1.0}.get(kind, 0.0)
        for kind, share, near in zip(kinds, shares, recency, strict=True)
    ]


def rank(
    ids: Sequence[str],
    signals: Mapping[str, Sequence[float]],
    weights: Mapping[str, float],
    limit: int | None = None,
) -> list[Ranked]:
    """Order candidates by the weighted sum of their signals (MemTier, section 3.2, eq. 2).

    Ties go by id.

    Args:
        ids: one a candidate.
        signals: for each name one value in [0, 1] a candidate.
        weights: for each name its weight; a name without one counts as 0.
        limit: how many are returned, the best; all when None.
    """
    counted = [
        [weight * value for value in values]
        for name, values in signals.items()
        if (weight := weights.get(name)) and any(values)
    ]
    # fsum, so that the order in which signals were collected cannot change the score.
    scores = [*map(math.fsum, zip(*counted, strict=True))] if counted else [0.0] * len(ids)
    # Only what scores as well as the last of them is sorted by id too.
    least = sorted(scores, reverse=True)[limit - 1] if limit and limit < len(ids) else -math.inf
    good = ((-score, ids[index], index) for index, score in enumerate(scores) if score >= least)
    values = [*zip(*signals.values(), strict=True)] if signals else [()] * len(ids)
    return [
        Ranked(index, -score, dict(zip(signals, values[index], strict=True)))
        for score, _, index in sorted(good)[:limit]
    ]


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
