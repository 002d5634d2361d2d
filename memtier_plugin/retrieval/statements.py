"""Read what a message states, and which signs of a change it has.  Pure.

A short message is one statement, a long one as many as it has sentences; questions state nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Literal, NamedTuple

from memtier_plugin.core.fast_init import fast_init
from memtier_plugin.text.grammar import common_words
from memtier_plugin.text.languages import detect_language
from memtier_plugin.text.lexicon import lexicons, words_of
from memtier_plugin.text.phrases import phrase_end
from memtier_plugin.text.tokenizer import Tokenizer

SHORT_CHARS: Final = 140  # characters up to which a message is one statement
_MAX_SENTENCE: Final = 400  # characters; longer ones are code, tables and lists
_MAX_CHARS: Final = 4_000  # of a message that are looked at
_MAX_STATEMENTS: Final = 8  # of a message
_SENTENCE_END: Final = re.compile(r"[.!?;]\s+|[。！？；]|\n+")
_TOKEN: Final = re.compile(r"\w+")
_NUMBER: Final = re.compile(r"\d+(?:[.,:/-]\d+)*")
_WIDE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_NAME: Final = re.compile(r"(?<![.!?。]\s)(?<!^)(?<!\w)[A-ZÄÖÜÀÉÈ][\w-]+")
_QUESTION_MARKS: Final = ("?", "？", "吗", "か。", "吗。")
CueClass = Literal["change", "present", "ending", "unsettled", "former"]
_CUE_CLASSES: Final[Mapping[CueClass, str]] = {
    "change": "change_cues",
    "present": "present_cues",
    "ending": "ending_cues",
    "unsettled": "unsettled",
    "former": "former_cues",
}


@fast_init
@dataclass(frozen=True, slots=True)
class Statement:
    """What one sentence says, or a short message as a whole.

    Attributes:
        order, terms: its index words; ``content`` those that are not themselves signs of a change.
        names: the index words of names and of what is written with digits.
        numbers: as they are written.
        cues: the classes of change that it has a word of.
        own: whether it speaks of its speaker ("I live"), ``possessive`` of what is theirs.
    """

    text: str
    order: tuple[str, ...]
    terms: frozenset[str]
    content: frozenset[str]
    names: frozenset[str]
    numbers: frozenset[str]
    cues: frozenset[CueClass]
    own: bool
    possessive: bool

    @property
    def may_change(self) -> bool:
        """True if it may replace an older one: it is neither a plan nor of the past."""
        if "unsettled" in self.cues:
            return False
        by_now = bool(self.cues & {"change", "ending", "present"})
        return by_now or (bool(self.numbers) and "former" not in self.cues)

    @property
    def states_change(self) -> bool:
        """True if it says that something is otherwise, or no more."""
        return "change" in self.cues or "ending" in self.cues


def statements(
    text: str, tokenizer: Tokenizer, about: Collection[str] | None = None
) -> tuple[Statement, ...]:
    """Return what a message states: as a whole where it is short, else sentence by sentence.

    Questions are left out.

    Args:
        about: only messages, and of a long message only sentences, in which one of these is found.
    """
    if about is not None and not _has_any(text[:_MAX_CHARS], about):
        return ()
    stating = _stating(text[:_MAX_CHARS])
    if about is not None and len(text) > SHORT_CHARS:
        stating = tuple(part for part in stating if _has_any(part, about))
    return tuple([_statement(part, tokenizer) for part in stating[:_MAX_STATEMENTS]])


@lru_cache(1024)
def _stating(text: str) -> tuple[str, ...]:
    """Return the sentences of a text that are no questions, of a short one all in one."""
    stating = [part for part in _sentences(text) if not part.endswith(_QUESTION_MARKS)]
    if len(text) <= SHORT_CHARS:
        return (" ".join(stating),) if stating else ()
    return tuple(part for part in stating if len(part) <= _MAX_SENTENCE)


def _has_any(text: str, stems: Iterable[str]) -> bool:
    folded = text.casefold()
    return any(map(folded.__contains__, stems))


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(text):
        if part := text[start : end.end()].strip():
            yield part
        start = end.end()
    if part := text[start:].strip():
        yield part


@lru_cache(4096)
def _statement(text: str, tokenizer: Tokenizer) -> Statement:
    tokens = _TOKEN.findall(text.casefold())
    numbers = frozenset(_NUMBER.findall(text))
    named = " ".join([*_NAME.findall(text), *numbers])
    present = set(tokens)
    order = tuple(tokenizer.words(text))
    return Statement(
        text,
        order,
        frozenset(order),
        frozenset(order) - _cue_terms(tokenizer),
        frozenset(tokenizer.words(named)),
        numbers,
        frozenset(_find_cues(text, tokens)),
        own=not present.isdisjoint(_first_person()),
        possessive=not present.isdisjoint(_first_possessive()),
    )


@cache
def _cue_terms(tokenizer: Tokenizer) -> frozenset[str]:
    """Return the index words of all signs of a change that are one word."""
    attributes = [_CUE_CLASSES[name] for name in ("change", "present", "ending")]
    words = {
        phrase
        for language in lexicons()
        for attribute in attributes
        for phrase in getattr(language, attribute)
        if not language.unspaced and " " not in phrase
    }
    return frozenset(tokenizer.words(" ".join(sorted(words))))


@cache
def _first_person() -> frozenset[str]:
    return words_of("first_person") - words_of("first_plural")


@cache
def _first_possessive() -> frozenset[str]:
    return words_of("first_possessive")


class _Cue(NamedTuple):
    """A phrase after its first word; of ``language`` alone where another one has that word."""

    rest: tuple[str, ...]
    name: CueClass
    language: str


@cache
def _spaced_cues() -> Mapping[str, tuple[_Cue, ...]]:
    """Return the phrases of all languages that separate words, by their first word."""
    spaced = [words for words in lexicons() if not words.unspaced]
    common = Counter(word for words in spaced for word in common_words(words.language))
    by_first: dict[str, list[_Cue]] = {}
    for words in spaced:
        own = common_words(words.language)
        for name, attribute in _CUE_CLASSES.items():
            for phrase in getattr(words, attribute):
                first, *rest = re.findall(r"\w+|\*", phrase)
                foreign = not rest and words.language != "english"
                foreign = foreign and common[first] > (first in own)
                cue = _Cue(tuple(rest), name, words.language if foreign else "")
                by_first.setdefault(first, []).append(cue)
    return {first: tuple(dict.fromkeys(cues)) for first, cues in by_first.items()}


@cache
def _unspaced_cues() -> Mapping[CueClass, re.Pattern[str]]:
    patterns: dict[CueClass, re.Pattern[str]] = {}
    for name, attribute in _CUE_CLASSES.items():
        phrases = {p for words in lexicons() if words.unspaced for p in getattr(words, attribute)}
        longest_first = sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
        patterns[name] = re.compile("|".join(map(re.escape, longest_first)))
    return patterns


def find_cues(text: str) -> frozenset[CueClass]:
    """Return the classes of change that a text has a word of."""
    return frozenset(_find_cues(text, _TOKEN.findall(text.casefold())))


def _find_cues(text: str, tokens: Sequence[str]) -> Iterator[CueClass]:
    by_first = _spaced_cues()
    languages: list[str | None] = []  # the text's, once it is needed
    for index, token in enumerate(tokens):
        if token not in by_first:
            continue
        for cue in by_first[token]:
            if cue.rest and phrase_end(tokens, index + 1, cue.rest) is None:
                continue
            if cue.language and not languages:
                languages.append(detect_language(text))
            if not cue.language or cue.language in languages:
                yield cue.name
    if not text.isascii() and _WIDE.search(text):
        for name, pattern in _unspaced_cues().items():
            if pattern.search(text):
                yield name
