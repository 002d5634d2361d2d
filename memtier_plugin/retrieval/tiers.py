"""Search cache, buffer and archive one after the other (HMO, sections 3.2 and 3.3).

Each tier is searched by similarity to the query alone, never by priority, and together with those
before it. The archive is everything, so that a search that reaches it is the flat one. Facts belong
to no tier and take part in each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal

from memtier_plugin.core.results import Evidence
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.priority.formula import BUFFER, CACHE, MAX_RECENT
from memtier_plugin.retrieval.evidence import QueryEvidence
from memtier_plugin.retrieval.floor import block_probability
from memtier_plugin.storage.readers import Reader

TierName = Literal["cache", "buffer", "archive"]
TIERS: Final[tuple[TierName, ...]] = ("cache", "buffer", "archive")
MIN_PROBABILITY: Final = 0.85  # of a block, by which a tier is enough
MIN_COVERAGE: Final = 0.5  # of a query's words, by rarity, in the best line


def tier_rows(
    reader: Reader, scopes: Sequence[int], settings: Settings
) -> Iterator[tuple[TierName, Collection[int] | None]]:
    """Yield each tier with the rows of it and those before it; None stands for all."""
    priorities = reader.priorities
    rows = {
        *priorities.recent_rows(scopes, settings.priority.sessions, MAX_RECENT),
        *priorities.tier_rows(scopes, CACHE),
    }
    yield "cache", frozenset(rows)
    rows.update(priorities.tier_rows(scopes, BUFFER))
    yield "buffer", frozenset(rows)
    yield "archive", None


def is_sufficient(query: QueryEvidence, evidence: Sequence[Evidence]) -> bool:
    """Tell by rules whether the best hits of a tier, best first, hold what a query needs.

    The best of them must have half of the query's words, and the block be likely to hold what is
    needed, by far more than the floor asks for: a tier is a part of the store, and what is missing
    from it is not seen.
    """
    if not evidence or evidence[0].coverage < MIN_COVERAGE:
        return False
    return block_probability(query, evidence) >= MIN_PROBABILITY
