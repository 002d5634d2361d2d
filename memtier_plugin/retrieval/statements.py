"""Read what a message states, and which signs of a change it has.  Pure.

A short message is one statement, a long one as many as it has sentences; questions state nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import takewhile
from typing import Final, Literal, NamedTuple

from memtier_plugin.core.fast_init import fast_init
from memtier_plugin.text.grammar import common_words, irregular_verbs
from memtier_plugin.text.languages import detect_language
from memtier_plugin.text.lexicon import LANGUAGES, Words, lexicon, lexicons, words_of
from memtier_plugin.text.phrases import Words as Phrases
from memtier_plugin.text.phrases import phrase_end
from memtier_plugin.text.tokenizer import Tokenizer
from memtier_plugin.text.traits import opens_imperative

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
_OPENS: Final = re.compile(r"[.!?。！？:]")  # after it a capital is no sign of a name
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


class Word(NamedTuple):
    """A word of a statement by its stem."""

    stem: str
    kind: WordKind

    @property
    def is_content(self) -> bool:
        """True if it is no function word."""
        return self.kind != "function"

    @property
    def is_unspaced(self) -> bool:
        """True for a pair of letters of a script that does not separate words."""
        return _WIDE.match(self.stem) is not None


@fast_init
@dataclass(frozen=True, slots=True)
class Statement:
    """What one sentence says, or a short message as a whole.

    Attributes:
        words: all of them, in order; ``content`` the stems that are no function words.
        numbers: of these, as they are written.
        negated: whether it denies something.
        own: whether it speaks of its speaker ("I live"), ``possessive`` of what is theirs.
        cues: whether it plans or supposes ("unsettled"), or has a word of change or of an end.
        is_open: whether it opens with what is not settled ("if", "maybe"), quotes somebody, or
            tells somebody what to do, which is not done by that.
    """

    text: str
    words: tuple[Word, ...]
    content: frozenset[str]
    numbers: frozenset[str]
    negated: bool
    own: bool
    possessive: bool
    cues: frozenset[CueClass]
    is_open: bool


def statements(text: str) -> tuple[Statement, ...]:
    """Return what a message states: as a whole where it is short, else sentence by sentence.

    Questions are left out.
    """
    return tuple([_statement(part) for part in _stating(text[:_MAX_CHARS])[:_MAX_STATEMENTS]])


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
def _statement(text: str) -> Statement:
    words = tuple(_read_words(text))
    tokens = frozenset(_TOKEN.findall(text.casefold()))
    own, possessive, negations = _classes()
    wide = not text.isascii() and _WIDE.search(text) is not None
    return Statement(
        text,
        words,
        frozenset([word.stem for word in words if word.is_content]),
        frozenset([word.stem for word in words if word.kind == "number"]),
        negated=not tokens.isdisjoint(negations) or (wide and _has_any(text, _wide(negations))),
        own=not tokens.isdisjoint(own) or (wide and _has_any(text, _wide(own))),
        possessive=not tokens.isdisjoint(possessive),
        cues=find_cues(text),
        is_open="unsettled" in find_cues(" ".join(_TOKEN.findall(text)[:_OPENING]))
        or _QUOTED.search(text) is not None
        or _is_order(Phrases.of(text, detect_language(text) or "english")),
    )


def _is_order(words: Phrases) -> bool:
    """Tell whether words open with what somebody is told to do, not with a subject like a verb.

    A verb right behind a noun or two has them as its subject: "Test results are in S3".
    """
    if not opens_imperative(words):
        return False
    function, verbs = _function_words(words.language), lexicon(words.language).copulas
    if words.language == "english":
        verbs |= irregular_verbs().past
    subject = list(takewhile(lambda word: word in verbs or word not in function, words.words[1:3]))
    return verbs.isdisjoint(subject)


def _read_words(text: str) -> Iterator[Word]:
    """Yield the words of a text, pairs of letters where words are not separated."""
    function = _function_words(detect_language(text) or "english")
    opens = True
    for match in _WORD.finditer(text):
        written = match[0]
        if _WIDE.match(written):
            yield from (Word(written[i : i + 2], "name") for i in range(max(1, len(written) - 1)))
            continue
        folded = written.casefold()
        kind: WordKind = "word"
        if any(map(str.isdigit, written)):
            kind = "name" if _IDENTIFIER.match(folded) else "number"
        elif folded in function or len(folded) == 1 or folded in _cue_words():
            kind = "function"
        elif (written[0].isupper() and not opens) or folded in _calendar():
            kind = "name"
        stems = () if kind == "number" else _STEMS.words(folded)
        stem = stems[0] if stems else folded
        yield Word(stem, "number" if kind == "name" and stem in _calendar() else kind)
        opens = _OPENS.match(text, match.end()) is not None


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


@cache
def _classes() -> tuple[Words, Words, Words]:
    """Return the words of the first person, of what is its own, and of denial."""
    return (
        words_of("first_person") - words_of("first_plural"),
        words_of("first_possessive") - words_of("first_plural"),
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
