"""Read the times that a query or a person names as spans, and score moments by them.  Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Literal

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.formats import from_iso
from memtier_plugin.text.dates.mentions import DateMention, Period, find_range
from memtier_plugin.text.dates.reading import Dated, read_dates, resolve
from memtier_plugin.text.dates.relative import season_words

# -- Find the spans of time that a query names, and score moments against them.  Pure

_READ: Final = 1_000  # characters of a long query that are read at either end
_REACH: Final = 16  # characters before a date in which a word that opens its span stands
_THE: Final = r"(?: (?:the|dem|zum|el|le|la))?\s*(?:l['’])?\Z"
_SINCE: Final = regex.compile(
    rf"(?i)(?:\b(?:since|after|seit|nach|desde|después de|depuis|après)|自从?){_THE}"
)
_BEFORE: Final = regex.compile(rf"(?i)\b(?:before|until|till|vor|bis|antes de|hasta|avant){_THE}")
_SINCE_AFTER: Final = regex.compile(r"(?:以来|之后|以后|起)")
_BEFORE_AFTER: Final = regex.compile(r"(?:之前|以前)")
_LAG_DAYS: Final = 7.0  # an event is recounted after it happened, ever less
_LEAD_DAYS: Final = 2.0  # and announced ahead of it, but less
_TICK: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time that a query names, both ends included.

    Attributes:
        words: those of the query that name it.
        open: whether it is not over by then.
    """

    start: datetime
    end: datetime
    words: str = ""
    open: bool = False

    @property
    def may_recur(self) -> bool:
        """Whether it may be meant of each year: "in winter"."""
        return self.words.casefold() in season_words()

    def nearness(self, moment: datetime) -> float:
        """Return 1 inside the span, falling off exponentially outside of it."""
        if moment < self.start:
            return math.exp(-(self.start - moment).total_seconds() / 86_400 / _LEAD_DAYS)
        if moment > self.end:
            return math.exp(-(moment - self.end).total_seconds() / 86_400 / _LAG_DAYS)
        return 1.0


def find_time_spans(query: str, now: datetime) -> tuple[TimeSpan, ...]:
    """Return the spans of time that a query names, as a person who asks at ``now`` means them.

    People ask a memory about the past: a weekday is the last one, and what is to come is no span.
    """
    if len(query) > 2 * _READ:
        query = f"{query[:_READ]}\n{query[-_READ:]}"
    return tuple(_spans(query, now))


def best_nearness(spans: Sequence[TimeSpan], moment: datetime) -> float:
    """Return how near a moment is to the nearest of the spans; 0 without any."""
    return max((span.nearness(moment) for span in spans), default=0.0)


def _spans(query: str, now: datetime) -> Iterator[TimeSpan]:
    today = now.date()
    dates = read_dates(query, today, lambda mention: "past", asked=True)

    def days(mention: DateMention) -> Period | None:
        return resolve(mention, today, "past")

    span = find_range(query, [dated.mention for dated in dates], days)
    if span:
        yield _span(span.first, span.last, query[span.start : span.end])
    for dated in dates:
        mention = dated.mention
        if span and span.start <= mention.start < span.end:
            continue
        start, opens = _opened(query, mention)
        for first, last in _periods(dated, today):
            days_meant = _span(first, last, query[start : mention.end])
            if opens == "before":
                days_meant = replace(days_meant, start=_EPOCH, end=days_meant.start)
            elif opens == "since":
                days_meant = replace(days_meant, end=max(now, days_meant.end))
            yield replace(days_meant, open=days_meant.end > now)


def _periods(dated: Dated, today: date) -> list[Period]:
    """Return the periods that a date may mean: of "last Friday" this week's and the one before."""
    periods = [dated.period] if dated.period else []
    if dated.mention.weekday is not None and dated.period in dated.mention.readings:
        periods += [r for r in dated.mention.readings if r[1] < min(today, periods[0][0])]
    stated = dated.mention.year is not None
    return [period for period in periods if stated or period[0] <= today]


def _opened(query: str, mention: DateMention) -> tuple[int, Literal["since", "before", ""]]:
    """Return where a date begins with the word that opens its span, and what that word says."""
    reach = max(0, mention.start - _REACH)
    before = query[reach : mention.start]
    if match := _SINCE.search(before):
        return reach + match.start(), "since"
    if match := _BEFORE.search(before):
        return reach + match.start(), "before"
    if _SINCE_AFTER.match(query, mention.end):
        return mention.start, "since"
    return mention.start, "before" if _BEFORE_AFTER.match(query, mention.end) else ""


def _span(first: date, last: date, words: str = "") -> TimeSpan:
    midnight = time(tzinfo=UTC)
    end = datetime.combine(last, midnight) + timedelta(days=1) - _TICK
    return TimeSpan(datetime.combine(first, midnight), end, words)


# -- Read a time that a person typed: 2026-03-14T09:00, 2d, yesterday, last Friday

TIME_FORMS: Final = (
    "a time like 2026-03-14 or 2026-03-14T09:00 (UTC), as long ago as 30m, 3h, 2d or 1w, "
    'or words like yesterday or "last Friday"'
)
_AGO: Final = re.compile(r"(\d+)\s*(m|min|h|d|w)", re.IGNORECASE)
_UNITS: Final = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_EARLIEST: Final = datetime(1971, 1, 1, tzinfo=UTC)  # "before 2020" has no beginning


def read_typed_time(text: str, now: datetime) -> datetime:
    """Return the moment that a text names; of a day, or longer, its beginning.

    Raises:
        ValueError: it names none; the message says what does.
    """
    text = text.strip()
    try:
        if ago := _AGO.fullmatch(text):
            return now - timedelta(**{_UNITS[ago[2].lower()]: int(ago[1])})
    except OverflowError:
        raise ValueError(f"{text!r} is longer ago than there are years") from None
    try:
        return from_iso(text)
    except ValueError:
        for span in find_time_spans(text, now):
            if span.words.strip().casefold() == text.casefold() and span.start > _EARLIEST:
                return span.start
        raise ValueError(f"{text!r} is not {TIME_FORMS}") from None
