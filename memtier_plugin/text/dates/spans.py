"""Find the spans of time that a query names, and score moments against them.  Pure.

English only, like the month names in the index; a query without a word of time costs one regular
expression and loads no parser.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

import regex

from memtier_plugin.text.dates.periods import period_of
from memtier_plugin.text.lexicon import lexicon

_ENGLISH: Final = lexicon("english")
_MONTHS: Final = {name: number for number, name in enumerate(_ENGLISH.month_names, 1)}
_ANY_MONTH: Final = rf"(?:{'|'.join(_MONTHS)})"
# "may" and "march" are months only where a preposition or a number says so.
_UNSAFE_MONTH: Final = f"(?:{'|'.join(_ENGLISH.ambiguous_months & _MONTHS.keys())})"
_SAFE_MONTH: Final = f"(?:{'|'.join(_MONTHS.keys() - _ENGLISH.ambiguous_months)})"
_YEAR: Final = r"(?:19|20)\d\d"
_CUE: Final = regex.compile(
    rf"""(?ix)\b(?:{_SAFE_MONTH}|(?:in|on|of|since|until|before|after|during|early|late|mid|by|from|
    \d{{1,2}}(?:st|nd|rd|th)?)\s+{_UNSAFE_MONTH}|{_UNSAFE_MONTH}\s+\d{{1,4}}|{_YEAR}|yesterday|today|
    tonight|(?:last|this|past|previous)\s+\w+|\w+\s+(?:days?|weeks?|months?|years?)\s+
    (?:ago|before|after|earlier|later)|\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}})\b"""
)
_DAY_THEN_MONTH: Final = regex.compile(r"\d{1,2}(?:st|nd|rd|th)?\s+(?:of\s+)?$")
# Read here and not by parsedatetime, which counts the year from today after "before" or "after".
_MONTHS_SHORT: Final = {name[:3]: number for name, number in _MONTHS.items()} | _MONTHS
_NTH: Final = r"(\d{1,2})(?:st|nd|rd|th)?"
_MONTH_NAME: Final = rf"({'|'.join(sorted(_MONTHS_SHORT, key=len, reverse=True))})\.?"
_DAY_OF_MONTH: Final = regex.compile(
    rf"(?i)\b(?:{_MONTH_NAME}\s+{_NTH}\b|{_NTH}\s+(?:of\s+)?{_MONTH_NAME}(?!\w))(?:,?\s+({_YEAR})\b)?"
)
_WHOLE_MONTH: Final = regex.compile(
    rf"(?i)\b({_ANY_MONTH})(?:,?\s+(?:of\s+)?({_YEAR}))?\b(?!\s*\d)"
)
_WHOLE_YEAR: Final = regex.compile(
    rf"(?i)\b(?:in|during|of|since|before|after|until|for)\s+({_YEAR})\b(?![-/.]\d)"
)
_OF: Final = regex.compile(
    rf"(?i)(\d(?:st|nd|rd|th)?) of ({_ANY_MONTH})"
)  # unread by parsedatetime
_COUNTS: Final = {
    "few": 3,
    "couple of": 2,
    **{word: _ENGLISH.numbers[word] for word in _ENGLISH.number_words(2, 6)},
}
_RECENT: Final = regex.compile(
    rf"(?i)\b(?:last|past|previous)\s+(\d+|{'|'.join(_COUNTS)})\s+(day|week|month|year)s\b"
)
_OFFSET: Final = regex.compile(
    rf"(?i)\b(an?|one|the|\d{{1,3}}|{'|'.join(_COUNTS)})\s+(day|week|month|year)s?\s+(before|after)\s+$"
)
_PART: Final = 240  # characters that are read as one, with at least one cue
_MAX_PARTS: Final = 4
_DAYS: Final = {"day": 1, "week": 7, "month": 30, "year": 365}
_MAX_DAYS: Final = 36_500
_UNIT: Final = regex.compile(r"(?i)\b(day|week|month|year)s?\b")
_DATED: Final = regex.compile(rf"(?i)(?=.*\d)(?=.*(?:{_ANY_MONTH}|[-/.]))", regex.DOTALL)
_OPENING: Final = regex.compile(r"(?i)^\s*(before|until|after|since)\s+")
_OPEN: Final = regex.compile(r"(?i)\b(before|until|after|since)\s+$")
_TO: Final = regex.compile(r"(?i)^\s*(?:and|to|until|through|till|-|\u2013)\s*$")
_LAG_DAYS: Final = 7.0  # an event is recounted after it happened, ever less
_LEAD_DAYS: Final = 2.0  # and announced ahead of it, but less
_TICK: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time that a query names, both ends included."""

    start: datetime
    end: datetime

    def nearness(self, moment: datetime) -> float:
        """Return 1 inside the span, falling off exponentially outside of it."""
        if moment < self.start:
            return math.exp(-(self.start - moment).total_seconds() / 86_400 / _LEAD_DAYS)
        if moment > self.end:
            return math.exp(-(moment - self.end).total_seconds() / 86_400 / _LAG_DAYS)
        return 1.0


class _Match(NamedTuple):
    """A span with the part of the query that names it."""

    begin: int
    end: int
    span: TimeSpan


def find_time_spans(query: str, now: datetime) -> tuple[TimeSpan, ...]:
    """Return the spans of time that a query names, as a person who asks at ``now`` means them."""
    return tuple(span for part in _parts_with_cues(query) for span in _spans_of(part, now))


