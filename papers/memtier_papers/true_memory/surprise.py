"""Measure how much of a line is new.  Pure.

After True Memory (predictive surprise): a line's fingerprints are its numbers, names, dates, the
words around its events, and its definitions; the score counts how many of them are new.  The words
that mark events and definitions are those of the lexicons.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache, lru_cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.lexicon import WordSet, lexicons, words_of
from memtier_plugin.text.phrases import only_acknowledges

LEAST: Final = 0.05
_MAX_CHARS: Final = 4_000  # of a line
_LONGER: Final = ((300, 0.15), (150, 0.10), (80, 0.05))  # characters, and the bonus for that length
_KNOWN_LINES: Final = 1_000  # lines whose fingerprints are cached
_NEAR: Final = 40  # characters around a digit that may belong to its date
_DIGITS: Final = regex.compile(r"\d+")
_AROUND: Final = 2  # words on either side of an event
_NAME: Final = regex.compile(r"\p{Lu}[\p{L}\p{M}'’-]*(?:\s\p{Lu}[\p{L}\p{M}'’-]*)*+")
_NUMBER: Final = regex.compile(r"[$€£¥]?\d[\d.,]*\d[kKmMbB%]?|[$€£¥]?\d[kKmMbB%]?")
_WORD: Final = regex.compile(r"[^\s.,;:!?()\"“”]+(?:[.,]\d+[^\s.,;:!?()\"“”]*)*")


@lru_cache(maxsize=_KNOWN_LINES)
def fingerprints(text: str) -> frozenset[str]:
    """Return a line's fingerprints, by kind: `num:`, `entity:`, `date:`, `event:` and `def:`."""
    text = text[:_MAX_CHARS]
    prints: set[str] = set()
    without_dates = text
    for match in _find_dates(text):
        prints.add(f"date:{match[0].lower()}")
        start, end = match.span()
        without_dates = without_dates[:start] + " " * (end - start) + without_dates[end:]
    prints |= {f"num:{match[0].lower()}" for match in _NUMBER.finditer(without_dates)}
    names = {" ".join(match[0].lower().split()) for match in _NAME.finditer(text)}
    prints |= {f"entity:{name}" for name in names if name not in _words("function_words")}
    words = [match[0].lower() for match in _WORD.finditer(text)]
    events, copulas = _words("event_verbs"), _words("copulas")
    for index, word in enumerate(words):
        if word in events:
            around = words[max(0, index - _AROUND) : index + _AROUND + 1]
            prints.add(f"event:{' '.join(around)}")
        defined = words[index - 1 : index + 2] if index and word in copulas else []
        if len(defined) == 3 and _words("function_words").isdisjoint((defined[0], defined[2])):
            prints.add(f"def:{' '.join(defined)}")
    return frozenset(prints)


def line_surprise(text: str, is_new: Callable[[str], bool]) -> float:
    """Return how surprising a line is, from `LEAST` to 1.

    Args:
        is_new: returns whether no earlier line has a fingerprint.
    """
    if len(text.strip()) < 4 or only_acknowledges(text):
        return LEAST
    prints = fingerprints(text)
    new = {mark for mark in prints if is_new(mark)}
    return surprise(
        len(new),
        len(prints),
        len(text),
        _count(prints, "num:"),
        _count(prints, "date:"),
        _count(new, "event:"),
    )


def surprise(new: int, total: int, length: int, numbers: int, dates: int, new_events: int) -> float:
    """Return the surprise of a line by its counts (True Memory, predictive layer).

    Args:
        new: how many of the ``total`` fingerprints no earlier line has.
        length: characters.
        numbers, dates: fingerprints of these kinds.
        new_events: event fingerprints among the new ones.
    """
    if not total:
        return 0.1 if length < 30 else 0.2 if length < 80 else 0.3
    if not new:
        return 0.1
    longer = next((bonus for least, bonus in _LONGER if length > least), 0.0)
    figures = min(0.15, 0.05 * (numbers + dates))
    events = min(0.10, 0.05 * new_events)
    value = 0.6 * new / total + longer + figures + events
    return max(LEAST, min(1.0, value))


def _count(prints: Collection[str], kind: str) -> int:
    return sum(mark.startswith(kind) for mark in prints)


@cache
def _words(name: str) -> WordSet:
    return words_of(name)


def _find_dates(text: str) -> Iterator[regex.Match[str]]:
    """Yield the dates of a text.  A date has a digit, so only the text near one is searched."""
    start = end = 0
    for digit in _DIGITS.finditer(text):
        if digit.start() - _NEAR > end:
            yield from _date_pattern().finditer(text, start, end)
            start = digit.start() - _NEAR
        end = digit.end() + _NEAR
    yield from _date_pattern().finditer(text, start, end)


@cache
def _date_pattern() -> regex.Pattern[str]:
    names = sorted({n for lexicon in lexicons() for month in lexicon.months for n in month.split()})
    month = rf"(?:{'|'.join(map(regex.escape, names))})"
    day, year = r"\d{1,2}(?:st|nd|rd|th|\.)?", r"(?:19|20)\d\d"
    return regex.compile(
        rf"""(?ix)\b(?:{month}\.?\s+{day}(?:,?\s+{year})?
        |{day}\s+(?:de\s+)?{month}(?:\s+(?:de\s+)?{year})?
        |{month}\s+{year}|{year}-\d\d-\d\d)\b"""
    )
