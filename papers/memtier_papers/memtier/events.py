"""Journal events of withheld lines, of the rewards of runs, and of the resulting bounds."""

from __future__ import annotations

from typing import Self

from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.records import EventPayload, EventRecord, StateEvent


class Withholding(EventRecord, frozen=True, kw_only=True):
    """The lottery of a recall, which withholds one of its lines with probability ``p``.

    ``item`` is the withheld line, None if none was; ``exempt`` are injected items that took no
    part.
    """

    p: float
    item: str | None = None
    exempt: tuple[str, ...] | None = None

    @classmethod
    def of(cls, recall: RecallEvent) -> Self | None:
        """Return the lottery of a recall, if there was one."""
        return None if recall.withheld is None else cls.from_json(recall.withheld)


class OutcomeEvent(EventPayload, frozen=True, kw_only=True, tag="outcome"):
    """A run ended with a reward, shared among its recalls; a later ``attempt`` counts."""

    attempt: int
    reward: float
    confidence: float | None = None  # set where the tools' results judged it
    recalls: tuple[str, ...] = ()


class UpliftEvent(StateEvent, frozen=True, kw_only=True, tag="uplift"):
    """The weight of an item is bounded by its measured uplift from now on.

    An interval (``low``, ``high``) that includes zero sets no bound and withdraws an earlier one.
    """

    mean: float = 0.0
    low: float = 0.0
    high: float = 0.0
    shown: int = 0
    withheld: int = 0

    @property
    def weight_bounds(self) -> tuple[float, float]:
        """The 95 % bounds: a lower one for a line that helps, an upper one for a harmful line."""
        return self.low, self.high
