"""Patterns of words, as the data files write them, and where they stand in a text.  Pure.

A pattern is a phrase whose parts are separated by spaces:

- ``tell|told``: one of these words; ``any_of_this`` is several words in a row;
- ``{this}``: one of the words of that name in the language's ``pattern_words``;
- ``!me|us``: a word, but none of these;
- ``*``: up to three words that deny nothing (in a script without spaces, any six letters);
- ``strictly?``: may be missing;
- ``,``: the end of a clause; ``^``, at the beginning of a pattern: the beginning of one.

Words are compared in lower case; apostrophes and hyphens separate them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.lexicon import Lexicon, lexicons

_TOKEN: Final = regex.compile(
    r"(?P<word>[\p{Han}\p{Hiragana}\p{Katakana}]|[\p{L}\p{M}\p{N}--[\p{Han}\p{Hiragana}\p{Katakana}]]+)"
    r"|(?P<stop>(?<=\s)-+(?=\s)|[^\p{L}\p{M}\p{N}\s'’‘ʼ\"“”„«»\-]+|\n)",
    regex.VERSION1,
)
_STOP: Final = ","
_GAP: Final = 3  # words that a star stands for
_UNSPACED_GAP: Final = 6  # letters, in a script without spaces


class Span(NamedTuple):
    """A pattern's place in a text: the numbers of its first word, and of the one after it."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A pattern of a class of words; ``opening`` where it must begin a clause."""

    name: str
    opening: bool
    expression: str


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a text in lower case, with a comma wherever a clause ends."""

    tokens: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Words:
        """Split a text."""
        tokens = [_STOP]
        for match in _TOKEN.finditer(text.casefold()):
            if match["word"]:
                tokens.append(match["word"])
            elif tokens[-1] != _STOP:
                tokens.append(_STOP)
        if tokens[-1] != _STOP:
            tokens.append(_STOP)
        return cls(tuple(tokens))

    def outside(self, spans: Iterable[Span]) -> list[str]:
        """Return the words that stand in none of these places."""
        inside = {number for span in spans for number in range(span.start, span.end)}
        return [
            token
            for number, token in enumerate(self.tokens)
            if token != _STOP and number not in inside
        ]


class PatternTable:
    """Patterns under names, found by the word that begins them: linear in the text."""

    def __init__(self, patterns: Iterable[tuple[str, Lexicon, Iterable[str]]]) -> None:
        """Take for each name, or part of it, a language and its patterns."""
        by_first: dict[str, dict[_Pattern, None]] = {}
        for name, language, written in patterns:
            for pattern in written:
                parts = pattern.casefold().split()
                opening = parts[0] == "^"
                elements = [_element(part, language) for part in parts[opening:]]
                compiled = _Pattern(
                    name, opening, "".join(element.expression for element in elements)
                )
                for first in _first_words(elements):
                    by_first.setdefault(first, {})[compiled] = None
        self._by_first = {first: tuple(some) for first, some in by_first.items()}

    def find(self, words: Words) -> Iterator[Span]:
        """Yield the places of all patterns."""
        tokens = words.tokens
        if self._by_first.keys().isdisjoint(tokens):
            return
        text, starts, ends = f" {' '.join(tokens)}", list[int](), dict[int, int]()
        position = 0
        for number, token in enumerate(tokens):
            starts.append(position)
            position += 1 + len(token)
            ends[position] = number + 1
        for number, token in enumerate(tokens):
            for pattern in self._by_first.get(token, ()):
                if pattern.opening and tokens[number - 1] != _STOP:
                    continue
                if match := _compiled(pattern.expression).match(text, starts[number]):
                    yield Span(pattern.name, number, ends[match.end()])


class _Element(NamedTuple):
    """A part of a pattern: an expression with its leading space, the words it may begin with."""

    expression: str
    firsts: frozenset[str]
    optional: bool


@cache
def _element(part: str, language: Lexicon) -> _Element:
    if part == "*":
        if language.unspaced:
            return _Element(rf"(?: (?!,)\S+){{0,{_UNSPACED_GAP}}}?", frozenset(), True)
        denials = "|".join(sorted(map(regex.escape, language.negations | {"t"})))  # "don't"
        word = rf" (?!(?:,|{denials})(?: |$))\S+"
        return _Element(rf"(?:{word}){{0,{_GAP}}}?", frozenset(), True)
    if part.startswith("!"):
        others = "|".join(_alternatives(part[1:], language))
        return _Element(rf" (?!(?:,|{others})(?: |$))\S+", frozenset(), False)
    optional = part.endswith("?")
    alternatives = _alternatives(part.removesuffix("?"), language)
    firsts = frozenset(alternative.split()[0].replace("\\", "") for alternative in alternatives)
    expression = f" (?:{'|'.join(sorted(alternatives, key=len, reverse=True))})(?= |$)"
    return _Element(f"(?:{expression})?" if optional else expression, firsts, optional)


def _alternatives(part: str, language: Lexicon) -> list[str]:
    """Return the alternatives of a part as expressions, one space between two words."""
    written: list[str] = []
    for alternative in part.split("|"):
        if alternative.startswith("{"):
            written += language.pattern_words[alternative.strip("{}")]
        else:
            written.append(alternative)
    split = (
        [match["word"] for match in _TOKEN.finditer(words.replace("_", " ")) if match["word"]]
        for words in written
    )
    return [" ".join(map(regex.escape, words or [_STOP])) for words in split]


def _first_words(elements: list[_Element]) -> frozenset[str]:
    firsts = frozenset[str]()
    for element in elements:
        firsts |= element.firsts
        if not element.optional:
            return firsts
    return firsts


@cache
def _compiled(expression: str) -> regex.Pattern[str]:
    return regex.compile(expression)


def pattern_table(classes: Mapping[str, str]) -> PatternTable:
    """Return the patterns of these classes of words, each under a name, of all languages.

    Args:
        classes: the attribute of `Lexicon` by name.
    """
    return PatternTable(
        (name, language, getattr(language, attribute))
        for name, attribute in classes.items()
        for language in lexicons()
    )
