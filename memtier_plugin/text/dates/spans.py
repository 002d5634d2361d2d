"""Time spans: those that a question names, and those in which a statement holds.  Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Final, Literal, NamedTuple

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.formats import from_iso
from memtier_plugin.text.dates.mentions import DateMention, Period, find_range, period_of
from memtier_plugin.text.dates.reading import Dated, Tense, find_stated_dates, read_dates, resolve
from memtier_plugin.text.dates.relative import find_relative_dates, may_name_time, season_words
from memtier_plugin.text.lexicon import lexicon

# -- Find the time spans that a query names, and score times against them.  Pure

_READ: Final = 1_000  # characters of a long query that are read at each end
_REACH: Final = 16  # characters before a date searched for the word that opens its span
_THE: Final = r"(?: (?:the|dem|zum|el|le|la))?\s*(?:l['’])?\Z"
_SINCE: Final = regex.compile(
    rf"(?i)(?:\b(?:since|after|seit|nach|desde|después de|depuis|après)|自从?){_THE}"
)
_BEFORE: Final = regex.compile(rf"(?i)\b(?:before|until|till|vor|bis|antes de|hasta|avant){_THE}")
_SINCE_AFTER: Final = regex.compile(r"(?:以来|之后|以后|起)")
_BEFORE_AFTER: Final = regex.compile(r"(?:之前|以前)")
_LAG_DAYS: Final = 7.0  # decay of events recounted after they happened
_LEAD_DAYS: Final = 2.0  # decay of events announced beforehand, which is faster
_TICK: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time span that a query names, both ends included.

    Attributes:
        words: the query's words that name it.
        open: whether it has no end.
    """

    start: datetime
    end: datetime
    words: str = ""
    open: bool = False

    @property
    def may_recur(self) -> bool:
        """Whether it may recur each year: "in winter"."""
        return self.words.casefold() in season_words()

    def nearness(self, moment: datetime) -> float:
        """Return 1 inside the span, decaying exponentially outside."""
        if moment < self.start:
            return math.exp(-(self.start - moment).total_seconds() / 86_400 / _LEAD_DAYS)
        if moment > self.end:
            return math.exp(-(moment - self.end).total_seconds() / 86_400 / _LAG_DAYS)
        return 1.0


def find_time_spans(query: str, now: datetime) -> tuple[TimeSpan, ...]:
    """Return the time spans that a query asked at ``now`` names.

    People ask a memory about the past, so a weekday is the last one, and future times are ignored.
    """
    if len(query) > 2 * _READ:
        query = f"{query[:_READ]}\n{query[-_READ:]}"
    if not may_name_time(query):  # true of most queries
        return ()
    return tuple(_spans(query, now))


def best_nearness(spans: Sequence[TimeSpan], moment: datetime) -> float:
    """Return how near a time is to the nearest of the spans; 0 without any."""
    return max((span.nearness(moment) for span in spans), default=0.0)


def _spans(query: str, now: datetime) -> Iterator[TimeSpan]:
    today = now.date()
    dates = read_dates(query, today, lambda mention: "past", is_question=True)

    def days(mention: DateMention) -> Period | None:
        return resolve(mention, today, "past")

    span = find_range(query, [dated.mention for dated in dates], days)
    if span:
        yield _span(span.first, span.last, query[span.start : span.end])
    for dated in dates:
        mention = dated.mention
        if span and span.start <= mention.start < span.end:
            continue
        start, opens = _find_opening(query, mention)
        for first, last in _periods(dated, today):
            days_meant = _span(first, last, query[start : mention.end])
            if opens == "before":
                days_meant = replace(days_meant, start=_EPOCH, end=days_meant.start)
            elif opens == "since":
                days_meant = replace(days_meant, end=max(now, days_meant.end))
            yield replace(days_meant, open=days_meant.end > now)


def _periods(dated: Dated, today: date) -> list[Period]:
    """Return the possible periods of a date: for "last Friday", this week's and the previous."""
    periods = [dated.period] if dated.period else []
    if dated.mention.weekday is not None and dated.period in dated.mention.readings:
        periods += [r for r in dated.mention.readings if r[1] < min(today, periods[0][0])]
    stated = dated.mention.year is not None
    return [period for period in periods if stated or period[0] <= today]


def _find_opening(query: str, mention: DateMention) -> tuple[int, Literal["since", "before", ""]]:
    """Return the start of a date with the word that opens its span, and that word's meaning."""
    window_start = max(0, mention.start - _REACH)
    before = query[window_start : mention.start]
    if match := _SINCE.search(before):
        return window_start + match.start(), "since"
    if match := _BEFORE.search(before):
        return window_start + match.start(), "before"
    if _SINCE_AFTER.match(query, mention.end):
        return mention.start, "since"
    return mention.start, "before" if _BEFORE_AFTER.match(query, mention.end) else ""


