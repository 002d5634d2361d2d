"""A recall as its line in the journal: what was asked, how it was answered, and by what.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from memtier_plugin.core.records import JournalEvent
from memtier_plugin.core.results import Hit, Recall

NEAR_MISSES: Final = 8


def recall_event(
    recall: Recall, *, agent: str, run_id: str | None, at: datetime, asked: Mapping[str, Any]
) -> JournalEvent:
    """Return the event of a recall.

    Args:
        at: when it was made.
        asked: the query as it may be kept, for what and under which settings.
    """
    shown = {hit.id for hit in recall.injected}
    near = [hit for hit in recall.hits if hit.id not in shown][:NEAR_MISSES]
    return JournalEvent(
        id=recall.id,
        timestamp=at,
        kind="recall",
        agent_id=agent,
        run_id=run_id,
        data={
            **asked,
            "depth": recall.depth,
            **({"route": recall.route.to_json()} if recall.route else {}),
            "steps": [step.to_json() for step in recall.steps],
            "label": recall.label,
            "ms": round(recall.ms, 3),
            "postings": recall.postings,
            "vectors": recall.vectors,
            "tokens": recall.tokens,
            "injected": [_journalled(hit, recall.hits) for hit in recall.injected],
            "near_misses": [_journalled(hit, recall.hits) for hit in near],
        },
    )


def recall_label(why: Sequence[str], hits: Sequence[Hit], vectors: int) -> str:
    """Return how a recall was made, in a word, or why it is less than it should be."""
    if why:
        return f"degraded: {', '.join(dict.fromkeys(why))}"
    if not hits:
        return "empty"
    return "hybrid" if vectors else "lexical"


def _journalled(hit: Hit, hits: Sequence[Hit]) -> dict[str, Any]:
    return {
        "item": hit.id,
        "rank": next(place for place, other in enumerate(hits, 1) if other.id == hit.id),
        "tier": hit.tier,
        "score": round(hit.score, 9),
        "weight": hit.weight,
        "signals": {name: round(value, 6) for name, value in hit.signals.items()},
        **({"note": hit.note} if hit.note else {}),
    }
