"""Find from when until when a statement says that it holds.  Pure.

A statement holds from the day it names as the past or by a word like "since" or "from", until the
day after a word like "until"; a range ("from March to June") holds to its last day, and so does a
state of a time that is over ("lived there in 2016").  What ended at a day in the past is known for
that day.  A plan holds from the moment it is made.  "On Tuesday" is the last one of what is past,
and the next one of what is to come; "every Tuesday" is no date.  (Event times: Mem-T, 3.1.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Final, Literal, NamedTuple

import regex

from memtier_plugin.text.dates.mentions import DateMention, without_overlaps
from memtier_plugin.text.dates.periods import Period
from memtier_plugin.text.dates.ranges import find_range
from memtier_plugin.text.dates.relative import find_relative_dates
from memtier_plugin.text.dates.stated import find_stated_dates
from memtier_plugin.text.lexicon import lexicon

Tense = Literal["past", "future"]

_FRONT: Final = 6  # characters before a date that opens a statement
_REACH: Final = 24  # characters before a date in which its preposition stands
_MAX_CHARS: Final = 600  # of a statement that are looked at
_DAYS: Final = 7
_AFTER_BEGIN: Final = regex.compile(r"\s?(?:起|开始|以来|之后|以后|onwards?\b|on\b(?! )|an\b(?! ))")
_AFTER_END: Final = regex.compile(r"\s?(?:为止|止|之前|以前)")
_EVERY: Final = regex.compile(
    r"(?i)\b(?:every|each|second|other|third|alternate|last|first|jeden|jede[rsm]?|zweiten|immer|"
    r"cada|todos los|todas las|tous les|toutes les|chaque|on)\s*\Z"
)
_SINCE: Final = regex.compile(
    r"(?i)(?:\b(?:since|seit|depuis|desde)(?: the| dem| der| el| le| la)?|自从|自)\s*\Z"
)
_AHEAD: Final = regex.compile(  # "moved to Friday" is about what is to come
    r"(?i)(?:\b(?:to|for|by|auf|zum|für|al?|para|au|à|pour)(?: the| den| el| le| la)?|[到至])\s*\Z"
)
_TO: Final = regex.compile(
    r"(?i)\s*(?:to|bis|al?|au|–|-|until|till|through|到|至)(?: the| zum| el)?\s*\Z"
)
_LAST: Final = regex.compile(r"(?i)(?<!the )\blast\s*\Z")
_WEEKEND: Final = regex.compile(r"(?i)\blast weekend\b")
_OF: Final = regex.compile(r"(?i)\s+(?:of|in each|every)\b")
_LASTING: Final = regex.compile(  # what lasts, and is over where the time that it names is
    r"(?i)\b(?:lived|resided|stayed|worked|studied|served|taught|"
    r"(?<=(?:i|we|they|she|he) )used(?! to\b)|(?:was|were) (?:in|at|on|an?|"
    r"the|our|my))\b"
)
_PLURAL: Final = regex.compile(
    r"(?i)(?:every|each|jede\w*|cada|tod[oa]s l[oa]s|tou(?:s|tes) les|chaque)\b"
)


class Validity(NamedTuple):
    """From when until when a statement holds; None where it does not say."""

    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Dated:
    """A date in a statement, with the days that it means."""

    mention: DateMention
    period: Period | None
    weekday: bool = False


def find_dates(text: str, said_on: datetime, language: str, tense: Tense | None) -> list[Dated]:
    """Return the dates of a statement, each with the days it means where they are certain."""
    text, today = text[:_MAX_CHARS], said_on.date()
    stated, relative = find_stated_dates(text), find_relative_dates(text, today)
    weekdays = [*_weekdays(text, language)]
    weekends = [
        DateMention(match.start(), match.end())
        for match in _WEEKEND.finditer(text)
        if language == "english"
    ]
    named = [mention for mention, _ in weekdays]
    chosen = without_overlaps(text, [*stated, *relative, *named, *weekends])
    numbers = dict(weekdays)
    dates = []
    for mention in chosen:
        number = numbers.get(mention)
        direction = _direction(text, mention, language, tense) or tense
        if number is not None:
            if not _recurs(text, mention) or (tense == "past" and _is_last(text, mention)):
                period = _weekday(today, number, direction)
                dates.append(Dated(mention, period, weekday=True))
        else:
            period = mention.period or _year_for(mention, today, direction)
            if period is None and tense == "past":
                period = _last_named(text, mention, today, language)
            dates.append(Dated(mention, period))
    return dates


def names_weekdays_only(text: str, said_on: datetime, language: str) -> bool:
    """Tell whether all times in a text are bare weekdays, as in "never deploy on Friday"."""
    names = lexicon(language).weekday_forms
    dates = find_dates(text, said_on, language, None)
    mentioned = (text[dated.mention.start : dated.mention.end].casefold() for dated in dates)
    return all(mention.split()[-1] in names for mention in mentioned)


def _is_last(text: str, mention: DateMention) -> bool:
    """Tell whether "last" stands before a weekday: "last Tues", not "the last Friday of ..."."""
    before = text[max(0, mention.start - _REACH) : mention.start]
    return _LAST.search(before) is not None and not _OF.match(text, mention.end)


def _last_named(text: str, mention: DateMention, today: date, language: str) -> Period | None:
    """Return the last day that has the name in a phrase such as "last Friday" or "last weekend".

    What happened on it is past, so that of two readings the nearer one is meant.
    """
    phrase = text[mention.start : mention.end].casefold()
    for number, names in enumerate(lexicon(language).weekdays):
        if names.split()[0] in phrase.split():
            return _weekday(today, number, "past")
    if "weekend" in phrase:
        saturday = today - timedelta(days=today.weekday() + 2)
        return saturday, saturday + timedelta(days=1)
    return None


def find_validity(
    text: str, said_on: datetime, language: str, tense: Tense | None, verb: int = 0
) -> Validity:
    """Return from when until when a statement says that it holds.

    Args:
        tense: whether it tells of the past or of something to come; None: of neither.
        verb: where its verb stands: a date between its opening and that names a thing, no event.
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
    """Return the window of a range that a statement names; None where it names none."""

    def resolve(mention: DateMention) -> Period | None:
        ahead: Tense = "past" if tense == "past" else "future"
        return mention.period or _year_for(mention, today, ahead)

    days = find_range(text[:_MAX_CHARS], [dated.mention for dated in dates], resolve)
    return Validity(_moment(days.first), _moment(days.last)) if days else None