def _span(first: date, last: date, words: str = "") -> TimeSpan:
    midnight = time(tzinfo=UTC)
    end = datetime.combine(last, midnight) + timedelta(days=1) - _TICK
    return TimeSpan(datetime.combine(first, midnight), end, words)


# -- Parse a time typed by a person: 2026-03-14T09:00, 2d, yesterday, last Friday

TIME_FORMS: Final = (
    "a time like 2026-03-14 or 2026-03-14T09:00 (UTC), as long ago as 30m, 3h, 2d or 1w, "
    'or words like yesterday or "last Friday"'
)
_AGO: Final = re.compile(r"(\d+)\s*(m|min|h|d|w)", re.IGNORECASE)
_UNITS: Final = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_EARLIEST: Final = datetime(1971, 1, 1, tzinfo=UTC)  # the start of "before 2020"


def read_typed_time(text: str, now: datetime) -> datetime:
    """Return the time that a text names; for a day or longer, its beginning.

    Raises:
        ValueError: the text names no time; the message lists the accepted forms.
    """
    text = text.strip()
    try:
        if ago := _AGO.fullmatch(text):
            return now - timedelta(**{_UNITS[ago[2].lower()]: int(ago[1])})
    except OverflowError:
        raise ValueError(f"{text!r} is before the year 1") from None
    try:
        return from_iso(text)
    except ValueError:
        for span in find_time_spans(text, now):
            if span.words.strip().casefold() == text.casefold() and span.start > _EARLIEST:
                return span.start
        raise ValueError(f"{text!r} is not {TIME_FORMS}") from None


# -- Find the period in which a statement holds.  Pure
#
# A statement holds from the day that its past tense or a word like "since" or "from" names, until
# the day after a word like "until"; a range ("from March to June") holds to its last day, and so
# does a state in a past period ("lived there in 2016").  For an event that ended on a past day,
# that day is known.  A plan holds from the time it is made.  "On Tuesday" is the last one in the
# past tense and the next one in the future; "every Tuesday" is no date.  (Event times: Mem-T, 3.1.)

_FRONT: Final = 6  # characters that may precede a date that opens a statement
_CUE_REACH: Final = 24  # characters before a date searched for its preposition
_MAX_CHARS: Final = 600  # characters of a statement that are read
_AFTER_BEGIN: Final = regex.compile(r"\s?(?:起|开始|以来|之后|以后|onwards?\b|on\b(?! )|an\b(?! ))")
_AFTER_END: Final = regex.compile(r"\s?(?:为止|止|之前|以前)")
_EVERY: Final = regex.compile(
    r"(?i)(?:\b(?:every|each|second|other|third|alternate|last|first|jeden|jede[rsm]?|zweiten|immer|"
    r"cada|los|las|le|les|chaque)|每个?)\s*\Z"
)
_SINCE_CUE: Final = regex.compile(
    r"(?i)(?:\b(?:since|seit|depuis|desde)(?: the| dem| der| el| le| la)?|自从|自)\s*\Z"
)
_AHEAD: Final = regex.compile(  # "moved to Friday" refers to the future
    r"(?i)(?:\b(?:to|for|by|auf|zum|für|al?|para|au|à|pour)(?: the| den| el| le| la)?|[到至])\s*\Z"
)
_TO: Final = regex.compile(
    r"(?i)\s*(?:to|bis|al?|au|–|-|until|till|through|到|至)(?: the| zum| el)?\s*\Z"
)
_LASTING: Final = regex.compile(  # states that end with the period that they name
    r"(?i)\b(?:lived|resided|stayed|worked|studied|served|taught|"
    r"(?<=(?:i|we|they|she|he) )used(?! to\b)|(?:was|were) (?:in|at|on|an?|"
    r"the|our|my))\b"
)
_PLURAL: Final = regex.compile(
    r"(?i)(?:every|each|jede\w*|cada|tod[oa]s l[oa]s|tou(?:s|tes) les|chaque)\b"
)


class Validity(NamedTuple):
    """The period in which a statement holds; an end that it does not state is None."""

    since: datetime | None = None
    until: datetime | None = None


def find_dates(text: str, said_on: datetime, language: str, tense: Tense | None) -> list[Dated]:
    """Return the dates of a statement, each with its days if they are certain."""
    text = text[:_MAX_CHARS]

    def tense_of(mention: DateMention) -> Tense | None:
        return _direction(text, mention, language, tense) or tense

    dates = read_dates(text, said_on.date(), tense_of)
    return [dated for dated in dates if not _recurs(text, dated.mention)]


