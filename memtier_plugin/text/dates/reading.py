"""Find the absolute dates in a text, and interpret all its dates together.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache
from typing import Final, Literal, NamedTuple

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.dates.mentions import (
    DateMention,
    Period,
    period_of,
    shift_day,
    without_overlaps,
)
from memtier_plugin.text.dates.relative import GAP, any_of, find_relative_dates, may_name_time
from memtier_plugin.text.lexicon import lexicons, words_of

# -- Find absolute dates in eight languages.  Pure
#
# Ambiguous dates (3/4/2023) are skipped: stored memories must not rest on a guess.

_DAY: Final = r"\b(?P<d>\d{1,2})(?:st|nd|rd|th|er|º|ª|\.)?"
_YEAR: Final = r"(?P<y>(?:1[6-9]|20)\d\d)"
_OF: Final = r"(?:\s*,\s*|\s+(?:of|de|del|di|the|von|van)\s+|\s+)"
_SLASHED: Final = regex.compile(rf"\b(?P<a>\d\d?)/(?P<b>\d\d?)/{_YEAR}\b")
_HAN: Final = "一二三四五六七八九十"
_BEFORE_MONTH: Final = 40  # characters before a month searched for a preposition
_MONTH_CUES: Final = (
    "in",
    "since",
    "of",
    "until",
    "by",
    "last",
    "next",
    "this",
    "from",
    "between",
    "to",
)


@cache
def _months() -> dict[str, int]:
    return {
        name: number
        for lexicon in lexicons()
        for number, names in enumerate(lexicon.months, 1)
        for name in names.split()
    }


@cache
def _patterns() -> tuple[regex.Pattern[str], ...]:
    """Compile the date patterns, the most precise first."""
    month = rf"(?P<m>{'|'.join(sorted(_months(), key=len, reverse=True))})\b\.?"
    cues = "|".join(dict.fromkeys(cue for lexicon in lexicons() for cue in lexicon.year_cues))
    forms = (
        rf"\b{_YEAR}[-/.](?P<m>\d\d?)[-/.](?P<d>\d\d?)(?![\d/])(?:T\d\d:\d\d(?::\d\d)?Z?)?",
        rf"{_YEAR}\s?[年년]\s?(?P<m>\d\d?)\s?[月월]\s?(?P<d>\d\d?)\s?[日号일]",
        rf"{_YEAR}\s?[年년]\s?(?P<m>\d\d?)\s?[月월]",
        r"(?<!\d)(?P<m>\d\d?)\s?[月월]\s?(?P<d>\d\d?)\s?[日号일]",
        r"(?<!\d)(?P<m>\d\d?)月(?!\d)",
        rf"(?P<m>[{_HAN}]{{1,2}})月(?:(?P<d>[{_HAN}]{{1,3}})[日号])?",
        rf"{_YEAR}\s?[年년]",
        rf"(?<![\d.])(?P<d>\d\d?)\.\s?(?P<m>\d\d?)\.\s?{_YEAR}(?!\d)",
        rf"{_DAY}{_OF}{month}(?:{_OF}{_YEAR}\b)?",
        rf"\b{month}{_OF}?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\s*(?:[:%]|[ap]\.?m\b))"
        rf"(?:{_OF}{_YEAR}\b)?",
        rf"\b{month}{_OF}{_YEAR}\b",
        rf"\b{month}",
        rf"(?:\b(?:{cues})\s+(?:the year\s+)?)\K{_YEAR}\b"
        r"(?![-/.:,]?\d|\s*(?:%|[a-z]*(?:dollar|euro|pound|people|times|km|miles)))",
    )
    return tuple(regex.compile(f"(?i){form}") for form in forms)


@cache
def _any_date() -> regex.Pattern[str]:
    return regex.compile(rf"(?i)\d|[年月]|\b(?:{'|'.join(_months())})\b")


def find_stated_dates(text: str) -> list[DateMention]:
    """Return the absolute dates in a text, in order and without overlaps."""
    if not _any_date().search(text):
        return []
    mentions = without_overlaps(text, _stated(text))
    return sorted([*mentions, *_slashed(text)], key=lambda mention: mention.start)


def _stated(text: str) -> Iterator[DateMention]:
    months = _months()
    for pattern in _patterns():
        for match in pattern.finditer(text):
            groups = match.groupdict()
            name, day = _number(groups.get("m") or "").casefold(), _number(groups.get("d") or "")
            month = int(name) if name.isdigit() else months.get(name)
            year = groups.get("y")
            if not (day or year) and not _is_month(text, match):
                continue
            if (month and not 1 <= month <= 12) or (day and not 1 <= int(day) <= 31):
                continue
            yield DateMention(
                match.start(),
                match.end(),
                int(year) if year else None,
                month,
                int(day) if day else None,
            )


def _number(text: str) -> str:
    """Return a Chinese number in digits, and any other text unchanged."""
    if not text or text[0] not in _HAN:
        return text
    tens, ten, ones = text.rpartition("十")
    digit = _HAN.index
    value = (digit(tens) + 1 if tens else 1) * 10 if ten else 0
    return str(value + (digit(ones) + 1 if ones else 0))


def _slashed(text: str) -> Iterator[DateMention]:
    """Yield the unambiguous dates written with slashes."""
    for match in _SLASHED.finditer(text):
        first, second, year = int(match["a"]), int(match["b"]), int(match["y"])
        if first <= 12 < second <= 31 or first == second <= 12:
            yield DateMention(match.start(), match.end(), year, first, second)
        elif second <= 12 < first <= 31:
            yield DateMention(match.start(), match.end(), year, second, first)


def _is_month(text: str, match: regex.Match[str]) -> bool:
    """Return whether the bare name of a month is meant as one: "may" and "mar" mostly are not."""
    word = match["m"]
    if word.isdigit() or word[0] in _HAN:
        return True
    if word.casefold() not in words_of("ambiguous_months"):
        return len(word) > 3
    start = match.start()
    before = text[max(0, start - _BEFORE_MONTH) : start].rstrip().rpartition(" ")[2].casefold()
    return before in (_MONTH_CUES if word[0].isupper() else _MONTH_CUES[:3])


# -- Interpret all dates of a text together: context fills in what one leaves open.  Pure
#
# "March last year" and "June 5 next year" take their year from the words after them, "Monday of
# last week" its week; "the end of", "the second week of" and "two days before" select a part of a
# period or a day next to it.

Tense = Literal["past", "future"]

_REACH: Final = 32  # characters before or after a date searched for words that modify it
_GAP: Final = regex.compile(rf"(?i){GAP}|\s?的?")
_BEFORE: Final = regex.compile(r"(?i) before (?:the )?")
_YEAR_DAYS: Final = 365


@dataclass(frozen=True, slots=True)
class Dated:
    """A date in a text and the days that it means; None if uncertain."""

    mention: DateMention
    period: Period | None


def read_dates(
    text: str,
    said_on: date,
    tense_of: Callable[[DateMention], Tense | None],
    *,
    is_question: bool = False,
) -> list[Dated]:
    """Return the dates of a text in order, each with the days that it means.

    Args:
        tense_of: whether a date without a year, or a weekday, is past or future.
        is_question: whether the text is a question; see `find_relative_dates`.
    """
    if not may_name_time(text):
        return []
    relative = find_relative_dates(text, said_on, weekdays=True, is_question=is_question)
    joined: list[DateMention] = []
    for mention in without_overlaps(text, [*find_stated_dates(text), *relative]):
        if joined and (both := _join(text, joined[-1], mention)):
            joined[-1] = both
        else:
            joined.append(mention)
    dates = [_within(text, Dated(m, resolve(m, said_on, tense_of(m))), is_question) for m in joined]
    if is_question:
        spans = [(dated.mention.start, dated.mention.end) for dated in dates]
        dates += (
            dated
            for dated in _parts_of_units(text, said_on)
            if all(e <= dated.mention.start or dated.mention.end <= s for s, e in spans)
        )
    return sorted(dates, key=lambda dated: dated.mention.start)


def resolve(mention: DateMention, today: date, tense: Tense | None) -> Period | None:
    """Return the days that a date means in a past or future context (None: unknown or neither)."""
    if mention.readings:
        if tense == "past":
            return next((r for r in mention.readings if r[0] <= today), None)
        ahead = [r for r in mention.readings if r[1] >= today]
        return ahead[0] if tense == "future" and len(ahead) == 1 else None
    return mention.period or _in_some_year(mention, today, tense)


def _in_some_year(mention: DateMention, today: date, tense: Tense | None) -> Period | None:
    """Return the days of a date without a year: the last, the next, or the nearest one."""
    if mention.month is None or mention.year is not None:
        return None
    years = range(today.year - 8, today.year + 9) if mention.day == 29 else range(-1, 2)
    periods = [
        period
        for year in years
        if (period := replace(mention, year=year if year > 1 else today.year + year).period)
    ]
    if tense == "past":
        return max((p for p in periods if p[0] <= today), default=None)
    if tense == "future":
        return min((p for p in periods if p[1] >= today), default=None)
    return min(periods, key=lambda period: abs((period[0] - today).days), default=None)


def _join(text: str, first: DateMention, last: DateMention) -> DateMention | None:
    """Return two dates as one: the day of a week, or a date whose year the other gives."""
    start, end = first.start, last.end
    if _BEFORE.fullmatch(text, first.end, last.start):
        if first.readings and last.day and last.period:  # "the Sunday before 7 May"
            until = last.period[0] - timedelta(days=1)
            span = (until - timedelta(days=6), until)
            return DateMention(start, end, span=_day_in(span, first.weekday) or span)
    elif not _GAP.fullmatch(text, first.end, last.start):
        return None
    for partial_date, complement in ((first, last), (last, first)):
        if partial_date.weekday is not None and complement.day:
            return replace(complement, start=start, end=end)
        if complement.span is None:
            continue
        days = (complement.span[1] - complement.span[0]).days + 1
        if partial_date.weekday is not None and days == 7:
            return DateMention(start, end, span=_day_in(complement.span, partial_date.weekday))
        if partial_date.month and partial_date.year is None and days >= _YEAR_DAYS:
            return replace(partial_date, start=start, end=end, year=complement.span[0].year)
    return None


def _day_in(week: Period, weekday: int | None) -> Period | None:
    if weekday is None:
        return None
    day = week[0] + timedelta(days=(weekday - week[0].weekday()) % 7)
    return day, day


# -- context of a date -----------------------------------------------------------------------------


class _Beside(NamedTuple):
    """Patterns of the words before a date, or after it in scripts without spaces."""

    before: regex.Pattern[str]
    after: regex.Pattern[str]
    offset: regex.Pattern[str]
    of_unit: regex.Pattern[str]
    units: Mapping[str, str]
    nth: Mapping[str, int]
    parts: Mapping[str, tuple[int, int]]
    counts: Mapping[str, int]


@cache
def _beside() -> _Beside:
    every = [lex for lex in lexicons() if lex.nth]
    spaced = [lex for lex in every if not lex.unspaced]
    nth = {form: n for lex in every for n, forms in enumerate(lex.nth, 1) for form in forms.split()}
    parts = {
        form: (int(key[0]), int(key[-1]))
        for lex in every
        for key, forms in lex.parts.items()
        for form in forms
    }
    units = {form: unit for lex in every for unit, forms in lex.units.items() for form in forms}
    counts = {word: n for lex in spaced for word, n in lex.numbers.items() if n <= 12}
    counts |= {word: 1 for lex in spaced for word in lex.articles} | {"the": 1}
    part, unit = rf"(?P<p>{any_of(parts)})", rf"(?P<u>{any_of(units)})"
    part_or_nth = rf"(?:{part}|(?P<o>{any_of(nth)})[\s-]?{unit})"
    return _Beside(
        regex.compile(rf"(?i)\b{part_or_nth}{GAP}?\Z"),
        regex.compile(rf"(?i)的?{part_or_nth}"),
        regex.compile(rf"(?i)\b(?P<n>\d{{1,3}}|{any_of(counts)}) {unit} (?P<d>before|after) \Z"),
        regex.compile(rf"(?i)\b{part} (?:of the|des|del|de l['’]|du) ?{unit}\b|(?P<u>年|月){part}"),
        units,
        nth,
        parts,
        counts,
    )


def _within(text: str, dated: Dated, is_question: bool) -> Dated:
    """Return a date, narrowed or shifted by the words next to it."""
    mention, period, words = dated.mention, dated.period, _beside()
    if period is None:
        return dated
    start, end = mention.start, mention.end
    window_start = max(0, start - _REACH)
    before = text[window_start:start]
    if is_question and (match := words.offset.search(before)):
        count = int(match["n"]) if match["n"].isdigit() else words.counts[match["n"].lower()]
        unit = words.units[match["u"].lower()]
        sign = -1 if match["d"].lower() == "before" else 1
        day = shift_day(period[0], unit, sign * count)
        return Dated(replace(mention, start=window_start + match.start()), period_of(unit, day))
    if match := words.before.search(before):
        start = window_start + match.start()
    elif match := words.after.match(text, end):
        end = match.end()
    if match and (narrow := _narrowed(match, period)):
        return Dated(replace(mention, start=start, end=end), narrow)
    return dated


def _narrowed(match: regex.Match[str], period: Period) -> Period | None:
    """Return part of a period, such as a month's end or second week; None if it is too short."""
    words, (first, last) = _beside(), period
    days = (last - first).days + 1
    if match["p"]:
        number, of = words.parts[match["p"].lower()]
        if days < 7:
            return None
        return (
            first + timedelta(days=days * (number - 1) // of),
            first + timedelta(days=days * number // of - 1),
        )
    unit, number = words.units[match["u"].lower()], words.nth[match["o"].lower()]
    length = {"day": 1, "week": 7}.get(unit)
    if unit == "weekend":
        begin = first + timedelta(days=(5 - first.weekday()) % 7 + 7 * (number - 1))
        return begin, begin + timedelta(days=1)
    if length is None or days <= length:
        return None
    begin = first + timedelta(days=length * (number - 1))
    return begin, begin + timedelta(days=length - 1)


def _parts_of_units(text: str, today: date) -> Iterator[Dated]:
    """Yield "at the beginning of the year", meaning the last one that has begun."""
    for match in _beside().of_unit.finditer(text):
        unit = _beside().units[match["u"].lower()] if match["u"] not in "月" else "month"
        if unit not in ("week", "month", "year"):
            continue
        for back in (0, -1):
            period = _narrowed(match, period_of(unit, shift_day(today, unit, back)))
            if period and period[0] <= today:
                yield Dated(DateMention(match.start(), match.end(), span=period), period)
                break
