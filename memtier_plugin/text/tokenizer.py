"""The one tokenizer: what the index, the query and the attribution call a word (design 6).

Words are Unicode words with their marks, NFKC and casefolded, without the language's function
words, reduced by Snowball; identifiers are kept whole and in parts; Han, Kana and Hangul, which
do not separate words, give overlapping pairs of one script, and each Han character by itself.
N-grams are trigrams of each word with its edges marked and diacritics folded, so that a typo, an
inflection or a part of a compound still meets.
"""

from __future__ import annotations

import re
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache
from itertools import chain, islice
from typing import Any, Final

import regex

# Raise this when the same text would give other words: an index made before is then rebuilt.
TOKENIZER_VERSION: Final = 2
MAX_WORDS: Final = 20_000  # of one text; the rest is in the ledger but not in the index
_MAX_GRAMS: Final = 8 * MAX_WORDS  # characters of one text that n-grams are made of
_KEPT: Final = 1 << 15  # chunks whose words and n-grams are kept: a language repeats itself
_LONGEST_KEPT: Final = 40  # characters; longer ones (paths, hashes) seldom come again

_CJK = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\u30fc"
_WORD = r"[\p{L}\p{M}\p{N}]"
# A run of words joined by the marks that identifiers, paths, versions and names use inside.
_CHUNK: Final = regex.compile(rf"{_WORD}+(?:[-_./:@+'&]+{_WORD}+)*")
_ASCII_CHUNK: Final = re.compile(r"[A-Za-z0-9]+(?:[-_./:@+'&]+[A-Za-z0-9]+)*")  # twice as fast
_PART: Final = regex.compile(rf"{_WORD}+")
_CJK_RUN: Final = regex.compile(rf"[{_CJK}]+")
# A run's parts of one script; the mark of a long vowel belongs to the kana before it.  A change of
# script is mostly the end of a word: its particles and endings are Hiragana.
_SAME_SCRIPT: Final = regex.compile(
    r"(?P<han>\p{Han}+)|(?P<hiragana>\p{Hiragana}[\p{Hiragana}\u30fc]*)|[\p{Katakana}\u30fc]+|\p{Hangul}+"
)
# What may be stemmed, with the vowel signs and points that belong to it.
_LETTERS: Final = regex.compile(r"[\p{L}\p{M}]+")
# The stemmers of scripts that languages written in another script leave untouched.
_SCRIPT: Final = regex.compile(
    r"(?P<russian>\p{Cyrillic})|(?P<arabic>\p{Arabic})|(?P<hindi>\p{Devanagari})"
)
_SAME_AS: Final = {"serbian": "russian", "nepali": "hindi"}  # languages that share such a script
_CAMEL: Final = regex.compile(r"(?<=[\p{Ll}\p{N}])(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})")
_APOSTROPHES: Final = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "`": "'"})

# English function words: articles, pronouns, auxiliaries, prepositions, conjunctions, question
# words and the contractions of them.  A closed class of the grammar, not a list fitted to data;
# "may" is not in it, since it is a month.
_ENGLISH: Final = frozenset(
    """
    a an the this that these those i me my mine myself you your yours yourself he him his himself
    she her hers herself it its itself we us our ours ourselves they them their theirs themselves
    am is are was were be been being do does did doing done has have had having will would shall
    should can could might must of in on at by for with about against between into through
    during before after above below to from up down out off over under again then once here there
    and or but nor so yet if because as until while than too very not no only own same such both
    each any all some more most other what which who whom whose when where why how just also
    i'm i've i'll i'd you're you've you'll you'd he's he'll he'd she's she'll she'd it's it'll
    we're we've we'll we'd they're they've they'll they'd that's there's what's who's where's
    how's when's let's don't doesn't didn't isn't aren't wasn't weren't haven't hasn't hadn't
    won't wouldn't can't cannot couldn't shouldn't mustn't s t d ll m re ve
    """.split()  # noqa: SIM905
)
_MONTHS: Final = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)


class Tokenizer:
    """Words and n-grams of a text in one language.

    Args:
        language: a Snowball language ("english", "german", ...) or "none" for no stemming.  Words
            in Cyrillic, Arabic and Devanagari are stemmed as Russian, Arabic and Hindi, unless
            the language is one of that script.
    """

    def __init__(self, language: str = "english") -> None:
        self.language = language
        self._known = _analyser(language)

    @property
    def fingerprint(self) -> str:
        """What an index must have been made with to be comparable."""
        return f"{TOKENIZER_VERSION}:{self.language}"

    def words(self, text: str) -> list[str]:
        """Return the index words in order, repeated as often as they stand in the text."""
        return self._words(_chunks(text))

    def words_and_ngrams(self, text: str) -> tuple[list[str], set[str]]:
        """Return `words` and `ngrams` of a text that is gone through but once."""
        if len(text) > _MAX_GRAMS:
            return self.words(text), ngrams(text)
        chunks = [*_chunks(text)]
        return self._words(chunks), _grams(chunks)

    def _words(self, chunks: Iterable[str]) -> list[str]:
        return [*islice(chain.from_iterable(map(self._known.__getitem__, chunks)), MAX_WORDS)]

    def date_words(self, moment: datetime) -> list[str]:
        """Return the words a date is asked for by: year, month name and day of the month."""
        date = (str(moment.year), _MONTHS[moment.month - 1], str(moment.day))
        return self._words(date)


