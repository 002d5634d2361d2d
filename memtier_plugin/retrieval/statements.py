"""Read what messages state, find signs of a change, and compare two statements.  Pure.

A short message is one statement, a long one as many as it has sentences; questions state nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from itertools import pairwise, takewhile
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from memtier_plugin.text.languages import detect_language, iter_sentences
from memtier_plugin.text.lexicon import (
    LANGUAGES,
    WordSet,
    common_words,
    irregular_verbs,
    lexicon,
    lexicons,
    words_of,
)
from memtier_plugin.text.phrases import Words, opens_imperative, phrase_end
from memtier_plugin.text.tokenizer import Tokenizer

SHORT_CHARS: Final = 140  # characters up to which a message is one statement
_MAX_SENTENCE: Final = 400  # characters; longer ones are code, tables and lists
_MAX_CHARS: Final = 4_000  # of a message that are looked at
_MAX_STATEMENTS: Final = 8  # of a message
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
    """A sentence, or a short message as a whole; its parts are parsed when first needed."""

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
        """The stems of its content words."""
        return frozenset([word.stem for word in self.words if word.kind != "function"])

    @cached_property
    def numbers(self) -> frozenset[str]:
        """Its numbers, as they are written."""
        return frozenset([word.stem for word in self.words if word.kind == "number"])

    @cached_property
    def is_unspaced(self) -> bool:
        """Whether it has a word in a script without spaces between words."""
        return not self.text.isascii() and _WIDE.search(self.text) is not None

    @cached_property
    def negated(self) -> bool:
        """Whether it denies something."""
        return self._has_any(_classes().negations)

    @cached_property
    def of_speaker(self) -> bool:
        """Whether it speaks of its speaker: "I live"."""
        return self._has_any(_classes().first_person)

    @cached_property
    def possessive(self) -> bool:
        """Whether it speaks of what belongs to its speaker: "my flat"."""
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
        return _is_order(Words.of(self.text, self.language or "english"))

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of all its words; they do not depend on its language."""
        words = _WORD.findall(self.text)
        stems = frozenset(map(_stem, words))
        if self.text.isascii():
            return stems
        return stems.union(*(_pairs(word) for word in words if _is_unspaced(word)))

    @cached_property
    def _tokens(self) -> frozenset[str]:
        return frozenset(_TOKEN.findall(self.text.casefold()))

    def _has_any(self, words: WordSet) -> bool:
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
    parts = map(str.strip, iter_sentences(text))
    stating = [part for part in parts if not part.endswith(_QUESTION_MARKS)]
    if len(text) <= SHORT_CHARS:
        return (" ".join(stating),) if stating else ()
    return [part for part in stating if len(part) <= _MAX_SENTENCE]


def _is_order(words: Words) -> bool:
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
    is_number = any(map(str.isdigit, folded)) and not _IDENTIFIER.match(folded)
    return folded if is_number else next(iter(_STEMS.words(folded)), folded)


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
def _function_words(language: str) -> WordSet:
    """Return the function words of a language; of one without a list those of all."""
    if language in LANGUAGES:
        return common_words(language) | lexicon(language).stop_words
    return frozenset[str]().union(*(common_words(words.language) for words in lexicons()))


@cache
def _cue_words() -> WordSet:
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
def _calendar() -> WordSet:
    """Return the stems of the names of months and weekdays."""
    names = {
        name for words in lexicons() for month in words.months for name in month.split()
    }.union(*(words.weekday_forms for words in lexicons()))
    return frozenset(stem for name in names if len(name) > 2 for stem in _STEMS.words(name))


class _Classes(NamedTuple):
    """The words of the first person, its possessives, and denials, over all languages."""

    first_person: WordSet
    possessive: WordSet
    negations: WordSet


@cache
def _classes() -> _Classes:
    plural = words_of("first_plural")
    return _Classes(
        words_of("first_person") - plural,
        words_of("first_possessive") - plural,
        words_of("negations"),
    )


@cache
def _wide(words: WordSet) -> tuple[str, ...]:
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
        known = common_words(words.language)
        for name, attribute in _CUE_CLASSES.items():
            for phrase in getattr(words, attribute):
                first, *rest = re.findall(r"\w+|\*", phrase)
                foreign = not rest and words.language != "english"
                foreign = foreign and common[first] > (first in known)
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


# -- Compare two statements: which words they share, and what takes the place of what

LEAST_SHARED: Final = 0.25  # of the older statement's content words, for two to be a pair


class Rarity(Struct, frozen=True):
    """How rare words are among so many items, by how many of them have each."""

    frequencies: Mapping[str, int]
    items: int

    def of(self, words: Iterable[str]) -> dict[str, float]:
        """Return from 0 (in every item) to 1 (in no other), by word."""
        count, most = self.frequencies.get, math.log(self.items + 2)
        return {word: max(0.0, 1 - math.log(count(word, 0) + 1) / most) for word in words}


