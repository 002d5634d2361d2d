"""Find the dates that a text names relative to the day of its utterance.  Pure.

A phrase with two common readings ("next Friday" on a Wednesday) is found, but has no period: what a
memory keeps must not rest on a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from functools import cache
from itertools import chain
from typing import Final, NamedTuple

import regex

from memtier_plugin.text.dates.mentions import DateMention, without_overlaps
from memtier_plugin.text.dates.periods import Period, period_of, shift_day
from memtier_plugin.text.lexicon import Lexicon, lexicon, lexicons

# The most that number words count to in "three days ago", by language.
_COUNT_UP_TO: Final = {"english": 10, "german": 4, "spanish": 4, "french": 4, "russian": 4}


class _Phrase(NamedTuple):
    """A pattern for a period that lies a number of units away."""

    unit: str
    offset: int
    pattern: regex.Pattern[str]


class _Tables(NamedTuple):
    """The compiled phrases of all languages; most processes never need them."""

    hints: tuple[str, ...]  # one of them stands in any text that has a relative date
    phrases: tuple[_Phrase, ...]
    counted: tuple[tuple[int, regex.Pattern[str]], ...]  # -1 for "ago", 1 for "in ..."
    counts: dict[str, int]
    units: dict[str, str]
    weekend: regex.Pattern[str]
    weekday: regex.Pattern[str]
    weekdays: dict[str, int]
    weekday_steps: dict[str, int]


@cache
def _tables() -> _Tables:
    every = lexicons()
    units = {form: u for lex in every for u, forms in lex.units.items() for form in forms}
    weekdays = {name: n for lex in every for n, name in enumerate(lex.weekday_names)}
    steps = {word: step for lex in every for word, step in lex.weekday_steps.items()}
    counts = {
        word: value for lex in every for word, value in _counts(lex) if lex.language in _COUNT_UP_TO
    }
    number = rf"(?P<n>\d{{1,3}}|{'|'.join(counts)})"
    counted = rf"{number} (?P<u>{'|'.join(sorted(units, key=len, reverse=True))})"
    ago_after = _either(phrase for lex in every for phrase in lex.ago_after)
    ago_before = _either(phrase for lex in every for phrase in lex.ago_before)
    ahead_after = _either(phrase for lex in every for phrase in lex.ahead_after)
    ahead_before = _either(phrase for lex in every for phrase in lex.ahead_before)
    relative = _phrases(every)
    return _Tables(
        hints=_hints(every),
        phrases=tuple(relative),
        counted=(
            (-1, _compiled(rf"\b{counted} {ago_after}\b|\b{ago_before} {counted}\b")),
            (1, _compiled(rf"\b{counted} {ahead_after}\b|\b{ahead_before} {counted}\b(?! of\b)")),
        ),
        counts=counts,
        units=units,
        weekend=_compiled(rf"\b(?P<w>{'|'.join(lexicon('english').weekday_steps)}) weekend\b"),
        weekday=_compiled(rf"\b(?P<w>{'|'.join(steps)}) (?P<day>{'|'.join(weekdays)})\b"),
        weekdays=weekdays,
        weekday_steps=steps,
    )


def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(f"(?i){pattern}")


def _either(phrases: Iterable[str]) -> str:
    return f"(?:{'|'.join(dict.fromkeys(phrases))})"


def _counts(lex: Lexicon) -> Iterator[tuple[str, int]]:
    """Yield the words that count units of time: articles and small numbers."""
    yield from ((article, 1) for article in lex.articles)
    limit = _COUNT_UP_TO.get(lex.language, 0)
    yield from ((word, value) for word, value in lex.numbers.items() if value <= limit)


def _phrases(every: Iterable[Lexicon]) -> Iterator[_Phrase]:
    """Yield the patterns of fixed phrases; "day after tomorrow" comes before "tomorrow"."""
    spaced: dict[str, list[str]] = {}
    unspaced: dict[str, list[str]] = {}
    not_after: dict[str, list[str]] = {}
    for lex in every:
        for key, phrases in lex.relative_times.items():
            (unspaced if lex.unspaced else spaced).setdefault(key, []).extend(phrases)
        for phrase in lex.relative_times.get("day 1", ()):
            not_after.setdefault(phrase, []).extend(lex.not_tomorrow_after)
    for key in sorted({*spaced, *unspaced}, key=_priority):
        unit, offset = key.split()
        forms = dict.fromkeys(
            rf"(?<!{_either(before)} ){phrase}" if (before := not_after.get(phrase)) else phrase
            for phrase in spaced.get(key, ())
        )
        bounded = [rf"\b{_either(forms)}\b"] if forms else []
        pattern = "|".join([*bounded, *dict.fromkeys(unspaced.get(key, ()))])
        yield _Phrase(unit, int(offset), _compiled(pattern))


def _priority(key: str) -> tuple[int, int, int]:
    unit, offset = key.split()
    return ("day", "week", "month", "year").index(unit), -abs(int(offset)), int(offset)


def _hints(every: Iterable[Lexicon]) -> tuple[str, ...]:
    """Return substrings of which each relative date has one: a text without any is not searched."""
    hints: dict[str, None] = {"weekend": None}
    for lex in every:
        phrases = chain.from_iterable(lex.relative_times.values())
        hints.update((max(phrase.split(), key=len), None) for phrase in phrases)
        hints.update((name, None) for name in lex.weekday_names)
        markers = (*lex.ago_before, *lex.ago_after, *lex.ahead_before, *lex.ahead_after)
        hints.update((marker, None) for marker in markers if len(marker) > 2)
        forms = chain.from_iterable(lex.units.values())
        hints.update((form, None) for form in forms if len(form) > 2)
    return tuple(hint for hint in hints if not any(o in hint for o in hints if o != hint))


def find_relative_dates(text: str, said_on: date) -> list[DateMention]:
    """Return the dates that a text names relative to the day of its utterance, in order."""
    folded = text.lower()
    if not any(hint in folded for hint in _tables().hints):
        return []
    return without_overlaps(text, _relative(text, said_on))


def _relative(text: str, said_on: date) -> Iterator[DateMention]:
    tables = _tables()
    for unit, offset, pattern in tables.phrases:
        for match in pattern.finditer(text):
            yield _mention(match, period_of(unit, shift_day(said_on, unit, offset)))
    for sign, pattern in tables.counted:
        for match in pattern.finditer(text):
            number, unit = match["n"].casefold(), tables.units[match["u"].casefold()]
            count = int(number) if number.isdigit() else tables.counts[number]
            yield _counted(match, said_on, unit, sign * count)
    monday = said_on - timedelta(days=said_on.weekday())
    for match in tables.weekend.finditer(text):
        if said_on.weekday() < 5:  # on a Sunday, "last weekend" may be this one
            weeks = tables.weekday_steps[match["w"].casefold()]
            saturday = monday + timedelta(days=5 + 7 * weeks)
            yield _mention(match, (saturday, saturday + timedelta(days=1)))
    for match in tables.weekday.finditer(text):
        step = tables.weekday_steps[match["w"].casefold()]
        weekday = tables.weekdays[match["day"].casefold()]
        yield _mention(match, _weekday(said_on, monday, step, weekday))


def _weekday(said_on: date, monday: date, step: int, weekday: int) -> Period | None:
    """Return the day of "last Friday"; None where it may be this week's or the other's."""
    if not step:
        day = monday + timedelta(days=weekday)
        return day, day
    distance = (step * (weekday - said_on.weekday()) - 1) % 7 + 1
    day = said_on + timedelta(days=step * distance)
    return None if monday <= day <= monday + timedelta(days=6) else (day, day)


def _mention(match: regex.Match[str], span: Period | None) -> DateMention:
    return DateMention(match.start(), match.end(), span=span)


def _counted(match: regex.Match[str], said_on: date, unit: str, count: int) -> DateMention:
    try:
        day = shift_day(said_on, unit, count)
        around = (day - timedelta(days=3), day + timedelta(days=3))
    except (OverflowError, ValueError):
        return _mention(match, None)
    if unit == "week":
        return DateMention(match.start(), match.end(), span=around, approximate_day=day)
    return _mention(match, period_of(unit, day))
