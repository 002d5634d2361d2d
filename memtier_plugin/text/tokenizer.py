"""Normalise text, and split it into words and n-grams for index, queries and credit."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache
from itertools import chain, islice
from sys import intern  # as most words and n-grams come from many chunks
from typing import Any, Final, TypeVar

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.lexicon import lexicon

# -- Split text into words and n-grams: the same way for index, queries and credit assignment
#
# Words are Unicode words with their marks, NFKC and casefolded, without the language's function
# words, stemmed by Snowball; identifiers are kept both whole and in parts; Han, Kana and Hangul,
# which do not separate words, give overlapping pairs within one script, and each Han character by
# itself. N-grams are trigrams of each word with its edges marked and diacritics folded, so that a
# typo, an inflection or a part of a compound still matches.

# Increase this when the same text would yield other words: existing indexes are then rebuilt.
TOKENIZER_VERSION: Final = 2
MAX_WORDS: Final = 20_000  # of one text; the rest stays in the ledger unindexed
MAX_CHARS: Final = 8 * MAX_WORDS  # of one text used for n-grams
_CACHED: Final = 1 << 15  # words in a generation of a cache
LONGEST_CACHED: Final = 40  # characters; longer words (paths, hashes) seldom recur
T = TypeVar("T")

_CJK = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\u30fc"
_WORD = r"[\p{L}\p{M}\p{N}]"
# Words joined by the characters that identifiers, paths, versions and names contain.
_CHUNK: Final = regex.compile(rf"{_WORD}+(?:[-_./:@+'&]+{_WORD}+)*")
_STEP: Final = 4096  # characters normalised before another thread may run
# A letter that never composes with the one before it, so that a text may be cut there.
_CUT: Final = regex.compile(r"[\p{L}--[\u1160-\u11ff\ud7b0-\ud7ff\uff9e-\uffdc]]", regex.V1)
_ASCII_CHUNK: Final = re.compile(r"[A-Za-z0-9]+(?:[-_./:@+'&]+[A-Za-z0-9]+)*")  # twice as fast
_PART: Final = regex.compile(rf"{_WORD}+")
_CJK_RUN: Final = regex.compile(rf"[{_CJK}]+")
# The parts of a run in one script; a long vowel mark belongs to the kana before it. A change of
# script usually ends a word, as particles and endings are Hiragana.
_SAME_SCRIPT: Final = regex.compile(
    r"(?P<han>\p{Han}+)|(?P<hiragana>\p{Hiragana}[\p{Hiragana}\u30fc]*)|[\p{Katakana}\u30fc]+|\p{Hangul}+"
)
# Characters that can be stemmed, with their vowel signs and points.
_LETTERS: Final = regex.compile(r"[\p{L}\p{M}]+")
# The stemmer of each script, for languages that use another one.
_SCRIPT: Final = regex.compile(
    r"(?P<russian>\p{Cyrillic})|(?P<arabic>\p{Arabic})|(?P<hindi>\p{Devanagari})"
)
_SAME_AS: Final = {"serbian": "russian", "nepali": "hindi"}  # languages in such a script
_CAMEL: Final = regex.compile(r"(?<=[\p{Ll}\p{N}])(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})")
_APOSTROPHES: Final = "\u2019\u2018\u02bc`"


class Tokenizer:
    """Splits texts into words and n-grams in one language.

    Args:
        language: a Snowball language ("english", "german", ...) or "none" for no stemming.  Words
            in Cyrillic, Arabic and Devanagari are stemmed as Russian, Arabic and Hindi, unless
            the language is one of that script.
    """

    def __init__(self, language: str = "english") -> None:
        self.language = language
        self._words_of = _analyser(language)

    @property
    def fingerprint(self) -> str:
        """The tokenizer's id in the index; only words of the same tokenizer are comparable."""
        return f"{TOKENIZER_VERSION}:{self.language}"

    def words(self, text: str) -> list[str]:
        """Return the index words in order, repetitions included."""
        return self._words(_chunks(text))

    def words_of_each(self, texts: Iterable[str]) -> list[list[str]]:
        """Return the `words` of each text."""
        return [self.words(text) for text in texts]

    def words_and_ngrams(
        self, text: str, *, speaker: str | None = None, date: datetime | None = None
    ) -> tuple[list[str], set[str]]:
        """Return `words` and `ngrams` in one pass over the text.

        The words of the speaker's name and of the date follow those of the text.
        """
        if len(text) > MAX_CHARS:
            words, grams = self.words(text), ngrams(text)
        else:
            chunks = [*_chunks(text)]
            words, grams = self._words(chunks), _grams(chunks)
        if speaker:
            words += self.words(speaker)
        if date:
            words += self.date_words(date)
        return words, grams

    def _words(self, chunks: Iterable[str]) -> list[str]:
        return [*islice(self._words_of.of_all(chunks), MAX_WORDS)]

    def date_words(self, moment: datetime) -> list[str]:
        """Return the words by which a query may name a date: year, month name and day."""
        month = lexicon("english").month_names[moment.month - 1]
        return self._words((str(moment.year), month, str(moment.day)))


