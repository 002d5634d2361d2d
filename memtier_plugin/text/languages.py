"""Detect the language and scripts of a text, and its sentence boundaries.  Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.lexicon import (
    FOREIGN_NEGATIONS,
    LANGUAGES,
    WordSet,
    common_words,
    irregular_verbs,
    lexicon,
    words_of,
)

# -- Detect the language of a text and its sentence boundaries.  Pure

SENTENCE_REACH: Final = 1_000  # characters searched on each side of a span for sentence boundaries
_MIN_HITS: Final = 2  # a single common word may belong to many languages
_MIN_SHARE: Final = 6  # at least one word in this many must be common

_KANA: Final = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_HAN: Final = regex.compile(r"\p{Han}")
_LETTER: Final = regex.compile(r"\p{L}")
_LATIN: Final = regex.compile(r"[\p{Latin}'’-]+")
_ASCII: Final = re.compile(r"[a-z'-]+")
_CYRILLIC: Final = regex.compile(r"\p{Cyrillic}+")
_NOT_RUSSIAN: Final = regex.compile("[іїєґўјљњћђџ]")
_NEXT_WORD: Final = regex.compile(r"\w*")
_STOP: Final = regex.compile(
    r"[.!?…]+[\"'”’)*_]*(?:\s+|\Z)|[。！？]+[」』”]?|\n\s*\n|\n(?=\s*(?:[-*•>#]|\d+[.)])\s)|\n"
)
_COMPLETE: Final = regex.compile(r"[.!?:;…。！？)]\s*$")
_BREAK: Final = regex.compile(r"[\s(]")  # before the last word


@cache
def _latin_languages() -> tuple[str, ...]:
    return tuple(name for name in LANGUAGES if lexicon(name).foreign_letters)


@cache
def _common(language: str) -> WordSet:
    """Return the words that identify a language."""
    words = common_words(language) | lexicon(language).hints
    return words | irregular_verbs().lemmas.keys() if language == "english" else words


@lru_cache(1024)
def detect_language(text: str) -> str | None:
    """Return the language of a text by its script and common words; None if undecided."""
    if text.isascii():  # true of most texts: no other script, and all letters are Latin
        return _likeliest(_split(_ASCII.findall(text.casefold())), ascii_only=True)
    if len(_KANA.findall(text)) >= 2:
        return "japanese"
    letters = len(_LETTER.findall(text))
    if 2 * len(_HAN.findall(text)) > letters:
        return "chinese"
    folded = text.casefold()
    cyrillic = _CYRILLIC.findall(folded)
    if cyrillic and 2 * sum(map(len, cyrillic)) > letters:
        common = common_words("russian")
        russian = not _NOT_RUSSIAN.search(folded) and any(word in common for word in cyrillic)
        return "russian" if russian else None
    words = _split(_LATIN.findall(folded.replace("’", "'")))
    return _likeliest(words) if 2 * sum(map(len, words)) >= letters else None


def _split(words: Iterable[str]) -> list[str]:
    return [part for word in words for part in word.split("'") if part]


def _likeliest(words: Sequence[str], *, ascii_only: bool = False) -> str | None:
    """Return the likeliest language of words in Latin script; English wins a tie."""
    scores = _scores(words, ascii_only)
    best = scores.most_common(2)
    if not best or best[0][1] < _MIN_HITS:
        return _by_pronoun(words, scores)
    if len(best) > 1 and best[0][1] == best[1][1]:
        return "english" if scores.get("english") == best[0][1] else None
    return best[0][0]


def _scores(words: Sequence[str], ascii_only: bool) -> Counter[str]:
    """Count the common words of each language, minus words with letters it does not use."""
    scores: Counter[str] = Counter()
    distinct = {*words}
    for name in _latin_languages():
        common = distinct & _common(name)
        if len(common) < (1 if name == "english" and ascii_only else _MIN_HITS):
            continue
        hits = len([word for word in words if word in common])
        if _MIN_SHARE * hits >= len(words):
            scores[name] = hits if ascii_only else hits - _count_foreign(words, name)
    return scores


def _count_foreign(words: Iterable[str], language: str) -> int:
    letters = {*lexicon(language).foreign_letters}
    return sum(not letters.isdisjoint(word) for word in words)


def _by_pronoun(words: Sequence[str], scores: Mapping[str, int]) -> str | None:
    """Return the language of a short text by a pronoun unique to it."""
    if any(word in FOREIGN_NEGATIONS for word in words):
        return None
    named = {
        name for name in _latin_languages() if any(w in lexicon(name).first_person for w in words)
    }
    if len(named) == 1 and (name := named.pop()) and scores.get(name, 0) >= 0:
        return name if len(words) <= 6 or scores.get(name, 0) else None
    return "english" if scores.get("english", 0) == 1 else None


def detect_language_in_context(text: str, context: str) -> str | None:
    """Return the language of a short text, using the speaker's other words.

    The text must contain a word of that language, or bilingual speakers would be misjudged.
    """
    language = detect_language(context)
    if language is None:
        return None
    words = regex.findall(r"\w+", text.casefold())
    return language if any(word in _common(language) for word in words) else None


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text with their punctuation, without empty ones."""
    return [*iter_sentences(text)]


