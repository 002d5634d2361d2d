"""Find the dates that a text states, in eight languages.  Pure.

A date with two common readings (3/4/2023) is left out: what a memory keeps must not rest on a
guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.dates.mentions import DateMention, without_overlaps
from memtier_plugin.text.lexicon import lexicons, words_of

_DAY: Final = r"\b(?P<d>\d{1,2})(?:st|nd|rd|th|er|º|ª|\.)?"
_YEAR: Final = r"(?P<y>(?:1[6-9]|20)\d\d)"
_OF: Final = r"(?:\s*,\s*|\s+(?:of|de|del|di|the|von|van)\s+|\s+)"
_SLASHED: Final = regex.compile(rf"\b(?P<a>\d\d?)/(?P<b>\d\d?)/{_YEAR}\b")
_HAN: Final = "一二三四五六七八九十"
_BEFORE_MONTH: Final = 40  # characters before a month in which a preposition is looked for
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
    """Compile what a date looks like, the more precise forms first."""
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
    """Return the dates that a text states, in order; none overlaps another."""
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
    """Return a number written in Chinese in digits, and any other text as it is."""
    if not text or text[0] not in _HAN:
        return text
    tens, ten, ones = text.rpartition("十")
    digit = _HAN.index
    value = (digit(tens) + 1 if tens else 1) * 10 if ten else 0
    return str(value + (digit(ones) + 1 if ones else 0))


def _slashed(text: str) -> Iterator[DateMention]:
    """Yield the dates with slashes that can be read in one way only."""
    for match in _SLASHED.finditer(text):
        first, second, year = int(match["a"]), int(match["b"]), int(match["y"])
        if first <= 12 < second <= 31 or first == second <= 12:
            yield DateMention(match.start(), match.end(), year, first, second)
        elif second <= 12 < first <= 31:
            yield DateMention(match.start(), match.end(), year, second, first)


def _is_month(text: str, match: regex.Match[str]) -> bool:
    """Check whether the bare name of a month is one: "may" and "mar" mostly are not."""
    word = match["m"]
    if word.isdigit() or word[0] in _HAN:
        return True
    if word.casefold() not in words_of("ambiguous_months"):
        return len(word) > 3
    start = match.start()
    before = text[max(0, start - _BEFORE_MONTH) : start].rstrip().rpartition(" ")[2].casefold()
    return before in (_MONTH_CUES if word[0].isupper() else _MONTH_CUES[:3])