class WordCache(dict[str, tuple[T, ...]]):
    """Caches a function of words in two generations; when one is full it replaces the older."""

    def __init__(self, function: Callable[[str], Iterable[T]]) -> None:
        super().__init__()
        self._function = function
        self._older: dict[str, tuple[T, ...]] = {}

    def __missing__(self, word: str) -> tuple[T, ...]:
        values = self._older.get(word)
        if values is None:
            values = tuple(self._function(word))
        if len(word) <= LONGEST_CACHED:
            if len(self) >= _CACHED:
                self._older = dict(self)
                self.clear()
            self[word] = values
        return values

    def of_all(self, words: Iterable[str]) -> Iterator[T]:
        """Yield the values of each word."""
        return chain.from_iterable(map(self.__getitem__, words))


@cache
def _analyser(language: str) -> WordCache[str]:
    """Return the cache of each chunk's index words in a language."""
    stop = lexicon("english").stop_words if language == "english" else frozenset[str]()
    stem = _stemmer(language)

    def words_of(chunk: str) -> Iterable[str]:
        if _is_plain(chunk):
            word = chunk.lower()
            return () if word in stop else (intern(stem(word)),)
        parts = (part for raw in _split(chunk) if (part := raw.casefold()))
        first = [*islice(parts, 2)]
        folded = chunk.casefold()
        words = []
        if len(first) > 1 or "'" in folded:
            if folded in stop:
                return ()
            if "'" not in folded and not _CJK_RUN.fullmatch(folded):
                words.append(folded)
        # Limited, since a text without spaces may be one chunk with very many parts.
        words += islice((part for part in chain(first, parts) if part not in stop), MAX_WORDS)
        return (intern(stem(word) if _LETTERS.fullmatch(word) else word) for word in words)

    return WordCache(words_of)


def _is_plain(chunk: str) -> bool:
    """Return whether a chunk is one ASCII word without inner capitals, and so has no parts."""
    return chunk.isascii() and chunk.isalpha() and chunk[1:].islower()


def _stemmer(language: str) -> Callable[[str], str]:
    if language == "none":
        return str
    local = threading.local()  # threads must not share a Stemmer object

    def stem(word: str) -> str:
        script = None if word.isascii() else _SCRIPT.match(word)
        name = script.lastgroup if script else language
        if name == _SAME_AS.get(language):
            name = language
        stemmer: Any = getattr(local, name, None)
        if stemmer is None:
            import Stemmer

            stemmer = Stemmer.Stemmer(name)
            setattr(local, name, stemmer)
        return str(stemmer.stemWord(word))

    return stem


def plain_words(text: str) -> list[str]:
    """Return casefolded words in order, unstemmed and with function words."""
    words: list[str] = []
    for chunk in _chunks(text):
        if chunk.isascii() and chunk.isalnum():  # one part, in most texts
            words.append(chunk.lower())
        else:
            words += [part.casefold() for part in _split(chunk, camel=False)]
    return words


