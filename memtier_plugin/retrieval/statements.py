"""Read what a message states, and which signs of a change it has.  Pure.

A short message is one statement, a long one as many as it has sentences; questions state nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from itertools import takewhile
from typing import Final, Literal, NamedTuple

from memtier_plugin.text.languages import detect_language
from memtier_plugin.text.lexicon import (
    LANGUAGES,
    Words,
    common_words,
    irregular_verbs,
    lexicon,
    lexicons,
    words_of,
)
from memtier_plugin.text.phrases import Words as Phrases
from memtier_plugin.text.phrases import opens_imperative, phrase_end
from memtier_plugin.text.tokenizer import Tokenizer

SHORT_CHARS: Final = 140  # characters up to which a message is one statement
_MAX_SENTENCE: Final = 400  # characters; longer ones are code, tables and lists
_MAX_CHARS: Final = 4_000  # of a message that are looked at
_MAX_STATEMENTS: Final = 8  # of a message
_SENTENCE_END: Final = re.compile(r"[.!?;]\s+|[。！？；]|\n+")
_TOKEN: Final = re.compile(r"\w+")
_WIDE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_WORD: Final = re.compile(
    r"\d+(?:[.,:/-]\d+)*|[\u3040-\u30ff\u3400-\u9fff]+|[^\W\d_]+(?:[-_.][\w-]+)*\d*|\w+"
)
_IDENTIFIER: Final = re.compile(r"(?!v\d)[^\W\d_]")  # "m6", "eu-west-1"; "v2.1" is a version
_OPENS: Final = frozenset(".!?。！？:")  # after it a capital is no sign of a name
_STEMS: Final = Tokenizer()
_QUOTED: Final = re.compile(
    r"[\"“„«][^\"”“»„«\s]*+\s[^\"”“»„«]*+[\"”“»]"
)  # more than a word or a name
_OPENING: Final = 3  # words that tell whether a statement only supposes
_QUESTION_MARKS: Final = ("?", "？", "吗", "か。", "吗。")
CueClass = Literal["change", "present", "ending", "unsettled"]
_CUE_CLASSES: Final[Mapping[CueClass, str]] = {
    "change": "change_cues",
    "present": "present_cues",
    "ending": "ending_cues",
    "unsettled": "unsettled",
}


WordKind = Literal["number", "name", "word", "function"]  # a day of the calendar is a number


class StatementWord(NamedTuple):
    """A word of a statement by its stem."""

    stem: str
    kind: WordKind


class Statement:
    """What one sentence says, or a short message as a whole; each part is read when asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    def has_any(self, stems: Collection[str]) -> bool:
        """Return whether a content word of it is among these stems."""
        # Most have none of them, which is told without knowing the language.
        return not (self.stems.isdisjoint(stems) or self.content.isdisjoint(stems))

    @cached_property
    def language(self) -> str:
        return detect_language(self.text) or ""

    @cached_property
    def words(self) -> tuple[StatementWord, ...]:
        """All of them, in order."""
        return tuple(_read_words(self.text, self.language or "english"))

    @cached_property
    def content(self) -> frozenset[str]:
        """The stems of those that are no function words."""
        return frozenset([word.stem for word in self.words if word.kind != "function"])

    @cached_property
    def numbers(self) -> frozenset[str]:
        """Those of its words, as they are written."""
        return frozenset([word.stem for word in self.words if word.kind == "number"])

    @cached_property
    def is_unspaced(self) -> bool:
        """Whether it has a word of a script that does not separate words."""
        return not self.text.isascii() and _WIDE.search(self.text) is not None

    @cached_property
    def negated(self) -> bool:
        """Whether it denies something."""
        return self._has_any(_classes().negations)

    @cached_property
    def own(self) -> bool:
        """Whether it speaks of its speaker: "I live"."""
        return self._has_any(_classes().own)

    @cached_property
    def possessive(self) -> bool:
        """Whether it speaks of what is its speaker's: "my flat"."""
        return not self._tokens.isdisjoint(_classes().possessive)

    @cached_property
    def cues(self) -> frozenset[CueClass]:
        """Whether it plans or supposes ("unsettled"), or has a word of change or of an end."""
        return find_cues(self.text)

    @cached_property
    def is_open(self) -> bool:
        """Whether it opens with something unsettled, quotes somebody, or gives an order.

        What somebody is told to do is not done by that.
        """
        opening = " ".join(_TOKEN.findall(self.text)[:_OPENING])
        if "unsettled" in find_cues(opening) or _QUOTED.search(self.text):
            return True
        return _is_order(Phrases.of(self.text, self.language or "english"))

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of all its words, for which its language need not be known."""
        words = _WORD.findall(self.text)
        stems = frozenset(map(_stem, words))
        if self.text.isascii():
            return stems
        return stems.union(*(_pairs(word) for word in words if _is_unspaced(word)))

    @cached_property
    def _tokens(self) -> frozenset[str]:
        return frozenset(_TOKEN.findall(self.text.casefold()))

    def _has_any(self, words: Words) -> bool:
        if not self._tokens.isdisjoint(words):
            return True
        if not self.is_unspaced:
            return False
        folded = self.text.casefold()
        return any(map(folded.__contains__, _wide(words)))


def statements(text: str) -> tuple[Statement, ...]:
    """Return what a message states: as a whole where it is short, else sentence by sentence.

    Questions are left out.
    """
    return _statements(text[:_MAX_CHARS])


@lru_cache(4096)
def _statements(text: str) -> tuple[Statement, ...]:
    return tuple(map(Statement, _stating(text)[:_MAX_STATEMENTS]))


def _stating(text: str) -> Sequence[str]:
    """Return the sentences of a text that are no questions, of a short one all in one."""
    stating = [part for part in _sentences(text) if not part.endswith(_QUESTION_MARKS)]
    if len(text) <= SHORT_CHARS:
        return (" ".join(stating),) if stating else ()
    return [part for part in stating if len(part) <= _MAX_SENTENCE]


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(text):
        if part := text[start : end.end()].strip():
            yield part
        start = end.end()
    if part := text[start:].strip():
        yield part


def _is_order(words: Phrases) -> bool:
    """Return whether words open with what somebody is told to do, not with a subject like a verb.

    A verb right behind a noun or two has them as its subject: "Test results are in S3".
    """
    if not opens_imperative(words):
        return False
    function, verbs = _function_words(words.language), lexicon(words.language).copulas
    if words.language == "english":
        verbs |= irregular_verbs().past
    subject = list(takewhile(lambda word: word in verbs or word not in function, words.words[1:3]))
    return verbs.isdisjoint(subject)


def _read_words(text: str, language: str) -> Iterator[StatementWord]:
    """Yield the words of a text, pairs of letters where words are not separated."""
    opens, spaced = True, text.isascii()
    for match in _WORD.finditer(text):
        written = match[0]
        if not spaced and _is_unspaced(written):
            yield from (StatementWord(pair, "name") for pair in _pairs(written))
            continue
        yield _word(written, language, opens)
        opens = text[match.end() : match.end() + 1] in _OPENS


def _is_unspaced(written: str) -> bool:
    return not written.isascii() and _WIDE.match(written) is not None


def _pairs(written: str) -> list[str]:
    return [written[i : i + 2] for i in range(max(1, len(written) - 1))]


@lru_cache(16_384)
def _stem(written: str) -> str:
    """Return the stem of a word; a number as it is."""
    folded = written.casefold()
    return folded if _is_number(folded) else next(iter(_STEMS.words(folded)), folded)


def _is_number(folded: str) -> bool:
    return any(map(str.isdigit, folded)) and not _IDENTIFIER.match(folded)


@lru_cache(16_384)
def _word(written: str, language: str, opens: bool) -> StatementWord:
    """Return a word as it is written; a capital makes it a name where it opens no sentence."""
    folded, stem = written.casefold(), _stem(written)
    if any(map(str.isdigit, folded)):
        if not _IDENTIFIER.match(folded):
            return StatementWord(stem, "number")
    else:
        if folded in _function_words(language) or len(folded) == 1 or folded in _cue_words():
            return StatementWord(stem, "function")
        if not ((written[0].isupper() and not opens) or folded in _calendar()):
            return StatementWord(stem, "word")
    return StatementWord(stem, "number" if stem in _calendar() else "name")


@cache
def _function_words(language: str) -> Words:
    """Return the function words of a language; of one without a list those of all."""
    if language in LANGUAGES:
        return common_words(language) | lexicon(language).stop_words
    return frozenset[str]().union(*(common_words(words.language) for words in lexicons()))


@cache
def _cue_words() -> Words:
    """Return the words of change: they tell neither what a statement is about nor a value of it."""
    names: tuple[CueClass, ...] = ("change", "present", "ending")
    return frozenset(
        word
        for words in lexicons()
        for name in names
        for phrase in getattr(words, _CUE_CLASSES[name])
        if not words.unspaced
        for word in _TOKEN.findall(phrase)
    )


@cache
def _calendar() -> Words:
    """Return the stems of the names of months and weekdays."""
    names = {
        name for words in lexicons() for month in words.months for name in month.split()
    }.union(*(words.weekday_forms for words in lexicons()))
    return frozenset(stem for name in names if len(name) > 2 for stem in _STEMS.words(name))


class _Classes(NamedTuple):
    """The words of the first person, of what is its own, and of denial."""

    own: Words
    possessive: Words
    negations: Words


@cache
def _classes() -> _Classes:
    plural = words_of("first_plural")
    return _Classes(
        words_of("first_person") - plural,
        words_of("first_possessive") - plural,
        words_of("negations"),
    )


@cache
def _wide(words: Words) -> tuple[str, ...]:
    return tuple(sorted(word for word in words if _WIDE.match(word)))


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
