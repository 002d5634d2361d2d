"""The one tokenizer: what the index, the query and the attribution call a word (design 6).

Words are Unicode words with their marks, NFKC and casefolded, without the language's function
words, reduced by Snowball; identifiers are kept whole and in parts; Han, Kana and Hangul, which
do not separate words, give overlapping pairs.  N-grams are trigrams of each word with its edges
marked and diacritics folded, so that a typo, an inflection or a part of a compound still meets.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import regex

# Raise this when the same text would give other words: an index made before is then rebuilt.
VERSION: Final = 1
MAX_WORDS: Final = 20_000  # of one text; the rest is in the ledger but not in the index

_CJK = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\u30fc"
_WORD = r"[\p{L}\p{M}\p{N}]"
# A run of words joined by the marks that identifiers, paths, versions and names use inside.
_CHUNK: Final = regex.compile(rf"{_WORD}+(?:[-_./:@+'&]+{_WORD}+)*")
_PART: Final = regex.compile(rf"{_WORD}+")
_CJK_RUN: Final = regex.compile(rf"[{_CJK}]+")
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
        language: a Snowball language ("english", "german", ...) or "none" for no stemming.
    """

    def __init__(self, language: str = "english") -> None:
        self.language = language
        self._stop = _ENGLISH if language == "english" else frozenset[str]()
        self._local = threading.local()  # a Stemmer object must not be shared by threads

    @property
    def fingerprint(self) -> str:
        """What an index must have been made with to be comparable."""
        return f"{VERSION}:{self.language}"

    def words(self, text: str) -> list[str]:
        """Return the index words in order, repeated as often as they stand in the text."""
        found: list[str] = []
        for chunk in _chunks(text):
            parts = [part for raw in _split(chunk) if (part := raw.casefold())]
            whole = chunk.casefold()
            if len(parts) > 1 or "'" in whole:
                if whole in self._stop:
                    continue
                if "'" not in whole:
                    found.append(whole)
            found += [part for part in parts if part not in self._stop]
            if len(found) > MAX_WORDS:
                break
        return self._stem(found[:MAX_WORDS])

    def date_words(self, moment: datetime) -> list[str]:
        """Return the words a date is asked for by: year, month name and day of the month."""
        return self.words(f"{moment.year} {_MONTHS[moment.month - 1]} {moment.day}")

    def _stem(self, words: list[str]) -> list[str]:
        if self.language == "none":
            return words
        stemmer: Any = getattr(self._local, "stemmer", None)
        if stemmer is None:
            import Stemmer

            stemmer = self._local.stemmer = Stemmer.Stemmer(self.language)
        return [
            stem if word.isalpha() else word
            for word, stem in zip(words, stemmer.stemWords(words), strict=True)
        ]


def plain_words(text: str) -> list[str]:
    """Return casefolded words in order, unstemmed and with function words (seeds 1.5)."""
    return [part.casefold() for chunk in _chunks(text) for part in _split(chunk, camel=False)]


def grams(text: str) -> set[str]:
    """Return the n-grams of a text: pairs for Han, Kana and Hangul, trigrams elsewhere."""
    found: set[str] = set()
    for word in set(plain_words(text[: 8 * MAX_WORDS])):
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


def _chunks(text: str) -> Iterator[str]:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES)
    for match in _CHUNK.finditer(text):
        yield match.group()


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
            yield from _pairs(run.group())
        if end < len(part):
            yield part[end:]


def _pairs(run: str) -> Iterator[str]:
    if len(run) < 3:
        yield run
    else:
        yield from (run[i : i + 2] for i in range(len(run) - 1))