def _moment(day: date) -> datetime:
    return datetime.combine(day, time(tzinfo=UTC))


def _cue(text: str, mention: DateMention, language: str) -> Literal["since", "until", ""]:
    """Return what the preposition of a date says."""
    before, after = text[max(0, mention.start - _REACH) : mention.start].casefold(), mention.end
    own = regex.match(r"\w+", text[mention.start : mention.end].casefold())
    until, since = _prepositions(language)
    if _AFTER_END.match(text, after) and lexicon(language).unspaced:
        return "until"
    if _AFTER_BEGIN.match(text, after):
        return "since"
    if until.search(before):
        return "until"
    if since.search(before) or (own and own[0] in lexicon(language).valid_from_cues):
        return "since"
    return ""


def _direction(text: str, mention: DateMention, language: str, tense: Tense | None) -> Tense | None:
    """Return where in time a date lies by its preposition: "since May" is the last one."""
    before = text[max(0, mention.start - _REACH) : mention.start]
    if _SINCE.search(before):
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


def _weekdays(text: str, language: str) -> Iterable[tuple[DateMention, int]]:
    for number, name in _weekday_names(language):
        for match in name.finditer(text):
            yield DateMention(match.start(), match.end()), number


@cache
def _weekday_names(language: str) -> Sequence[tuple[int, regex.Pattern[str]]]:
    words = lexicon(language)
    bound = "" if words.unspaced else r"\b"
    shortest = 2 if words.unspaced else 4  # "sat" and "sun" are words of their own
    return tuple(
        (
            number,
            regex.compile(
                rf"(?i){bound}(?:{_either(n for n in names.split() if len(n) >= shortest)}){bound}"
            ),
        )
        for number, names in enumerate(words.weekdays)
    )


def _recurs(text: str, mention: DateMention) -> bool:
    """Tell whether a weekday is meant as such: "every Friday", "the deploy day is Friday"."""
    before = text[max(0, mention.start - _REACH) : mention.start]
    every = _EVERY.search(before)
    if every and every[0].strip().casefold() != "on":
        return True
    return bool(_PLURAL.search(before)) or bool(
        regex.search(r"(?i)\bday(?:s)? (?:is|are|was|will be)(?: now)? (?:a )?\Z", before)
    )


def _weekday(today: date, number: int, tense: Tense | None) -> Period | None:
    if tense is None:
        return None
    ahead = (number - today.weekday()) % _DAYS
    if tense == "past":
        ahead = -((today.weekday() - number - 1) % _DAYS + 1)
    day = today + timedelta(days=ahead)
    return day, day


def _year_for(mention: DateMention, today: date, tense: Tense | None) -> Period | None:
    """Return the days of a date without a year: the last or the next one, or the nearest."""
    if mention.month is None or mention.year is not None:
        return None
    periods = [
        period
        for year in (today.year - 1, today.year, today.year + 1)
        if (period := replace(mention, year=year).period)
    ]
    if tense == "past":
        return max((p for p in periods if p[0] <= today), default=None)
    if tense == "future":
        return min((p for p in periods if p[1] >= today), default=None)
    return min(periods, key=lambda period: abs((period[0] - today).days), default=None)
