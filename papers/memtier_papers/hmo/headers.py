"""The priority of stored entries at a time, and its components as shown by `explain`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from memtier_papers.hmo import formula
from memtier_papers.hmo.tables import PriorityReader, ScoredEntry
from memtier_plugin.core.formats import from_iso

_DAY: Final = timedelta(days=1)
_SAID: Final = (
    "{tier}: priority {priority:.3f} "
    "(importance {importance}, alignment {alignment:.2f}, {uses} uses)"
)


def priority_of(entry: ScoredEntry, now: datetime, share: float) -> float:
    """Return the priority of an entry at a time (HMO, eq. 5).

    Args:
        share: the weight of the importance; the rest is the alignment's.
    """
    observed = datetime.fromtimestamp(0, UTC) + timedelta(seconds=entry.observed)
    last = from_iso(entry.used) if entry.used else observed
    base = formula.base_priority(entry.importance, entry.alignment, alpha=share, beta=1 - share)
    return formula.priority(base, entry.uses, (now - last) / _DAY)


def describe_priorities(
    reader: PriorityReader,
    ids: Collection[str],
    agent: str,
    sender: str,
    now: datetime,
    share: float,
) -> dict[str, dict[str, Any]]:
    """Return the priority and its components of the rated entries, by id.

    Only the agent's own entries of one sender are read, whatever the ids.
    """
    described: dict[str, dict[str, Any]] = {}
    for entry in reader.scored(ids, agent, sender) if ids else ():
        parts: dict[str, Any] = {
            "importance": entry.importance,
            "alignment": entry.alignment,
            "uses": entry.uses,
            "used": entry.used,
            "tier": formula.TIER_NAMES[entry.tier],
            "priority": round(priority_of(entry, now, share), 4),
        }
        described[entry.id] = {**parts, "said": _SAID.format(**parts)}
    return described
