"""Find dates relative to the day of the utterance.  Pure.

One grammar serves all languages: a step ("last", "letzte", "上") before or after a time unit or a
weekday, a count of units before or after "ago", and fixed words ("yesterday").  Each language
supplies the word classes in its data file.  An ambiguous phrase ("next Friday" on a Wednesday) gets
both readings and no period: stored memories must not rest on a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import date, timedelta
from functools import cache
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.dates.mentions import (
    DateMention,
    Period,
    period_of,
    season_of,
    shift_day,
    without_overlaps,
)
from memtier_plugin.text.lexicon import Lexicon, lexicons

SEASONS: Final = ("spring", "summer", "autumn", "winter")
_COUNT_UP_TO: Final = 12  # the highest number word in "three days ago"
_REACH: Final = 24  # characters before a name searched for a preposition
_SHORTEST: Final = 4  # characters of a weekday's name: "sat" and "sun" are words of their own
# Characters allowed between the words of one phrase.
GAP: Final = (
    r"(?:[\s,'’-]+(?:(?:of|in|the|on|at|s|de|del|la|el|los|las|l|le|les|du|des|der|dem|den|die|das|"
    r"im|am|vom|von)\b[\s'’-]+)*)"
)
_ARTICLE: Final = r"(?:\b(?:(?:la|el|le|the|this(?= past)) |l['’]))?"
# After one of these, a weekend or a season without further words means a certain one.
_ON: Final = regex.compile(
    r"(?i)\b(?:(?:on|from|since|until|before|after|by|at|over|during|in|am|vom|seit|bis|im|ab|vor|el|"
    r"del|al|desde|hasta|en|du|ce|depuis|pendant)(?: (?:the|dem|el|le))? |(?:de|pendant|depuis) "
    r"l['’])\Z"
)
_NTH: Final = (  # "on the 10th", "am 10.", "el día 10"
    r"(?:\b(?:on|since|until|before|after) the (?P<n>\d{1,2})(?:st|nd|rd|th)|\b(?:el(?: día)?|le) "
    r"(?P<n>\d{1,2}))(?=\s*(?:[?.!,;]|\Z))|\b(?:am|seit dem|bis zum) (?P<n>\d{1,2})\.(?! ?\d)"
)
_WORD: Final = regex.compile(r"\d|[^\W\d]+")
_ASCII_WORD: Final = re.compile(r"\d|[a-z_]+")
_DIGITS: Final = frozenset("0123456789")
_DAYS: Final = {"day": 1, "week": 7, "month": 30, "year": 365}
_MAX_DAYS: Final = 36_500

_Match: TypeAlias = "regex.Match[str]"
_Reader = Callable[[_Match, date], DateMention | None]


class _Form(NamedTuple):
    """A pattern for relative times, and the function that dates a match.

    Attributes:
        needs: word sets; an ASCII text without a word of each cannot match, which rules out most
            texts without a search.
    """

    pattern: regex.Pattern[str]
    read: _Reader
    needs: Sequence[Set[str]]


class _Words(NamedTuple):
    """Word classes of the languages that separate words, or of those that do not."""

    steps: Mapping[str, int]
    steps_after: Mapping[str, int]
    units: Mapping[str, str]
    weekdays: Mapping[str, int]
    counts: Mapping[str, int]


def find_relative_dates(
    text: str, said_on: date, *, weekdays: bool = False, is_question: bool = False
) -> list[DateMention]:
    """Return the dates that a text names relative to the day of its utterance, in order.

    Args:
        weekdays: include bare weekdays; their readings are the last one and the next.
        is_question: include phrases that are definite only in a question: "at the weekend",
            "in spring", "on the 10th", "the last three weeks".
    """
    words = _words_in(text)
    if not _may_name_time(text, words):
        return []
    any_script = not text.isascii()
    mentions = [
        mention
        for form in _grammar(weekdays, is_question)
        if any_script or not any(map(words.isdisjoint, form.needs))
        for match in form.pattern.finditer(text)
        if (mention := form.read(match, said_on)) and not text.startswith(" of ", mention.end)
    ]  # "the last week of March"
    return without_overlaps(text, mentions) if len(mentions) > 1 else mentions


def may_name_time(text: str) -> bool:
    """Return whether a text has a digit or a time word, without which it names no date."""
    return _may_name_time(text, _words_in(text))


def _may_name_time(text: str, words: Set[str]) -> bool:
    spaced, unspaced = _time_words()
    if not spaced.isdisjoint(words):
        return True
    return not text.isascii() and any(word in text for word in unspaced)


def _words_in(text: str) -> set[str]:
    if text.isascii():
        return {*_ASCII_WORD.findall(text.lower())}
    return {word.lower() for word in _WORD.findall(text)}


def _longest_words(phrases: Iterable[str]) -> frozenset[str]:
    """Return one word of each phrase; a text without that word cannot contain the phrase."""
    return frozenset(max(_WORD.findall(phrase), key=len) for phrase in phrases)


@cache
def _time_words() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return a word of each time name and phrase, and separately those of unspaced scripts."""
    spaced = {*_DIGITS}
    unspaced: dict[str, None] = {"年": None, "月": None, "日": None, "号": None}
    for lex in lexicons():
        phrases = (
            *chain.from_iterable(lex.relative_times.values()),
            *chain.from_iterable(lex.units.values()),
            *" ".join((*lex.weekdays, *lex.months)).split(),
        )
        if lex.unspaced or lex.language == "korean":
            unspaced.update(dict.fromkeys(phrases))
        else:
            spaced |= _longest_words(phrases)
    return frozenset(spaced), tuple(unspaced)