def iter_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text lazily; see `split_sentences`."""
    return (text[start:end] for start, end in iter_sentence_spans(text))


def iter_sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of a text's sentences, including the space after their punctuation."""
    first = 0
    for stop in _STOP.finditer(text):
        if _ends_sentence(text, stop):
            if text[first : stop.end()].strip():
                yield first, stop.end()
            first = stop.end()
    if text[first:].strip():
        yield first, len(text)


def find_sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the bounds of the sentence, or the sentences, that contain a span.

    A doubtful full stop does not end a sentence: a longer sentence can only make a claim harder to
    accept.
    """
    low, high = max(0, start - SENTENCE_REACH), min(len(text), end + SENTENCE_REACH)
    first, last = low, high
    for stop in _STOP.finditer(text, low, high):
        if not _ends_sentence(text, stop):
            continue
        if stop.end() <= start:
            first = stop.end()
        elif stop.end() >= end:
            last = stop.end()
            break
    while first < start and text[first].isspace():
        first += 1
    while last > end and text[last - 1].isspace():
        last -= 1
    return first, last


@cache
def _month_names() -> WordSet:
    return frozenset(
        name
        for words in map(lexicon, LANGUAGES)
        for names in words.months
        for name in names.split()
    )


def _ends_sentence(text: str, stop: regex.Match[str]) -> bool:
    mark = stop[0].strip()
    after = text[stop.end() : stop.end() + 1]
    before = text[max(0, stop.start() - 40) : stop.start()]
    if not mark and stop[0].count("\n") < 2:  # a line break ends a complete sentence
        complete = _COMPLETE.search(before)
        return bool(complete) or after in "-*•>#" or after.isdigit()
    if after.islower():
        return False
    if mark.startswith(".") and not mark.startswith(".."):
        word = _BREAK.split(before)[-1].casefold()
        abbreviations = words_of("abbreviations")
        if word in abbreviations or (len(word) == 1 and word.isalpha() and word != "i"):
            return False
        if word.isdigit() and _NEXT_WORD.match(text, stop.end())[0].casefold() in _month_names():
            return False  # "12. Mai"
    return True


# -- Detect which scripts a text is written in.  Pure

MAX_FOREIGN: Final = 0.2  # the largest share of a text's letters in other scripts
_ANY_LETTER: Final = regex.compile(r"\p{L}")


def is_written_in(text: str, scripts: Sequence[str]) -> bool:
    """Return whether nearly all letters of a text belong to these scripts.

    A foreign term in a sentence is tolerated, and anything but letters is ignored.

    Args:
        scripts: Unicode names of scripts ("Latin", "Han", ...).
    """
    if text.isascii() and "Latin" in scripts:  # true of most texts
        return True
    foreign = len(_foreign_letters(tuple(scripts)).findall(text))
    return foreign == 0 or foreign < MAX_FOREIGN * len(_ANY_LETTER.findall(text))


@cache
def _foreign_letters(scripts: tuple[str, ...]) -> regex.Pattern[str]:
    known = "".join(rf"\p{{{script}}}" for script in scripts)
    return regex.compile(rf"[\p{{L}}--[{known}]]", regex.V1)