def names_weekdays_only(text: str, said_on: datetime, language: str) -> bool:
    """Return whether all times in a text are bare weekdays, as in "never deploy on Friday"."""
    names = lexicon(language).weekday_forms
    dates = find_dates(text, said_on, language, None)
    mentioned = (text[dated.mention.start : dated.mention.end].casefold() for dated in dates)
    return all(mention.split()[-1] in names for mention in mentioned)


def find_validity(
    text: str, said_on: datetime, language: str, tense: Tense | None, verb: int = 0
) -> Validity:
    """Return the period in which a statement says that it holds.

    Args:
        tense: whether it is about the past or the future; None for neither.
        verb: the position of its verb; a date before it names a thing, not the event's time,
            unless it opens the statement.
    """
    dates = find_dates(text, said_on, language, tense)
    if window := _range(text, dates, said_on.date(), tense):
        return window
    validity, end = Validity(), 0
    for dated in dates:
        between, end = text[end : dated.mention.start], dated.mention.end
        if dated.period is None:
            continue
        first, last = dated.period
        first = dated.mention.approximate_day or first
        closes = validity.since and _TO.fullmatch(between)  # "from Friday to Sunday"
        match "until" if closes else _cue(text, dated.mention, language):
            case "until":
                validity = validity._replace(until=_moment(first))
            case "since":
                validity = validity._replace(since=_moment(first))
            case _ if _FRONT < dated.mention.start < verb:
                continue
            case _ if tense == "past" and first < said_on.date() and not validity.since:
                validity = validity._replace(since=_moment(first))
                if last < said_on.date() and language == "english" and _LASTING.search(text):
                    validity = validity._replace(until=_moment(last))
    if validity.since and validity.until and validity.until < validity.since:
        return Validity(validity.since)
    if validity.until and not validity.since and validity.until < said_on:
        return Validity(validity.until, validity.until)
    return validity


def _range(text: str, dates: Sequence[Dated], today: date, tense: Tense | None) -> Validity | None:
    """Return the period of the range in a statement; None if it has no range."""
    ahead: Tense = "past" if tense == "past" else "future"
    mentions = [dated.mention for dated in dates]
    days = find_range(text[:_MAX_CHARS], mentions, lambda mention: resolve(mention, today, ahead))
    return Validity(_moment(days.first), _moment(days.last)) if days else None


def _moment(day: date) -> datetime:
    return datetime.combine(day, time(tzinfo=UTC))


def _cue(text: str, mention: DateMention, language: str) -> Literal["since", "until", ""]:
    """Return the meaning of a date's preposition."""
    before, after = text[max(0, mention.start - _CUE_REACH) : mention.start].casefold(), mention.end
    first = regex.match(r"\w+", text[mention.start : mention.end].casefold())
    until, since = _prepositions(language)
    if _AFTER_END.match(text, after) and lexicon(language).unspaced:
        return "until"
    if _AFTER_BEGIN.match(text, after):
        return "since"
    if until.search(before):
        return "until"
    if since.search(before) or (first and first[0] in lexicon(language).valid_from_cues):
        return "since"
    return ""


def _direction(text: str, mention: DateMention, language: str, tense: Tense | None) -> Tense | None:
    """Return whether a date is past or future by its preposition: "since May" is the past one."""
    before = text[max(0, mention.start - _CUE_REACH) : mention.start]
    if _SINCE_CUE.search(before):
        return "past"
    if _AHEAD.search(before):
        return "future"
    cue = _cue(text, mention, language)
    if cue == "until" and tense == "past":
        return "past"
    return "future" if cue else None


@cache
def _prepositions(language: str) -> tuple[regex.Pattern[str], regex.Pattern[str]]:
    words = lexicon(language)
    bound = "" if words.unspaced else r"\b"
    article = r"\s*(?:the |le |la |l['’]|el |dem |den |der )?\s*"
    return (
        regex.compile(rf"{bound}(?:{_either(words.valid_to_cues)}){article}\Z"),
        regex.compile(rf"{bound}(?:{_either(words.valid_from_cues)}){article}\Z"),
    )


def _either(phrases: Iterable[str]) -> str:
    longest = sorted(phrases, key=len, reverse=True)
    return "|".join(map(regex.escape, longest)) or r"(?!)"


def _recurs(text: str, mention: DateMention) -> bool:
    """Return whether a weekday is meant in general: "every Friday", "the deploy day is Friday"."""
    if mention.weekday is None or mention.span is not None:
        return False
    before = text[max(0, mention.start - _CUE_REACH) : mention.start]
    return bool(_EVERY.search(before) or _PLURAL.search(before)) or bool(
        regex.search(r"(?i)\bday(?:s)? (?:is|are|was|will be)(?: now)? (?:a )?\Z", before)
    )


# -- Append the actual date to each relative time of a text.  Pure

