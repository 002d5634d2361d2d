"""Judge by logistic models whether a text is told in confidence, and whether it is sensitive.

The features of a sentence are its words, their meanings (`Lexicon.discretion`: to tell, to know,
other people, illness) and which of them stand close together.  A text scores as high as its
highest sentence.  `scripts/fit_discretion.py` fits the models.
"""

from __future__ import annotations

import json
from array import array
from base64 import b85decode
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final
from zlib import crc32

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.lexicon import lexicons

MODEL: Final = Path(__file__).parent / "data" / "discretion.json"
POINTING: Final = ("before", "after", "whole")
LEAST_NORM: Final = 8  # features: in a shorter sentence each does not count for more

_BEGINNING: Final = 5  # letters of a word that tell it from others
_REACH: Final = 4  # words between two that belong together
_LONGEST: Final = 6  # letters of a word in a script without spaces
_SENTENCE: Final = regex.compile(r"(?:[^.:!?。：！？;；\n]|:(?!\s))+[?？]?")
_UNSPACED: Final = r"[\p{Han}\p{Hiragana}\p{Katakana}]"
_WORD: Final = regex.compile(  # an address, a path, a name with dots: its parts are no words
    rf"(?P<name>(?<![\w-])[\w-]++(?:://|[./@\\])[\w./@:\\-]*\w)|(?P<unspaced>{_UNSPACED}+)|\p{{N}}+|[?？:：,，€$£%]|[\p{{L}}\p{{M}}--{_UNSPACED}]+",
    regex.VERSION1,
)


def score(kind: str, text: str) -> float:
    """Return the odds, as a logarithm, that a text is of a kind.

    Args:
        kind: ``confided``; ``before``, ``after`` or ``whole``: what a confidence points at besides
            itself; ``sensitive``.
    """
    weights, bias = _model()[kind]
    best = 0.0
    for number, part in enumerate(parts(kind, text)):
        names = features(part)
        total = sum(weights.get(name, 0.0) for name in names)
        total /= max(len(names), LEAST_NORM) ** 0.5
        best = max(best, total) if number else total
    return best + bias


def parts(kind: str, text: str) -> list[str]:
    """Return what is judged by itself, in lower case: a sentence, or all, so that others count."""
    if kind in POINTING:
        return [text.casefold()]
    return [part for part in _SENTENCE.findall(text.casefold()) if not part.isspace()]


@lru_cache(64)  # each model asks for the same
def features(sentence: str) -> frozenset[int]:
    """Return the features of a sentence, as numbers of 24 bits."""
    return frozenset(crc32(name.encode()) >> 8 for name in _names([*_words(sentence)]))


def _words(sentence: str) -> Iterator[str]:
    for match in _WORD.finditer(sentence):
        word = match[0]
        if match["unspaced"]:
            yield from _split(word)
        else:
            yield "/" if match["name"] else "0" if word.isdecimal() else word


def _split(run: str) -> Iterator[str]:
    """Yield the longest known words of a script without spaces, and letters between them."""
    start = 0
    while start < len(run):
        sizes = range(min(_LONGEST, len(run) - start), 1, -1)
        size = next((n for n in sizes if _meanings(run[start : start + n])), 1)
        yield run[start : start + size]
        start += size


def _names(words: Sequence[str]) -> Iterator[str]:
    yield from words
    starts = ["^", *(word[:_BEGINNING] for word in words), "$"]
    yield from (f"{start}*" for start in starts)
    yield from (f"{start} {later}" for start, later in pairwise(starts))
    meanings = [("^",), *map(_meanings, words), ("$",)]
    for here, firsts in enumerate(meanings):
        for first in firsts:
            yield f"#{first}"
            for later in meanings[here + 1 : here + 1 + _REACH]:
                yield from (f"#{first} {second}" for second in later)


@lru_cache(8192)
def _meanings(word: str) -> tuple[str, ...]:
    """Return the meanings of a word in the languages that have it."""
    beginnings = (f"{word[:size]}*" for size in range(1, len(word) + 1))
    table = _table()
    return tuple(
        sorted({meaning for name in (word, *beginnings) for meaning in table.get(name, ())})
    )


@cache
def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for language in lexicons():
        for meaning, words in language.discretion.items():
            for word in words:
                table[word] = (*table.get(word, ()), meaning)
    return table


@cache
def _model() -> dict[str, tuple[dict[int, float], float]]:
    """Return the weights of each kind's features, and its bias."""
    model: dict[str, tuple[dict[int, float], float]] = {}
    for kind, fitted in json.loads(MODEL.read_bytes()).items():
        names, weights = b85decode(fitted["features"]), array("b", b85decode(fitted["weights"]))
        numbers = (int.from_bytes(names[at : at + 3], "big") for at in range(0, len(names), 3))
        pairs = zip(numbers, weights, strict=True)
        model[kind] = {n: weight * fitted["scale"] for n, weight in pairs}, fitted["bias"]
    return model