@cache
def season_words() -> frozenset[str]:
    """Return the names of the seasons in all languages."""
    every = lexicons()
    return frozenset(form for lex in every for name in SEASONS for form in lex.units.get(name, ()))


@cache
def _grammar(weekdays: bool, is_question: bool) -> Sequence[_Form]:
    """Return the phrase patterns, the most precise first, built on first use."""
    every = lexicons()
    spaced = [lex for lex in every if not lex.unspaced and lex.units]
    unspaced = [lex for lex in every if lex.unspaced and lex.units]
    forms = [*_fixed_words(every)]
    for languages, bound, gap in ((spaced, r"\b", GAP), (unspaced, "", r"\s?的?")):
        words = _words(languages)
        forms.append(_counted(languages, words, bound))
        if is_question:
            forms += _asked(words, bound, gap)
        forms.append(_stepped(words, bound, gap, weekdays, is_question))
    return forms


def _words(languages: Iterable[Lexicon]) -> _Words:
    steps: dict[str, int] = {}
    after: dict[str, int] = {}
    units: dict[str, str] = {}
    weekdays: dict[str, int] = {}
    counts: dict[str, int] = {}
    for lex in languages:
        steps |= {word: int(step) for step, words in lex.steps.items() for word in words}
        after |= {word: int(step) for step, words in lex.steps_after.items() for word in words}
        units |= {form: unit for unit, forms in lex.units.items() for form in forms}
        least = 1 if lex.unspaced else _SHORTEST
        for number, names in enumerate(lex.weekdays):
            weekdays |= {name: number for name in names.split() if len(name) >= least}
        counts |= dict.fromkeys(lex.articles, 1) | {**lex.vague_numbers}
        counts |= {word: n for word, n in lex.numbers.items() if n <= _COUNT_UP_TO}
    return _Words(steps, after, units, weekdays, counts)


def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(f"(?i){pattern}")


def any_of(words: Iterable[str]) -> str:
    """Return a pattern that matches any of these words, the longest first."""
    longest = sorted({*words}, key=lambda word: (-len(word), word))
    return f"(?:{'|'.join(map(regex.escape, longest)) or '(?!)'})"


# -- fixed words -----------------------------------------------------------------------------------


def _fixed_words(every: Iterable[Lexicon]) -> Iterator[_Form]:
    """Yield the patterns of fixed phrases; "day after tomorrow" comes before "tomorrow"."""
    phrases: dict[str, list[str]] = {}
    not_after: dict[str, list[str]] = {}
    for lex in every:
        for key, forms in lex.relative_times.items():
            bound = "" if lex.unspaced else r"\b"
            phrases.setdefault(key, []).extend(f"{bound}{form}{bound}" for form in forms)
        for form in lex.relative_times.get("day 1", ()):
            not_after.setdefault(rf"\b{form}\b", []).extend(lex.not_tomorrow_after)
    for key in sorted(phrases, key=_priority):
        unit, offset = key.split()
        bounded = dict.fromkeys(
            rf"(?<!{any_of(before)} ){form}" if (before := not_after.get(form)) else form
            for form in phrases[key]
        )
        yield _Form(
            _compiled("|".join(bounded)),
            _at(unit, int(offset)),
            [_longest_words(form.replace(r"\b", " ") for form in phrases[key])],
        )