def _parts_with_cues(query: str) -> Iterator[str]:
    """Yield what is read of a query: all of a short one, else the text around its first cues.

    The parser's time grows with the square of the text, and its recursion with the text.
    """
    end = 0
    for _ in range(_MAX_PARTS):
        if not (cue := _CUE.search(query, end)):
            return
        begin = max(end, cue.start() - _PART // 2) if len(query) > _PART else 0
        end = begin + _PART
        yield query[begin:end]


def _spans_of(part: str, now: datetime) -> Iterator[TimeSpan]:
    periods = [*_periods(part, now)]
    dates = [
        date
        for date in _dates(part, now)
        if not any(date.begin < period.end and period.begin < date.end for period in periods)
    ]
    matches = sorted([*periods, *dates], key=lambda match: match.begin)
    return _joined(part, matches, now)


def best_nearness(spans: Sequence[TimeSpan], moment: datetime) -> float:
    """Return how near a moment is to the nearest of the spans; 0 without any."""
    return max((span.nearness(moment) for span in spans), default=0.0)


def _periods(query: str, now: datetime) -> Iterator[_Match]:
    """Yield days of months, whole months and years, and "the last three weeks"."""
    yield from _days_of_months(query, now.date())
    for match in _RECENT.finditer(query):
        number, unit = match.group(1).lower(), match.group(2).lower()
        days = (int(number) if number.isdigit() else _COUNTS[number]) * _DAYS[unit]
        start = now - timedelta(days=min(days, _MAX_DAYS))
        yield _Match(match.start(), match.end(), TimeSpan(start, now))
    for match in _WHOLE_MONTH.finditer(query):
        before = query[: match.start()]
        if _DAY_THEN_MONTH.search(before) or not _CUE.search(before[-8:] + match.group()):
            continue
        month = _MONTHS[match.group(1).lower()]
        year = int(match.group(2) or now.year - (month > now.month))
        yield _Match(match.start(), match.end(), _span("month", date(year, month, 1)))
    for match in _WHOLE_YEAR.finditer(query):
        yield _Match(match.start(1), match.end(1), _span("year", date(int(match.group(1)), 1, 1)))


def _days_of_months(query: str, today: date) -> Iterator[_Match]:
    """Yield "7 May 2023" and "May 7", and "two days before" it."""
    for match in _DAY_OF_MONTH.finditer(query):
        month, nth, other_nth, other_month, year = match.groups()
        number = _MONTHS_SHORT[(month or other_month).lower()]
        day = _day_of(number, int(nth or other_nth), int(year) if year else None, today)
        if day is None:
            continue
        begin, unit = match.start(), "day"
        if offset := _OFFSET.search(query[:begin]):
            begin, unit = offset.start(), offset.group(2).lower()
            count = offset.group(1).lower()
            days = _DAYS[unit] * (int(count) if count.isdigit() else _COUNTS.get(count, 1))
            day += timedelta(days=days if offset.group(3).lower() == "after" else -days)
        yield _Match(begin, match.end(), _span(unit, day))


def _day_of(month: int, number: int, year: int | None, today: date) -> date | None:
    """Return a day, without a year the last one; None where the calendar has no such day."""
    for each in range(today.year, today.year - 9, -1) if year is None else (year,):
        with suppress(ValueError):
            day = date(each, month, number)
            if year or day <= today:
                return day
    return None


def _dates(query: str, now: datetime) -> Iterator[_Match]:
    """Yield days, and times relative to now."""
    import parsedatetime  # only for a query that has a word of time

    local = now.astimezone(UTC).replace(tzinfo=None)
    plain = _OF.sub(lambda match: match.group(1) + " " * 4 + match.group(2), query)
    calendar = parsedatetime.Calendar(version=parsedatetime.VERSION_CONTEXT_STYLE)
    for moment, context, begin, end, text in calendar.nlp(plain, sourceTime=local) or ():
        if not context.hasDate or not _CUE.search(query[max(0, begin - 8) : end]):
            continue  # a bare time of the day, or a number that is no date
        opening = _OPENING.match(text)
        begin += opening.end() if opening else len(text) - len(text.lstrip())
        day = moment.date()
        if day > now.date() and not regex.search(_YEAR, text) and (day.month, day.day) != (2, 29):
            day = day.replace(year=day.year - 1)  # people ask a memory about the past
        unit = None if _DATED.search(text) else _UNIT.search(text)
        yield _Match(begin, end, _span(unit.group(1).lower() if unit else "day", day))


def _joined(query: str, matches: Sequence[_Match], now: datetime) -> Iterator[TimeSpan]:
    """Yield the spans, "between A and B" as one, "before" and "since" as open ones."""
    index = 0
    while index < len(matches):
        begin, end, span = matches[index]
        if index + 1 < len(matches) and _TO.match(query[end : matches[index + 1].begin]):
            index += 1
            span = TimeSpan(span.start, max(span.end, matches[index].span.end))
        elif opened := _OPEN.search(query[:begin]):
            earlier = opened.group(1).lower() in ("before", "until")
            span = (
                TimeSpan(_EPOCH, span.start)
                if earlier
                else TimeSpan(span.start, max(now, span.end))
            )
        yield span
        index += 1


def _span(unit: str, day: date) -> TimeSpan:
    """Return the day, week, month or year around a day."""
    first, last = period_of(unit, day)
    midnight = time(tzinfo=UTC)
    end = datetime.combine(last, midnight) + timedelta(days=1)
    return TimeSpan(datetime.combine(first, midnight), end - _TICK)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
