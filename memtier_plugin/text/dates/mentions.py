"""Mentions of dates in a text: single days, calendar periods, ranges.  Pure."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Final, NamedTuple

from memtier_plugin.core import lazy_regex as regex

# -- Calendar periods: the week, month, year or season of a day, and offsets from a day.  Pure

Period = tuple[date, date]  # first and last day


def period_of(unit: str, day: date) -> Period:
    """Return the day, week, month or year that contains a day."""
    if unit == "week":
        monday = day - timedelta(days=day.weekday())
        return monday, monday + timedelta(days=6)
    if unit == "month":
        return day.replace(day=1), day.replace(day=monthrange(day.year, day.month)[1])
    if unit == "year":
        return date(day.year, 1, 1), date(day.year, 12, 31)
    return day, day


def shift_day(day: date, unit: str, count: int) -> date:
    """Return the day ``count`` units away; for months and years, the first day of the month.

    Raises:
        OverflowError, ValueError: the calendar has no such day.
    """
    if unit in ("day", "week"):
        return day + timedelta(days=count * (7 if unit == "week" else 1))
    months = day.year * 12 + day.month - 1 + count * (12 if unit == "year" else 1)
    return date(months // 12, months % 12 + 1, 1)


def season_of(number: int, day: date, step: int) -> Period:
    """Return the spring (0) to winter (3) that began last (step 0), ended last (-1) or is next (1).

    Seasons are those of the northern hemisphere, in whole months.
    """
    month = 3 + 3 * number
    year = day.year + 1
    while True:
        try:
            first = date(year, month, 1)
            last = shift_day(first, "month", 3) - timedelta(days=1)
        except ValueError:  # uttered in the year 1 or 9999
            return day, day
        if (first <= day if step == 0 else last < day) and step <= 0:
            return first, last
        if step > 0 and date(year - 1, month, 1) <= day:
            return first, last
        year -= 1


# -- A date mentioned in a text, and whether one mention supports another.  Pure

_NEAR: Final = 150  # days; the furthest that a date without a year may be away


@dataclass(frozen=True, slots=True)
class DateMention:
    """A date or a longer period named in a text, from ``start`` to ``end``.

    Attributes:
        year: None if the text names none.
        span: the period of a relative date ("last week"); None if it is ambiguous.
        approximate_day: set if only a day nearby is known ("two weeks ago"): the middle of the
            period.
        weekday: its number, if the text names the day by its weekday.
        readings: the possible periods if ambiguous, the nearest first, or the last one and the
    next.
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
        """The first and the last day; None if the year is open or there is no such day."""
        if self.span or self.year is None:
            return self.span
        unit = "day" if self.day else "month" if self.month else "year"
        try:
            first = date(self.year, self.month or 1, self.day or 1)
        except ValueError:
            return None
        return period_of(unit, first)


def without_overlaps(text: str, mentions: Iterable[DateMention]) -> list[DateMention]:
    """Return the mentions in text order, without those that overlap an earlier one."""
    covered = bytearray(len(text))
    chosen: list[DateMention] = []
    for mention in mentions:
        if not any(covered[mention.start : mention.end]):
            covered[mention.start : mention.end] = b"\1" * (mention.end - mention.start)
            chosen.append(mention)
    return sorted(chosen, key=lambda mention: mention.start)