def _priority(key: str) -> tuple[int, int, int]:
    unit, offset = key.split()
    return ("day", "week", "month", "year").index(unit), -abs(int(offset)), int(offset)


def _at(unit: str, offset: int) -> _Reader:
    return lambda match, day: _mention(match, period_of(unit, shift_day(day, unit, offset)))


# -- steps -----------------------------------------------------------------------------------------


def _stepped(words: _Words, bound: str, gap: str, weekdays: bool, is_question: bool) -> _Form:
    """Return the form of "last week", "la semana pasada", "last Friday", and of bare names."""
    step, after = any_of(words.steps), any_of(words.steps_after)
    name = any_of([*words.units, *words.weekdays])

    def read(match: _Match, today: date) -> DateMention | None:
        word, before, behind = match["w"].lower(), match["s"], match["t"]
        weekday = words.weekdays.get(word)
        if before or behind:
            by = words.steps[before.lower()] if before else words.steps_after[behind.lower()]
            if weekday is None:
                return _step_unit(match, words.units[word], by, today)
            return _step_weekday(match, weekday, by, today, of_week=not bound)
        start = match.start("w")
        if weekday is not None and weekdays:
            days = _last_and_next(today, (weekday - today.weekday()) % 7)
            return DateMention(start, match.end("w"), weekday=weekday, readings=days)
        if not is_question or weekday is not None:
            return None
        certain = match["y"] or not bound or _ON.search(match.string, max(0, start - _REACH), start)
        return _bare(match, words.units[word], today) if certain else None

    lead = _ARTICLE if bound else ""
    pattern = (
        rf"{lead}{bound}(?:(?P<s>{step}){gap})?(?P<w>{name})(?:{gap}(?:(?P<t>{after})|"
        rf"(?P<y>(?:19|20)\d\d)))?{bound}"
    )
    needs = [_longest_words([*words.units, *words.weekdays])]
    if not (weekdays or is_question):
        needs.append(_longest_words([*words.steps, *words.steps_after]))
    return _Form(_compiled(pattern), read, needs)


def _bare(match: _Match, unit: str, today: date) -> DateMention | None:
    """Return "at the weekend", "in spring" or "summer 2021"; None for any other unit."""
    if unit == "weekend":
        days: tuple[Period, ...] = _last_and_next(today, (5 - today.weekday()) % 7, 2)
    elif unit in SEASONS:
        until = date(int(match["y"]), 12, 31) if match["y"] else today
        days = (season_of(SEASONS.index(unit), until, 0),)
    else:
        return None
    end = match.end() if match["y"] else match.end("w")
    return DateMention(match.start("w"), end, readings=days)


def _last_and_next(today: date, ahead: int, days: int = 1) -> tuple[Period, Period]:
    """Return the days of the previous week, and of the one starting ``ahead`` days from now."""
    coming, length = today + timedelta(days=ahead), timedelta(days=days - 1)
    last = coming - timedelta(days=7)
    return (last, last + length), (coming, coming + length)


def _step_unit(match: _Match, unit: str, step: int, today: date) -> DateMention:
    if unit == "weekend":
        saturday = period_of("week", today)[0] + timedelta(days=5 + 7 * step)
        weekend = (saturday, saturday + timedelta(days=1))
        if today.weekday() >= 5:  # on a Sunday, "last weekend" may be this one
            shift = timedelta(days=7)
            shifted = (weekend[0] - step * shift, weekend[1] - step * shift)
            return _mention(match, None, readings=(weekend, shifted) if step else (weekend,))
        return _mention(match, weekend)
    if unit in SEASONS:
        number = SEASONS.index(unit)
        return _mention(match, season_of(number, today, step))
    return _mention(match, period_of(unit, shift_day(today, unit, step)))