_UNIT: Final = "day|week|month|year"
_SEASONS: Final = "spring|summer|fall|autumn|winter"
_YEAR: Final = re.compile(r"\b(?:19|20)\d\d\b")


def _names(phrases: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted((name for names in phrases for name in names.split()), key=len)[::-1])


_ENGLISH: Final = lexicon("english")
_WEEKDAY_NAMES: Final = _ENGLISH.weekday_names
MONTH: Final = rf"(?:{'|'.join(_names(_ENGLISH.months))})\b"
WEEKDAY: Final = rf"(?:{'|'.join(_names(_ENGLISH.weekdays))})\b"
ONE_TO_TEN: Final = "|".join(_ENGLISH.number_words(1, 10))
# Times relative to the day of the utterance; case is ignored.
RELATIVE: Final = (
    rf"\b(?:the day before yesterday|(?:not (?:so|too|that) )?long ago|a while (?:ago|back)|"
    rf"yesterday|today|tonight|tomorrow|last night|this (?:morning|afternoon|evening)|earlier "
    rf"(?:today|this (?:week|month|year))|(?:last|past|next|this(?: past| coming)?|the (?:past|"
    rf"coming|other|following)) (?:few |couple of )?(?:days?|nights?|weekends?|weeks?|months?|"
    rf"years?|{_SEASONS}|{WEEKDAY}|{MONTH})|(?:\d+|an?|{ONE_TO_TEN}|twenty|(?:a )?few|(?:a "
    rf")?couple(?: of)?|several|some) (?:{_UNIT})s? (?:ago|back\b|from now)|in (?:about |around "
    rf")?(?:\d+|an?|{'|'.join(_ENGLISH.number_words(1, 6))}|a few|a couple of) (?:hour|"
    rf"{_UNIT})s?\b(?! time\b)|on {WEEKDAY}(?! (?:the )?\d)|(?<!every )(?<!each )(?<!the )"
    r"(?<!every other )(?<!second )(?<!third )(?<!alternate )(?<!day is )(?<!days are )"
    rf"(?:{'|'.join(_WEEKDAY_NAMES)})\b(?!['’]s| [Pp]aper| (?:the )?\d))(?!\w)"
)


@cache
def _relative() -> re.Pattern[str]:
    return re.compile(RELATIVE, re.IGNORECASE)


def has_date(text: str) -> bool:
    """Return whether a text names a time, relative or as a date without a year."""
    stated = find_stated_dates(text)
    return bool(_relative().search(text)) or any(m.month and m.year is None for m in stated)


def annotate_dates(text: str, said_on: datetime, language: str, tense: Tense | None) -> str:
    """Append to each relative time of a statement its actual date, if that is certain.

    Args:
        said_on: when the text was uttered; it is appended if a time remains open.
        tense: whether a bare weekday is past or future (a plan); None if unknown.
    """
    annotated, open_ended = text, False
    for dated in reversed(find_dates(text, said_on, language, tense)):
        mention, period = dated.mention, dated.period
        start, end = mention.start, mention.end
        text = f"{text[:start]}{' ' * (end - start)}{text[end:]}"
        if mention.month and mention.year is None and (language == "english" or not mention.day):
            open_ended = open_ended or not _YEAR.search(annotated)
        elif period is None:
            open_ended = True
        elif not mention.year or str(mention.year) not in annotated[start:end]:
            label = _label(period, mention, language)
            annotated = f"{annotated[:end]} ({label}){annotated[end:]}"
    if open_ended or (language == "english" and _relative().search(text)):  # "the other day"
        return f"{annotated} (said on {said_on:%Y-%m-%d})"
    return annotated


def resolve_times(text: str, said_on: date) -> str:
    """Append the actual date to a line's "yesterday" or "last week".

    Times that contain the line's own day need none, and ambiguous ones are left unchanged.
    """
    for mention in reversed(find_relative_dates(text, said_on)):
        if period := period_to_add(mention, said_on):
            label = _label(period, mention, "english")
            text = f"{text[: mention.end]} ({label}){text[mention.end :]}"
    return text


def period_to_add(mention: DateMention, said_on: date) -> Period | None:
    """Return the period that `resolve_times` appends to a relative time; None if it adds none."""
    period = resolve(mention, said_on, "past" if mention.readings else None)
    return period if period and not period[0] <= said_on <= period[1] else None


def _label(period: Period, mention: DateMention, language: str) -> str:
    """Return a period as text: a day, a month, a year, or its first and last day."""
    first, last = period
    if mention.approximate_day:
        return f"around {mention.approximate_day}"
    if first == last:
        return str(first)
    if period == period_of("month", first):
        name = _ENGLISH.month_names[first.month - 1].title()
        return f"{name} {first.year}" if language == "english" else f"{first:%Y-%m}"
    return str(first.year) if period == period_of("year", first) else f"{first} to {last}"
