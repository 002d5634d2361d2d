"""A date that a text mentions, and whether one mention supports another.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from memtier_plugin.text.dates.periods import Period, period_of

_NEAR: Final = 150  # days; a date without a year is taken for one at most this far away


@dataclass(frozen=True, slots=True)
class DateMention:
    """A date or a longer period that a text names, from ``start`` to ``end`` in it.

    Attributes:
        year: None where the text names none.
        span: the period of a relative date ("last week"); None where it can be read in two ways.
        approximate_day: set where only a day nearby is known ("two weeks ago"): the middle of
            the period.
        weekday: its number, where the day is named by it.
        readings: the periods it may mean where there are several, the nearest first, or the last
            one and the next.
    """

    start: int
    end: int
    year: int | None = None
    month: int | None = None
    day: int | None = None
    span: Period | None = field(default=None, kw_only=True)
    approximate_day: date | None = field(default=None, kw_only=True)
    weekday: int | None = field(default=None, kw_only=True)
    readings: tuple[Period, ...] = field(default=(), kw_only=True)

    @property
    def period(self) -> Period | None:
        """The first and the last day; None where the year is open or there is no such day."""
        if self.span or self.year is None:
            return self.span
        unit = "day" if self.day else "month" if self.month else "year"
        try:
            first = date(self.year, self.month or 1, self.day or 1)
        except ValueError:
            return None
        return period_of(unit, first)


def without_overlaps(text: str, mentions: Iterable[DateMention]) -> list[DateMention]:
    """Return the mentions in the order of the text, without those that overlap an earlier one."""
    taken = bytearray(len(text))
    chosen: list[DateMention] = []
    for mention in mentions:
        if not any(taken[mention.start : mention.end]):
            taken[mention.start : mention.end] = b"\1" * (mention.end - mention.start)
            chosen.append(mention)
    return sorted(chosen, key=lambda mention: mention.start)


def is_date_supported(claimed: DateMention, source: DateMention, said_on: date) -> bool:
    """Check whether a claimed date is the source's, or a longer period around it.

    A date without a year is taken for the nearest to the day of the utterance.
    """
    if claimed.year is None:
        if source.period and source.year is None and claimed.month:  # relative
            first, last = source.period
            return first.month == last.month == claimed.month and (
                claimed.day is None or (first == last and first.day == claimed.day)
            )
        return (claimed.month, claimed.day or source.day) == (source.month, source.day)
    ours = claimed.period
    theirs = source.period or nearest_period(source, said_on)
    if ours is None or theirs is None:
        return False
    approximate = (source.approximate_day, source.approximate_day)
    return (ours[0] <= theirs[0] and theirs[1] <= ours[1]) or ours == approximate


def nearest_period(mention: DateMention, said_on: date) -> Period | None:
    """Return the days of a date without a year, in the year that brings it nearest."""
    if mention.month is None:
        return None
    periods = [
        period
        for year in (said_on.year - 1, said_on.year, said_on.year + 1)
        if (period := DateMention(0, 0, year, mention.month, mention.day).period)
    ]
    best = min(periods, key=lambda period: abs((period[0] - said_on).days), default=None)
    return best if best and abs((best[0] - said_on).days) <= _NEAR else None
