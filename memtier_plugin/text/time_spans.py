"""When a query asks about: the spans of time it names, against what was said when.  Pure.

English only, like the month names in the index; a query without a word of time costs one regular
expression and loads nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import regex

_MONTH: Final = {
    "january": 1, "february": 2, "march": 3, "april": 4, "may": 5, "june": 6, "july": 7,
    "august": 8, "september": 9, "october": 10, "november": 11, "december": 12,
}  # fmt: skip
_ANY_MONTH: Final = rf"(?:{'|'.join(_MONTH)})"
# "may" and "march" are months only where a preposition or a number says so.
_SAFE_MONTH: Final = rf"(?:{'|'.join(m for m in _MONTH if m not in ('may', 'march'))})"
_YEAR: Final = r"(?:19|20)\d\d"
_CUE: Final = regex.compile(
    rf"""(?ix)\b(?:{_SAFE_MONTH}|(?:in|on|of|since|until|before|after|during|early|late|mid|by|from|
    \d{{1,2}}(?:st|nd|rd|th)?)\s+(?:may|march)|(?:may|march)\s+\d{{1,4}}|{_YEAR}|yesterday|today|
    tonight|(?:last|this|past|previous)\s+\w+|\w+\s+(?:days?|weeks?|months?|years?)\s+
    (?:ago|before|after|earlier|later)|\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}})\b"""
)
_DAY_THEN_MONTH: Final = regex.compile(r"\d{1,2}(?:st|nd|rd|th)?\s+(?:of\s+)?$")
_WHOLE_MONTH: Final = regex.compile(
    rf"(?i)\b({_ANY_MONTH})(?:,?\s+(?:of\s+)?({_YEAR}))?\b(?!\s*\d)"
)
_WHOLE_YEAR: Final = regex.compile(
    rf"(?i)\b(?:in|during|of|since|before|after|until|for)\s+({_YEAR})\b(?![-/.]\d)"
)
_OF: Final = regex.compile(rf"(?i)(\d(?:st|nd|rd|th)?) of ({_ANY_MONTH})")  # not understood there
_RECENT: Final = regex.compile(
    r"(?i)\b(?:last|past|previous)\s+(\d+|few|couple of|two|three|four|five|six)\s+"
    r"(day|week|month|year)s\b"
)
_COUNT: Final = {"few": 3, "couple of": 2, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_DAYS: Final = {"day": 1, "week": 7, "month": 30, "year": 365}
_UNIT: Final = regex.compile(r"(?i)\b(day|week|month|year)s?\b")
_OPENING: Final = regex.compile(r"(?i)^\s*(before|until|after|since)\s+")
_OPEN: Final = regex.compile(r"(?i)\b(before|until|after|since)\s+$")
_TO: Final = regex.compile(r"(?i)^\s*(?:and|to|until|through|till|-|\u2013)\s*$")
_LAG: Final = 7.0  # days after which half of what is told of an event has been told, about
_LEAD: Final = 2.0  # days ahead: plans are told of before, but less


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time that a query names, both ends included."""

    start: datetime
    end: datetime

    def nearness(self, moment: datetime) -> float:
        """Return 1 inside the span, falling off outside: events are told of soon after them."""
        if moment < self.start:
            return math.exp(-(self.start - moment).total_seconds() / 86_400 / _LEAD)
        if moment > self.end:
            return math.exp(-(moment - self.end).total_seconds() / 86_400 / _LAG)
        return 1.0


def find_time_spans(query: str, now: datetime) -> tuple[TimeSpan, ...]:
    """Return the spans of time that a query names, as somebody asking at ``now`` means them."""
    if not _CUE.search(query):
        return ()
    whole = [*_whole(query, now)]
    taken = [range(begin, end) for begin, end, _ in whole]
    phrases = [
        (begin, end, span)
        for begin, end, span in _phrases(query, now)
        if not any(begin < one.stop and one.start < end for one in taken)
    ]
    return tuple(_joined(query, sorted([*whole, *phrases], key=lambda item: item[0]), now))


