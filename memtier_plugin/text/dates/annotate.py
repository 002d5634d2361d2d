"""Append the date that is meant to each relative time of a text.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from functools import cache
from typing import Final

from memtier_plugin.text.dates.mentions import DateMention
from memtier_plugin.text.dates.periods import Period, period_of
from memtier_plugin.text.dates.reading import Tense, resolve
from memtier_plugin.text.dates.relative import find_relative_dates
from memtier_plugin.text.dates.stated import find_stated_dates
from memtier_plugin.text.dates.validity import find_dates
from memtier_plugin.text.lexicon import lexicon

_UNITS: Final = "day|week|month|year"
_SEASONS: Final = "spring|summer|fall|autumn|winter"
_YEAR: Final = re.compile(r"\b(?:19|20)\d\d\b")


def _names(phrases: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted((name for names in phrases for name in names.split()), key=len)[::-1])


_ENGLISH: Final = lexicon("english")
_WEEKDAY_NAMES: Final = _ENGLISH.weekday_names
MONTH: Final = rf"(?:{'|'.join(_names(_ENGLISH.months))})\b"
WEEKDAY: Final = rf"(?:{'|'.join(_names(_ENGLISH.weekdays))})\b"
ONE_TO_TEN: Final = "|".join(_ENGLISH.number_words(1, 10))
# A time relative to the day of the utterance; without regard to case.
RELATIVE: Final = (
    rf"\b(?:the day before yesterday|(?:not (?:so|too|that) )?long ago|a while (?:ago|back)|"
    rf"yesterday|today|tonight|tomorrow|last night|this (?:morning|afternoon|evening)|earlier "
    rf"(?:today|this (?:week|month|year))|(?:last|past|next|this(?: past| coming)?|the (?:past|"
    rf"coming|other|following)) (?:few |couple of )?(?:days?|nights?|weekends?|weeks?|months?|"
    rf"years?|{_SEASONS}|{WEEKDAY}|{MONTH})|(?:\d+|an?|{ONE_TO_TEN}|twenty|(?:a )?few|(?:a "
    rf")?couple(?: of)?|several|some) (?:{_UNITS})s? (?:ago|back\b|from now)|in (?:about |around "
    rf")?(?:\d+|an?|{'|'.join(_ENGLISH.number_words(1, 6))}|a few|a couple of) (?:hour|"
    rf"{_UNITS})s?\b(?! time\b)|on {WEEKDAY}(?! (?:the )?\d)|(?<!every )(?<!each )(?<!the )"
    r"(?<!every other )(?<!second )(?<!third )(?<!alternate )(?<!day is )(?<!days are )"
    rf"(?:{'|'.join(_WEEKDAY_NAMES)})\b(?!['’]s| [Pp]aper| (?:the )?\d))(?!\w)"
)


@cache
def _relative() -> re.Pattern[str]:
    return re.compile(RELATIVE, re.IGNORECASE)


def has_date(text: str) -> bool:
    """Check whether a text gives a time, relative or as a date without a year."""
    stated = find_stated_dates(text)
    return bool(_relative().search(text)) or any(m.month and m.year is None for m in stated)


def annotate_dates(text: str, said_on: datetime, language: str, tense: Tense | None) -> str:
    """Append to each relative time of a statement the date that it means, where that is certain.

    Args:
        said_on: when the text was uttered; it is appended where a time remains open.
        tense: whether a bare weekday is past or to come (a plan); None: unknown.
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
    """Append to what a line calls "yesterday" or "last week" the date that it means.

    What the line's own day lies in is clear by that, and what has two readings stays as it is.
    """
    for mention in reversed(find_relative_dates(text, said_on)):
        period = resolve(mention, said_on, "past" if mention.readings else None)
        if period and not period[0] <= said_on <= period[1]:
            label = _label(period, mention, "english")
            text = f"{text[: mention.end]} ({label}){text[mention.end :]}"
    return text


def _label(period: Period, mention: DateMention, language: str) -> str:
    """Return the day, the month, the year, or the first and the last day."""
    first, last = period
    if mention.approximate_day:
        return f"around {mention.approximate_day}"
    if first == last:
        return str(first)
    if period == period_of("month", first):
        name = _ENGLISH.month_names[first.month - 1].title()
        return f"{name} {first.year}" if language == "english" else f"{first:%Y-%m}"
    return str(first.year) if period == period_of("year", first) else f"{first} to {last}"
