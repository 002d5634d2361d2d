"""Find phrases of closed classes in a sentence.  Pure.

A star in a phrase stands for up to three words.  Where words are not separated, a phrase is found
wherever its letters stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from memtier_plugin.text.lexicon import lexicon

_GAP: Final = 3  # words that a star may stand for
_TOKEN: Final = re.compile(r"\w+")
_PART: Final = re.compile(r"\w+|\*")


class Token(NamedTuple):
    """A word in lower case, and where it stands."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Words:
    """A text as the words of one language."""

    text: str
    language: str
    tokens: tuple[Token, ...]
    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str, language: str) -> Words:
        """Split a text into its words."""
        tokens = tuple(Token(m[0].casefold(), *m.span()) for m in _TOKEN.finditer(text))
        return cls(text, language, tokens, tuple(token.text for token in tokens))

    @property
    def unspaced(self) -> bool:
        """Whether the language does not separate words."""
        return lexicon(self.language).unspaced

    def has(self, name: str) -> bool:
        """Return whether a phrase of a class stands anywhere."""
        return self.find(name) is not None

    def has_word(self, name: str) -> bool:
        """Return whether a word of a class stands anywhere."""
        members = getattr(lexicon(self.language), name)
        if self.unspaced:
            return any(word in self.text for word in members)
        return not members.isdisjoint(self.words)

    def opens(self, name: str) -> int | None:
        """Return where in the text a phrase of a class ends that opens it; None without one."""
        if self.unspaced:
            phrases = sorted(getattr(lexicon(self.language), name), key=len, reverse=True)
            start = len(self.text) - len(self.text.lstrip())
            hits = (len(p) for p in phrases if self.text.startswith(p, start))
            size = next(hits, 0)
            return start + size if size else None
        end = self._match(name, 0)
        return None if end is None else self.tokens[end - 1].end

    def find(self, name: str, start: int = 0) -> tuple[int, int] | None:
        """Return where in the text the first phrase of a class stands, from a position on."""
        if self.unspaced:
            places = [
                (at, -len(phrase))
                for phrase in getattr(lexicon(self.language), name)
                if (at := self.text.find(phrase, start)) >= 0
            ]
            at, size = min(places, default=(-1, 0))
            return (at, at - size) if at >= 0 else None
        for index, token in enumerate(self.tokens):
            if token.start >= start and (end := self._match(name, index)) is not None:
                return token.start, self.tokens[end - 1].end
        return None

    def _match(self, name: str, index: int) -> int | None:
        """Return after which word the longest phrase ends that begins with a word."""
        if index >= len(self.words):
            return None
        rests = _by_first(self.language, name).get(self.words[index], ())
        ends = (phrase_end(self.words, index + 1, rest) for rest in rests)
        return max((end for end in ends if end is not None), default=None)


def without_since_now(value: str, language: str) -> str:
    """Return a value without a word beside it that says that it is so by now: "Zed now"."""
    text = value.strip()
    for phrase in sorted(lexicon(language).since_now, key=len, reverse=True):
        if lexicon(language).unspaced:
            shorter = text.removeprefix(phrase).removesuffix(phrase).strip()
        else:
            edge = re.escape(phrase)
            shorter = re.sub(rf"(?i)[\s,]+\b{edge}\Z", "", text)
            shorter = re.sub(rf"(?i)\A{edge}\b[\s,]+", "", shorter).strip()
        if shorter:
            text = shorter
    return text


@cache
def _by_first(language: str, name: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Map the first word of each phrase of a class to the rest of the phrase."""
    phrases: Iterable[str] = getattr(lexicon(language), name)
    by_first: dict[str, list[tuple[str, ...]]] = {}
    for phrase in phrases:
        first, *rest = _PART.findall(phrase.casefold())
        by_first.setdefault(first, []).append(tuple(rest))
    return {first: tuple(rests) for first, rests in by_first.items()}


def phrase_end(tokens: Sequence[str], index: int, rest: Sequence[str]) -> int | None:
    """Return after which token the words of a phrase end, its stars filled in; None without it."""
    for nth, word in enumerate(rest):
        if word == "*":
            after = rest[nth + 1 :]
            ends = (phrase_end(tokens, index + skip, after) for skip in range(_GAP + 1))
            return next((end for end in ends if end is not None), None)
        if index >= len(tokens) or tokens[index] != word:
            return None
        index += 1
    return index if index <= len(tokens) else None
