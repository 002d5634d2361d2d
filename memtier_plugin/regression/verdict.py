"""Judge by a paired bootstrap over questions whether a change made answers worse.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from memtier_plugin.regression.intervals import paired_difference

FEWEST: Final = 3  # questions, below which chance decides


@dataclass(frozen=True, slots=True)
class Verdict:
    """How well the same questions are answered before and after a change.

    ``difference`` is after - before with the bounds of its 95 % interval.  The change is refused
    where even the upper bound is below -``tolerance``.
    """

    questions: int
    before: float
    after: float
    difference: float
    low: float
    high: float
    tolerance: float

    @property
    def refused(self) -> bool:
        """True where it got worse by more than is tolerated."""
        return self.enough and self.high < -self.tolerance

    @property
    def enough(self) -> bool:
        """True where there are questions enough to say anything."""
        return self.questions >= FEWEST

    def describe(self) -> str:
        """Return the verdict in words."""
        if not self.enough:
            return f"too few questions to tell: {self.questions} of at least {FEWEST}"
        if self.refused:
            return "worse"
        return "better" if self.low > 0 else "not worse"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        return {
            **{
                name: round(value, 4) if isinstance(value, float) else value
                for name, value in asdict(self).items()
            },
            "refused": self.refused,
            "verdict": self.describe(),
        }


def judge(before: Sequence[float], after: Sequence[float], tolerance: float) -> Verdict:
    """Compare how well each question is answered before and after a change.

    Raises:
        ValueError: the lengths differ.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} questions before, {len(after)} after")
    if not before:
        return Verdict(0, 0.0, 0.0, 0.0, 0.0, 0.0, tolerance)
    difference = paired_difference(after, before)
    return Verdict(
        len(before),
        sum(before) / len(before),
        sum(after) / len(after),
        difference.mean,
        difference.low,
        difference.high,
        tolerance,
    )
