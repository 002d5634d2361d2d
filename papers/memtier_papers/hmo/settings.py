"""The settings of HMO."""

from __future__ import annotations

from typing import Annotated, Literal

from memtier_plugin.core.settings.schema import Within
from memtier_plugin.core.structs import Record


class TieredSearch(Record, frozen=True, kw_only=True):
    """The values of `retrieval.search` besides MemTier's own."""

    search: Literal["flat", "tiers"] = "flat"


class Priority(Record, frozen=True, kw_only=True):
    """The rating of entries, and the sizes of the resulting tiers (HMO)."""

    enabled: bool = False
    model: str = "none"
    sessions: Annotated[int, Within(0, 100)] = 3
    cache: Annotated[int, Within(0, 1_000)] = 20
    buffer: Annotated[int, Within(0, 10_000)] = 200
    drift: Annotated[float, Within(0, 2)] = 0.15
    importance_share: Annotated[float, Within(0, 1)] = 0.5