def _step_weekday(
    match: _Match, weekday: int, step: int, today: date, *, of_week: bool
) -> DateMention:
    """Return the day of "last Friday", which may be this week's or the previous one's.

    Args:
        of_week: the phrase refers to the calendar week: "上周二".
    """
    monday = today - timedelta(days=today.weekday())
    if of_week or not step:
        day = monday + timedelta(days=weekday + 7 * step)
        return _mention(match, (day, day), weekday=weekday)
    near = today + timedelta(days=step * ((step * (weekday - today.weekday()) - 1) % 7 + 1))
    if not monday <= near <= monday + timedelta(days=6):
        return _mention(match, (near, near), weekday=weekday)
    far = near + timedelta(days=7 * step)
    return _mention(match, None, weekday=weekday, readings=((near, near), (far, far)))


# -- counts ----------------------------------------------------------------------------------------


def _counted(languages: Iterable[Lexicon], words: _Words, bound: str) -> _Form:
    """Return the form of "three weeks ago" and "in two days"."""
    counted = [form for form, unit in words.units.items() if unit in _COUNTABLE]
    units, space = any_of(counted), " " if bound else r"\s?"
    ago = {side for lex in languages for side in (*lex.ago_after, *lex.ago_before)}
    after = any_of(side for lex in languages for side in (*lex.ago_after, *lex.ahead_after))
    before = any_of(side for lex in languages for side in (*lex.ago_before, *lex.ahead_before))
    sides = ago.union(*((*lex.ahead_after, *lex.ahead_before) for lex in languages))

    def read(match: _Match, today: date) -> DateMention | None:
        side = (match["a"] or match["b"] or "").lower()
        if not side:
            return None
        return _count(match, words, -1 if side in ago else 1, today)

    many = rf"(?:(?:a|the|einem) )?(?P<n>\d{{1,3}}|{any_of(words.counts)}){space}(?P<u>{units})"
    pattern = rf"{bound}(?:(?P<b>{before}){space})?{many}(?:{space}(?P<a>{after}))?{bound}(?! of\b)"
    return _Form(_compiled(pattern), read, [_longest_words(counted), _longest_words(sides)])


_COUNTABLE: Final = ("day", "week", "month", "year")


def _number(match: _Match, words: _Words) -> int:
    return int(match["n"]) if match["n"].isdigit() else words.counts[match["n"].lower()]


def _count(match: _Match, words: _Words, sign: int, today: date) -> DateMention:
    unit = words.units[match["u"].lower()]
    try:
        day = shift_day(today, unit, sign * _number(match, words))
        around = (day - timedelta(days=3), day + timedelta(days=3))
    except (OverflowError, ValueError):
        return _mention(match, None)
    if unit == "week":
        return DateMention(match.start(), match.end(), span=around, approximate_day=day)
    return _mention(match, period_of(unit, day))


# -- questions -------------------------------------------------------------------------------------


def _asked(words: _Words, bound: str, gap: str) -> Iterator[_Form]:
    """Yield the forms of "the last three weeks" and "on the 10th"."""
    counted = [form for form, unit in words.units.items() if unit in _COUNTABLE]
    earlier = [word for word, step in {**words.steps, **words.steps_after}.items() if step < 0]
    units, past = any_of(counted), any_of(earlier)
    count = rf"(?P<n>\d{{1,3}}|{any_of(words.counts)})"

    def lasting(match: _Match, today: date) -> DateMention:
        days = _DAYS[words.units[match["u"].lower()]] * _number(match, words)
        return _mention(match, (today - timedelta(days=min(days, _MAX_DAYS)), today))

    def day(match: _Match, today: date) -> DateMention | None:
        for back in range(12):
            with suppress(ValueError):
                nth = shift_day(today, "month", -back).replace(day=int(match["n"]))
                if nth <= today:
                    return _mention(match, (nth, nth))
        return None

    yield _Form(
        _compiled(rf"{bound}(?:{past}{gap}{count}|{count}{gap}{past}){gap}(?P<u>{units}){bound}"),
        lasting,
        [_longest_words(counted), _longest_words(earlier)],
    )
    nth, needs = (_NTH, _DIGITS) if bound else (r"(?<![月\d])(?P<n>\d{1,2})[号日]", {*"号日"})
    yield _Form(_compiled(nth), day, [needs])


def _mention(
    match: _Match,
    span: Period | None,
    *,
    weekday: int | None = None,
    readings: tuple[Period, ...] = (),
) -> DateMention:
    return DateMention(match.start(), match.end(), span=span, weekday=weekday, readings=readings)
