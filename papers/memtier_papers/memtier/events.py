"""The journal's lines of what was withheld, and of the bounds that follow from it."""

from __future__ import annotations

from typing import Self

from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.records import EventRecord, StateEvent


class Withholding(EventRecord, frozen=True, kw_only=True):
    """The lottery of a recall: each of its lines might have been withheld with probability ``p``.

    ``item`` is the line that was, None where none was; ``exempt`` are injected items that took no
    part in it.
    """

    p: float
    item: str | None = None
    exempt: tuple[str, ...] | None = None

    @classmethod
    def of(cls, recall: RecallEvent) -> Self | None:
        """Return the lottery of a recall, if there was one."""
        return None if recall.withheld is None else cls.from_json(recall.withheld)


class UpliftEvent(StateEvent, frozen=True, kw_only=True, tag="uplift"):
    """The weight of an item is bounded by its measured uplift from now on.

    Not by an interval (``low``, ``high``) that includes zero, which takes back an earlier bound.
    """

    mean: float = 0.0
    low: float = 0.0
    high: float = 0.0
    shown: int = 0
    withheld: int = 0

    @property
    def weight_bounds(self) -> tuple[float, float]:
        """The uplift, by 95 %: a line that helps weighs it at least, one that harms at most."""
        return self.low, self.high
