"""What language a text is in, and where its sentences end.  Pure."""

from __future__ import annotations

from collections import Counter
from functools import cache, lru_cache
from typing import Final

import regex

from memtier_plugin.text import grammar


@cache
def _common() -> dict[str, frozenset[str]]:
    found = {name: wording.common_words for name, wording in grammar.CLOSED_CLASSES.items()}
    found["english"] |= frozenset(grammar.irregular_verbs()[0]) | grammar.ENGLISH_HINTS
    return found


_KANA: Final = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_HAN: Final = regex.compile(r"\p{Han}")
_LETTER: Final = regex.compile(r"\p{L}")
_LATIN: Final = regex.compile(r"[\p{Latin}'’-]+")
_CYRILLIC: Final = regex.compile(r"\p{Cyrillic}+")
# Letters by which a language is told from another of the same small words.
_STRANGE: Final = {
    "english": "àáâãäåæçèêëìíîïðñòóôõöøùúûýÿžšőűąęłşğı",
    "german": "áàâãåæçèéêìíîñòóôõøùúûÿžšőűąęłşğı",
    "spanish": "äöåæøßàèìòùçãõâêîôžšőűąęłşğı", "french": "äößñåãõøìòóáúžšőűąęłşğı",
    "italian": "äöüßñåãõâêîôøçžšőűąęłşğı", "portuguese": "äößñåøìòùèžšőűąęłşğı",
    "dutch": "ñãõåæøßžšőűąęłşğı",
}  # fmt: skip


@lru_cache(1024)
def detect_language(text: str) -> str | None:
    """Return the language that the small words of a text tell, or None.

    One word may be of many languages, so one alone tells nothing.
    """
    if len(_KANA.findall(text)) >= 2:
        return "japanese"
    letters = len(_LETTER.findall(text))
    if 2 * len(_HAN.findall(text)) > letters:
        return "chinese"
    cyrillic = _CYRILLIC.findall(text.casefold())
    if cyrillic and 2 * sum(map(len, cyrillic)) > letters:
        known = grammar.CLOSED_CLASSES["russian"].common_words
        strange = regex.search("[іїєґўјљњћђџ]", text.casefold())
        return "russian" if not strange and any(word in known for word in cyrillic) else None
    folded = text.casefold().replace("’", "'")
    words = [part for word in _LATIN.findall(folded) for part in word.split("'") if part]
    if 2 * sum(map(len, words)) < letters:
        return None
    counts: Counter[str] = Counter()
    for name, letters_of in _STRANGE.items():
        hits = [word for word in words if word in _common()[name]]
        strange_ones = sum(any(c in letters_of for c in word) for word in words)
        enough = 1 if name == "english" and text.isascii() else 2
        if len(set(hits)) >= enough and 6 * len(hits) >= len(words):
            counts[name] = len(hits) - strange_ones
    best = counts.most_common(2)
    if not best or best[0][1] < 2:
        if any(word in grammar.FOREIGN_NEGATIONS for word in words):
            return None
        # Who speaks for themselves with a word that only one language has, speaks that one.
        own = {
            name
            for name in _STRANGE
            for word in words
            if word in grammar.CLOSED_CLASSES[name].first_person
        }
        if len(own) == 1 and (name := own.pop()) and counts[name] >= 0:
            return name if len(words) <= 6 or counts[name] else None
        return "english" if counts["english"] == 1 else None
    if len(best) > 1 and best[0][1] == best[1][1]:
        return "english" if counts.get("english") == best[0][1] else None
    return best[0][0]


def detect_language_in_context(text: str, more: str) -> str | None:
    """Return the language of a short text, by what else its speaker says.

    It must have a word of that language itself: who speaks two would otherwise be misread.
    """
    tongue = detect_language(more)
    if tongue is None:
        return None
    words = regex.findall(r"\w+", text.casefold())
    return tongue if any(word in _common()[tongue] for word in words) else None


_SHORTENED: Final = grammar.word_set(
    "mr mrs ms dr prof st vs etc no jr sr inc ltd e.g i.e approx dept fig u.s a.m p.m z.b ca bzw nr"
)
_STOP: Final = regex.compile(
    r"[.!?…]+[\"'”’)*_]*(?:\s+|\Z)|[。！？]+[」』”]?|\n\s*\n|\n(?=\s*(?:[-*•>#]|\d+[.)])\s)|\n"
)
SENTENCE_REACH: Final = (
    1_000  # characters looked at on each side of a quote for the ends of its sentence
)


def find_sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """Return where the sentence, or the sentences, that hold a span begin and end.

    What might not end a sentence does not: more of it can only make a claim harder to believe.
    """
    low, high = max(0, start - SENTENCE_REACH), min(len(text), end + SENTENCE_REACH)
    first, last = low, high
    for stop in _STOP.finditer(text, low, high):
        if not _ends(text, stop):
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


def _ends(text: str, stop: regex.Match[str]) -> bool:
    """Tell whether a mark ends a sentence."""
    mark = stop[0].strip()
    after = text[stop.end() : stop.end() + 1]
    before = text[max(0, stop.start() - 40) : stop.start()]
    if not mark and stop[0].count("\n") < 2:  # a line ends; so does a sentence, if it was whole
        return bool(regex.search(r"[.!?:;…。！？)]\s*$", before)) or after in "-*•>#" or (
            after.isdigit()
        )  # fmt: skip
    if mark.startswith(".") and not mark.startswith(".."):
        word = regex.split(r"[\s(]", before)[-1].casefold()
        if word in _SHORTENED or (len(word) == 1 and word.isalpha() and word != "i"):
            return False
    return not after.islower()