def pair_features(older: Statement, later: Statement, rarity: Rarity) -> dict[str, float]:
    """Return what speaks for a later statement's replacing an older one."""
    old, new, count = older.words, later.words, rarity.frequencies.get
    shared = older.content & later.content - _of_other_units(older, later)
    fresh = later.content - shared
    rare = rarity.of(older.content | later.content)
    weight = math.fsum(rare[word] for word in shared)
    prefix, suffix = common_ends(old, new)
    middle_old, middle_new = old[prefix : len(old) - suffix], new[prefix : len(new) - suffix]
    kinds_old, kinds_new = (
        {w.kind for w in words} - {"function"} for words in (middle_old, middle_new)
    )
    ends = [stem for stem, kind in old if kind != "function"]
    fresh_at = [at for at, (stem, kind) in enumerate(new) if kind != "function" and stem in fresh]
    return {
        "shared_of_old": weight / (math.fsum(rare[word] for word in older.content) or 1.0),
        "shared_of_new": weight / (math.fsum(rare[word] for word in later.content) or 1.0),
        "rarest_shared": max((rare[word] for word in shared), default=0.0),
        "lines": min((math.log1p(count(word, 0)) for word in shared), default=0.0),
        "overlap": len(shared) / max(1, len(older.content)),
        "new_number": float(bool(older.numbers) and bool(later.numbers - older.numbers)),
        "longer": math.log((1 + len(later.content)) / (1 + len(older.content))),
        "prefix_words": min(4, len(content_stems(old[:prefix]))),
        "frame": (prefix + suffix) / max(1, min(len(old), len(new))),
        "middle_shared": min(3, len(content_stems(middle_old) & content_stems(middle_new))),
        "numbers_swapped": float("number" in kinds_old and "number" in kinds_new),
        "names_swapped": float("name" in kinds_old and "name" in kinds_new),
        "only_numbers_swapped": float(kinds_old == kinds_new == {"number"}),
        "swaps": min(3, len(_find_swaps(older, later))),
        "value_kept": float(bool(ends) and ends[-1] in shared),
        "fresh": min(8, len(fresh)),
        "before_first_fresh": min(4, len(content_stems(new[: fresh_at[0]]))) if fresh_at else 5,
        "rarest_fresh": max((rare[word] for word in fresh), default=0.0),
        "changes": float("change" in later.cues),
        "ends": float("ending" in later.cues),
    }


def _of_other_units(older: Statement, later: Statement) -> frozenset[str]:
    """Return the numbers that count one thing in the older and another in the newer statement."""
    if older.numbers.isdisjoint(later.numbers):
        return older.numbers & later.numbers
    units = [
        {
            number.stem: unit.stem
            for number, unit in pairwise(words)
            if number.kind == "number" and unit.kind != "number"
        }
        for words in (older.words, later.words)
    ]
    both = units[0].keys() & units[1].keys()
    return frozenset([number for number in both if units[0][number] != units[1][number]])


def content_stems(words: Sequence[StatementWord]) -> frozenset[str]:
    """Return the stems of the words that are no function words."""
    return frozenset([stem for stem, kind in words if kind != "function"])


def common_ends(old: Sequence[StatementWord], new: Sequence[StatementWord]) -> tuple[int, int]:
    """Return how many words two statements have in common at their beginning, and at their end."""
    most = min(len(old), len(new))
    prefix = 0
    while prefix < most and old[prefix].stem == new[prefix].stem:
        prefix += 1
    suffix = 0
    while suffix < most - prefix and old[-1 - suffix].stem == new[-1 - suffix].stem:
        suffix += 1
    return prefix, suffix


def _find_swaps(older: Statement, later: Statement) -> list[set[str]]:
    """Return the kinds of words at each place where two statements diverge after the same word."""
    both = older.stems & later.stems

    def places(words: Sequence[StatementWord]) -> dict[str, set[str]]:
        anchors, anchor = dict[str, set[str]](), ""
        for stem, kind in words:
            if stem in both:
                anchor = stem
            elif kind != "function":
                anchors.setdefault(anchor, set()).add(kind)
        return anchors

    first, second = places(older.words), places(later.words)
    return [first[anchor] | second[anchor] for anchor in first if anchor in second]


def is_of_another(older: Statement, later: Statement) -> bool:
    """Return whether two statements give the same attribute of two different subjects.

    Either the older is about its speaker and the later about somebody close to them ("I have a
    dog", "my brother has no dog"), or only the subject and the value differ, with the other words
    in the same order: "my mother's birthday is on 5 June", "my father's birthday is on 9 July".
    """
    if older.of_speaker and later.possessive and not (later.of_speaker or older.possessive):
        return True
    if later.is_unspaced:
        return False  # pairs of letters are no words
    both = older.stems & later.stems
    old, new = ([stem for stem, _ in each.words if stem in both] for each in (older, later))
    if old != new:
        return False
    swaps = _find_swaps(older, later)
    return len(swaps) > 1 and any(swap != {"number"} for swap in swaps)