def is_date_supported(claimed: DateMention, source: DateMention, said_on: date) -> bool:
    """Return whether a claimed date is the source's, or a longer period around it.

    A date without a year is taken as the one nearest to the day of the utterance.
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


# -- The range of days between two dates of a statement.  Pure
#
# "From March to June 2025", "between 2009 and 2013", "vom 4. bis 9. Mai", "June 8-11, 2026": either
# date may omit the month or year that the other states.

_REACH: Final = 24  # characters before a date searched for the word that opens a range
_OPENS: Final = regex.compile(
    r"(?i)(?:(?<between>\bbetween|\bzwischen|\bentre)|\bfrom|\bvo[nm]|\bdel?|\bdesde|\bdu|[从自])"
    r"(?: the| dem| el| le)?\s*\Z"
)
_TO: Final = regex.compile(
    r"(?i)\s*(?:to|bis(?: zum)?|al?|hasta(?: el)?|au|à|through|thru|[-–]|[到至])(?: the)?\s*\Z"
)
_UNTIL: Final = regex.compile(r"(?i)\s*(?:until|till?|up to|jusqu['’](?:au|en|à))(?: the)?\s*\Z")
_AND: Final = regex.compile(r"(?i)\s*(?:and|und|y|et)\s*\Z")
_YEARS: Final = regex.compile(
    r"(?i)\b(?:from|between|von|zwischen|entre|desde|del?)\s+(?<a>(?:1[6-9]|20)\d\d)\s*"
    r"(?<to>to|until|till|through|and|bis|und|al?|y|et|à|hasta|[-–])\s*(?<b>(?:1[6-9]|20)\d\d)\b"
    r"(?![-/.:,]?\d)"
)
_DAY_BEFORE: Final = regex.compile(
    r"(?i)(?:\bfrom|\bbetween|\bvo[nm]|\bzwischen|\bdel?|\bdu|\bentre)\s+(?:the |dem |el |le )?"
    r"(?<d>\d{1,2})(?:st|nd|rd|th|er|\.)?\s*(?:to|until|through|and|bis|und|al?|y|et|au|[-–])"
    r"\s*(?:the |zum |el |le )?\Z"
)
_DAY_AFTER: Final = regex.compile(
    r"(?i)(?:st|nd|rd|th)?\s?(?:[-–]|to|through)\s?(?<d>\d{1,2})(?:st|nd|rd|th)?\b"
    r"(?:,? (?<y>(?:1[6-9]|20)\d\d)\b)?(?!\s*(?:[:%]|[ap]\.?m\b))"
)

Resolve = Callable[[DateMention], Period | None]


class DateRange(NamedTuple):
    """The first and the last day of a range, and its position in the text."""

    first: date
    last: date
    start: int
    end: int


def find_range(text: str, mentions: Sequence[DateMention], resolve: Resolve) -> DateRange | None:
    """Return the first range that a text names; None if there is none, or it is ambiguous.

    Args:
        mentions: the dates in the text, in order.
        resolve: returns the days of a date, even if its year is open.
    """
    for first, last, inclusive in _pairs(text, mentions):
        end = resolve(last)
        if end is None:
            continue
        begin = first.period or resolve(_dated_before(first, end[0]))
        if begin is not None and begin[0] <= end[0]:
            closing = end[1] if inclusive else end[0]
            return DateRange(begin[0], closing, first.start, last.end)
    return None


def _pairs(
    text: str, mentions: Sequence[DateMention]
) -> Iterator[tuple[DateMention, DateMention, bool]]:
    """Yield the two dates of each range, and whether the second is wholly part of the range."""
    for match in _YEARS.finditer(text):
        first = DateMention(match.start("a"), match.end("a"), int(match["a"]))
        last = DateMention(match.start("b"), match.end("b"), int(match["b"]))
        yield first, last, match["to"].casefold() not in ("until", "till")
    for number, mention in enumerate(mentions):
        before = text[max(0, mention.start - _REACH) : mention.start]
        if mention.day and mention.month:
            if opened := _DAY_BEFORE.search(before):
                yield replace(mention, day=int(opened["d"])), mention, True
            elif following := _DAY_AFTER.match(text, mention.end):
                year = int(following["y"]) if following["y"] else mention.year
                last = replace(mention, day=int(following["d"]), year=year, end=following.end())
                yield replace(mention, year=year), last, True
        opens = _OPENS.search(before)
        if opens is None or number + 1 == len(mentions):
            continue
        last = mentions[number + 1]
        between = text[mention.end : last.start]
        if opens["between"]:
            if _AND.fullmatch(between):
                yield mention, last, True
        elif _TO.fullmatch(between):
            yield mention, last, True
        elif _UNTIL.fullmatch(between):
            yield mention, last, False


def _dated_before(mention: DateMention, end: date) -> DateMention:
    """Return a date without a year in the latest year that puts it before the end of its range."""
    if mention.month is None:
        return mention
    later = (mention.month, mention.day or 1) > (end.month, end.day)
    return replace(mention, year=end.year - later)
