"""Append the date that is meant to each relative time of an English text.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cache
from typing import Final

from memtier_plugin.text.lexicon import lexicon

_MAX_UNITS: Final = 100  # a longer time ago is a figure of speech
_LAST: Final = ("last", "this past", "past")
_THIS: Final = ("this", "this coming")
_WHOLE_UNITS: Final = ("last", "next", "this", "earlier this")
_DAYS: Final = {"yesterday": -1, "last night": -1, "today": 0, "tonight": 0, "tomorrow": 1,
                "earlier today": 0, "the day before yesterday": -2}  # fmt: skip
_UNITS: Final = "day|week|month|year"
_SEASONS: Final = "spring|summer|fall|autumn|winter"
_AGO: Final = re.compile(rf"(\w+) ({_UNITS})s? (ago|back|from now)")
_IN: Final = re.compile(rf"in (?:about |around )?(\w+) ({_UNITS})s?")
_YEAR: Final = re.compile(r"\b(?:19|20)\d\d\b")


def _names(phrases: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted((name for names in phrases for name in names.split()), key=len)[::-1])


_ENGLISH: Final = lexicon("english")
_MONTH_NAMES: Final = _ENGLISH.month_names
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


@cache
def _yearless() -> re.Pattern[str]:
    return re.compile(
        rf"\b(?:(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {MONTH}|{MONTH} \d{{1,2}}"
        rf"(?:st|nd|rd|th)?\b|in {MONTH})(?!,? (?:of )?\d{{4}})",
        re.IGNORECASE,
    )


def has_date(text: str) -> bool:
    """Check whether a text gives a time, relative or as a date without a year."""
    return bool(_relative().search(text) or _yearless().search(text))


def annotate_dates(text: str, said_on: datetime, *, future: bool | None) -> str:
    """Append to each relative time the date that it means, where it determines one.

    Args:
        said_on: when the text was uttered; it is appended where a time remains open.
        future: whether a bare weekday is to come (a plan) or past; None: unknown.
    """
    open_ended = False

    def annotate(match: re.Match[str]) -> str:
        nonlocal open_ended
        past = text[max(0, match.start() - 6) : match.start()].lower().endswith("since ")
        date = _resolve(match[0].lower(), said_on, False if past else future)
        open_ended = open_ended or not date
        return f"{match[0]} ({date})" if date else match[0]

    result = _relative().sub(annotate, text)
    if open_ended or (_yearless().search(text) and not _YEAR.search(text)):
        result += f" (said on {said_on:%Y-%m-%d})"
    return result


def _resolve(phrase: str, said_on: datetime, future: bool | None) -> str:
    """Return the date that a phrase means, or nothing where it does not determine one."""
    if ago := _AGO.fullmatch(phrase):
        return _count(ago[1], ago[2], 1 if ago[3] == "from now" else -1, said_on)
    if phrase.startswith("in "):
        ahead = _IN.fullmatch(phrase)
        return _count(ahead[1], ahead[2], 1, said_on) if ahead else ""
    if phrase in _DAYS or phrase.startswith(("this morning", "this afternoon", "this evening")):
        return _iso(said_on, _DAYS.get(phrase, 0))
    which, _, unit = phrase.rpartition(" ")
    step = _step(which)
    if unit in ("month", "year") and which in _WHOLE_UNITS:
        return _whole(unit, step, said_on)
    if unit in ("week", "weekend") and which in ("last", "this past", "next", "this coming"):
        return f"the {unit} {'before' if step < 0 else 'after'} {_iso(said_on, 0)}"
    if (weekday := _index(_ENGLISH.weekdays, unit)) is not None:
        return _weekday(weekday, which, said_on, future)
    if which == "last" and (month := _index(_ENGLISH.months, unit)) is not None:
        return f"{_MONTH_NAMES[month].title()} {said_on.year - (month + 1 >= said_on.month)}"
    return ""


def _step(which: str) -> int:
    if which in (*_LAST, "the past"):
        return -1
    return 1 if which in ("next", "the coming", "this coming") else 0


def _index(phrases: Iterable[str], name: str) -> int | None:
    return next((n for n, names in enumerate(phrases) if name in names.split()), None)


def _weekday(weekday: int, which: str, said_on: datetime, future: bool | None) -> str:
    bare = which in ("", "on")
    if which in _LAST or (bare and future is False):
        return _iso(said_on, -((said_on.weekday() - weekday - 1) % 7 + 1))
    if which in _THIS or (bare and future):
        return _iso(said_on, (weekday - said_on.weekday()) % 7)
    return ""  # "next Friday" is this week's to some, and next week's to others


def _count(number: str, unit: str, sign: int, said_on: datetime) -> str:
    words = {**dict.fromkeys(_ENGLISH.articles, 1), **_ENGLISH.numbers}
    count = int(number) if number.isdigit() else words.get(number, 0)
    if not count or count > _MAX_UNITS:
        return ""
    if unit == "day":
        return _iso(said_on, sign * count)
    if unit == "week":
        return f"around {_iso(said_on, sign * 7 * count)}"
    return _whole(unit, sign * count, said_on)


def _whole(unit: str, count: int, said_on: datetime) -> str:
    """Return the name of the month, or the year, that lies ``count`` units away."""
    if unit == "year":
        return str(said_on.year + count)
    months = said_on.year * 12 + said_on.month - 1 + count
    return f"{_MONTH_NAMES[months % 12].title()} {months // 12}"


def _iso(said_on: datetime, days: int) -> str:
    try:
        return f"{said_on + timedelta(days=days):%Y-%m-%d}"
    except OverflowError:  # uttered in the year 1 or 9999
        return ""