def best_nearness(asked: Sequence[TimeSpan], moment: datetime) -> float:
    """Return how well a moment fits the best of the spans asked about."""
    return max((span.nearness(moment) for span in asked), default=0.0)


def _whole(query: str, now: datetime) -> Iterator[tuple[int, int, TimeSpan]]:
    """Yield (begin, end, span) for whole months and years, and for "the last three weeks"."""
    for match in _RECENT.finditer(query):
        number, unit = match.group(1).lower(), match.group(2).lower()
        days = (int(number) if number.isdigit() else _COUNT[number]) * _DAYS[unit]
        yield *match.span(), TimeSpan(now - timedelta(days=min(days, 36_500)), now)
    for match in _WHOLE_MONTH.finditer(query):
        before = query[: match.start()]
        if _DAY_THEN_MONTH.search(before) or not _CUE.search(before[-8:] + match.group()):
            continue
        month = _MONTH[match.group(1).lower()]
        year = int(match.group(2) or now.year - (month > now.month))
        yield *match.span(), _month(year, month)
    for match in _WHOLE_YEAR.finditer(query):
        year = int(match.group(1))
        yield *match.span(1), TimeSpan(_day(year), _day(year + 1) - _MOMENT)


def _phrases(query: str, now: datetime) -> Iterator[tuple[int, int, TimeSpan]]:
    """Yield (begin, end, span) for days and for what is said relative to now."""
    import parsedatetime  # only for a query that has a word of time

    local = now.astimezone(UTC).replace(tzinfo=None)
    plain = _OF.sub(lambda match: match.group(1) + " " * 4 + match.group(2), query)
    calendar = parsedatetime.Calendar(version=parsedatetime.VERSION_CONTEXT_STYLE)
    for moment, context, begin, end, text in calendar.nlp(plain, sourceTime=local) or ():
        if not context.hasDate or not _CUE.search(query[max(0, begin - 8) : end]):
            continue  # a bare time of the day, or a number that is no date
        if opening := _OPENING.match(text):
            begin += opening.end()
        day = moment.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=UTC)
        if day > now and not regex.search(_YEAR, text) and (day.month, day.day) != (2, 29):
            day = day.replace(year=day.year - 1)  # people ask a memory about the past
        unit = _UNIT.search(text)
        dated = regex.search(r"\d", text) and regex.search(rf"(?i){_ANY_MONTH}|[-/.]", text)
        yield begin, end, _around(day, unit.group(1).lower() if unit and not dated else "day")


def _joined(
    query: str, found: Sequence[tuple[int, int, TimeSpan]], now: datetime
) -> Iterator[TimeSpan]:
    """Yield the spans, "between A and B" made one, "before" and "since" made open."""
    place = 0
    while place < len(found):
        begin, end, span = found[place]
        if place + 1 < len(found) and _TO.match(query[end : found[place + 1][0]]):
            place += 1
            span = TimeSpan(span.start, max(span.end, found[place][2].end))
        elif opened := _OPEN.search(query[:begin]):
            earlier = opened.group(1).lower() in ("before", "until")
            span = (
                TimeSpan(_day(1970), span.start)
                if earlier
                else TimeSpan(span.start, max(now, span.end))
            )
        yield span
        place += 1


def _around(day: datetime, unit: str) -> TimeSpan:
    if unit == "week":
        start = day - timedelta(days=day.weekday())
        return TimeSpan(start, start + timedelta(days=7) - _MOMENT)
    if unit == "month":
        return _month(day.year, day.month)
    if unit == "year":
        return TimeSpan(_day(day.year), _day(day.year + 1) - _MOMENT)
    return TimeSpan(day, day + timedelta(days=1) - _MOMENT)


def _month(year: int, month: int) -> TimeSpan:
    after = _day(year + month // 12, month % 12 + 1)
    return TimeSpan(_day(year, month), after - _MOMENT)


def _day(year: int, month: int = 1, day: int = 1) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


_MOMENT: Final = timedelta(microseconds=1)