class _ChunkCache(dict[str, tuple[str, ...]]):
    """What a function gives for each short chunk, computed when it is first asked for."""

    def __init__(self, function: Callable[[str], Iterable[str]]) -> None:
        super().__init__()
        self._function = function
        self._before: dict[str, tuple[str, ...]] = {}  # what was kept before the last clearing

    def __missing__(self, chunk: str) -> tuple[str, ...]:
        found = self._before.get(chunk)
        if found is None:
            # Interned, as most words and n-grams come from many chunks.
            found = tuple(map(sys.intern, self._function(chunk)))
        if len(chunk) <= _LONGEST_KEPT:
            if len(self) >= _KEPT:
                self._before = dict(self)
                self.clear()
            self[chunk] = found
        return found


@cache
def _analyser(language: str) -> _ChunkCache:
    """Return the index words of each chunk in a language."""
    stop = _ENGLISH if language == "english" else frozenset[str]()
    stem = _stemmer(language)

    def words_of(chunk: str) -> list[str]:
        if _is_plain(chunk):
            word = chunk.lower()
            return [] if word in stop else [stem(word)]
        parts = (part for raw in _split(chunk) if (part := raw.casefold()))
        first = [*islice(parts, 2)]
        whole = chunk.casefold()
        found = []
        if len(first) > 1 or "'" in whole:
            if whole in stop:
                return []
            if "'" not in whole and not _CJK_RUN.fullmatch(whole):
                found.append(whole)
        # No more than are ever asked for: a text without spaces may be one chunk of many parts.
        found += islice((part for part in chain(first, parts) if part not in stop), MAX_WORDS)
        return [stem(word) if _LETTERS.fullmatch(word) else word for word in found]

    return _ChunkCache(words_of)


def _is_plain(chunk: str) -> bool:
    """Tell whether a chunk is one English-looking word, as most are: nothing in it to be split."""
    return chunk.isascii() and chunk.isalpha() and chunk[1:].islower()


def _stemmer(language: str) -> Callable[[str], str]:
    if language == "none":
        return str
    local = threading.local()  # a Stemmer object must not be shared by threads

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
    """Return casefolded words in order, unstemmed and with function words (seeds 1.5)."""
    return [part.casefold() for chunk in _chunks(text) for part in _split(chunk, camel=False)]


def ngrams(text: str) -> set[str]:
    """Return the n-grams of a text: trigrams, of Han, Kana and Hangul characters and pairs."""
    return _grams(_chunks(text[:_MAX_GRAMS]))


def _grams(chunks: Iterable[str]) -> set[str]:
    return {*chain.from_iterable(map(_GRAMS.__getitem__, chunks))}


def _grams_of(chunk: str) -> set[str]:
    if _is_plain(chunk):
        edged = f"_{chunk.lower()}_"
        return {edged[i : i + 3] for i in range(len(edged) - 2)}
    found: set[str] = set()
    for part in _split(chunk, camel=False):
        word = part.casefold()
        if _CJK_RUN.fullmatch(word):
            found.add(word)
            found.update(word)
            continue
        folded = word
        if not word.isascii():
            marks = unicodedata.normalize("NFD", word)
            folded = "".join(c for c in marks if not unicodedata.combining(c)) or word
        edged = f"_{folded}_"
        found.update(edged[i : i + 3] for i in range(len(edged) - 2))
    return found


_GRAMS: Final = _ChunkCache(_grams_of)


def _chunks(text: str) -> Iterator[str]:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES)
    pattern = _ASCII_CHUNK if text.isascii() else _CHUNK
    if len(text) <= _MAX_GRAMS:
        return iter(pattern.findall(text))
    return (match.group() for match in pattern.finditer(text))


def _split(chunk: str, *, camel: bool = True) -> Iterator[str]:
    """Yield the parts of a chunk: pieces of an identifier, pairs of an unspaced script."""
    for part in _PART.findall(chunk):
        if part.isascii():
            if len(part) == 1 and part in "stdm" and "'" in chunk:
                continue  # what an apostrophe left behind
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
    """Yield the pairs of an unspaced part of one script, and what is a word by itself.

    Many words are one Han character, wherever it stands; one Hiragana is a particle or an ending.
    """
    if len(part) == 1 and script != "hiragana":
        yield part
        return
    for place in range(len(part) - 1):
        if script == "han":
            yield part[place]
        yield part[place : place + 2]
    if script == "han":
        yield part[-1]