def distinct_tokens(text: str) -> str:
    """Return the distinct tokens of a text, which yield the same n-grams as the text."""
    return " ".join(dict.fromkeys(text[:MAX_CHARS].split()))


def first_plain_words(text: str, count: int) -> list[str]:
    """Return the first of the `plain_words`, without splitting the rest of the text."""
    parts = (part for chunk in _iter_chunks(text) for part in _split(chunk, camel=False))
    return [part.casefold() for part in islice(parts, count)]


def ngrams(text: str) -> set[str]:
    """Return the n-grams of a text: trigrams; for Han, Kana and Hangul, characters and pairs."""
    return _grams(_chunks(text[:MAX_CHARS]))


def _grams(chunks: Iterable[str]) -> set[str]:
    return {*_GRAMS.of_all(chunks)}


def _grams_of(chunk: str) -> set[str]:
    if _is_plain(chunk):
        edged = f"_{chunk.lower()}_"
        return {edged[i : i + 3] for i in range(len(edged) - 2)}
    grams: set[str] = set()
    for part in _split(chunk, camel=False):
        word = part.casefold()
        if _CJK_RUN.fullmatch(word):
            grams.add(word)
            grams.update(word)
            continue
        folded = word
        if not word.isascii():
            marks = unicodedata.normalize("NFD", word)
            folded = "".join(c for c in marks if not unicodedata.combining(c)) or word
        edged = f"_{folded}_"
        grams.update(edged[i : i + 3] for i in range(len(edged) - 2))
    return grams


_GRAMS: Final = WordCache(lambda chunk: map(intern, _grams_of(chunk)))


def _chunks(text: str) -> Iterator[str]:
    if len(text) > MAX_CHARS:
        return _iter_chunks(text)
    if not text.isascii():
        text = _unified(text)
    return iter((_ASCII_CHUNK if text.isascii() else _CHUNK).findall(text))


def _iter_chunks(text: str) -> Iterator[str]:
    """Yield the chunks of a text lazily, which is slower if all are read."""
    text = _unified(text)
    for match in (_ASCII_CHUNK if text.isascii() else _CHUNK).finditer(text):
        yield match.group()


def _unified(text: str) -> str:
    if text.isascii():
        return text
    text = "".join(unicodedata.normalize("NFKC", piece) for piece in _pieces(text))
    for mark in _APOSTROPHES:  # far faster than a translation table
        text = text.replace(mark, "'")
    return text


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that can be normalised independently."""
    start = 0
    while cut := _CUT.search(text, start + _STEP):
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


def _split(chunk: str, *, camel: bool = True) -> Iterator[str]:
    """Yield the parts of a chunk: pieces of an identifier, pairs of an unspaced script."""
    plain = chunk.isascii() and chunk.isalnum()  # one part, in most texts
    for part in (chunk,) if plain else _PART.findall(chunk):
        if part.isascii():
            if len(part) == 1 and part in "stdm" and "'" in chunk:
                continue  # the rest of "Ann's"
            if camel and not part.islower() and not part.isupper() and not part.isdigit():
                yield from _CAMEL.sub(" ", part).split(" ")
            else:
                yield part
            continue
        end = 0
        for run in _CJK_RUN.finditer(part):
            if run.start() > end:
                yield part[end : run.start()]
            end = run.end()
            for same in _SAME_SCRIPT.finditer(run.group()):
                yield from _words_within(same.group(), same.lastgroup)
        if end < len(part):
            yield part[end:]


def _words_within(part: str, script: str | None) -> Iterator[str]:
    """Yield the pairs of an unspaced part in one script, and its one-character words.

    Many words are a single Han character; a single Hiragana is a particle or an ending.
    """
    if len(part) == 1 and script != "hiragana":
        yield part
        return
    for index in range(len(part) - 1):
        if script == "han":
            yield part[index]
        yield part[index : index + 2]
    if script == "han":
        yield part[-1]


# -- Normalise texts for comparison


def normalise(*parts: str) -> tuple[str, ...]:
    """Return parts of a fact in their compared form: casefolded, with single spaces."""
    return tuple(" ".join(part.casefold().split()) for part in parts)
