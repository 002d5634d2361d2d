"""Detect restatements, verbatim or paraphrased. Pure.

What an agent says after it was shown a line is no independent evidence for that line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.languages import detect_language
from memtier_plugin.text.tokenizer import plain_words
from memtier_plugin.trust.external_text import function_words

_SAME: Final = 0.6  # of what a text says, by its words, that must stand in the other
_NUMBERS: Final = regex.compile(
    r"\p{N}[\p{N}.,:/-]*\p{N}|\p{N}|(?<![\w.+-])[\w.+-]++@[\w.-]+|https?://\S+"
)
# A quantity, a version, a time of day; nothing by which somebody or something is reached.
_VALUE: Final = regex.compile(
    r"(?<![\p{Latin}\p{N}.,:/@+#-])\p{N}{1,6}(?:[.,:]\p{N}{1,4}){0,2}(?![.,:/@-]?[\p{Latin}\p{N}])",
)
_MARKS: Final = regex.compile(r"[\p{N}@/\\+=#<>]|\p{N}\s+\p{N}")
_END: Final = regex.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n")
_ASKED: Final = regex.compile(r"[?？]\W*$")
_DENIALS: Final = frozenset(
    """no not never none cannot without nobody nothing t nicht kein keine nie nunca sin ne pas
    jamais sans non mai senza não nooit niet geen не нет никогда""".split()  # noqa: SIM905
)
# Words that everybody says of anything.
_EMPTY: Final = frozenset(
    """
    a an the is are was were be been it its this that these those of to in on at by for with from
    and or but as so has have had do does did will would can could should may might must i you he
    she they we my your his her their our me him them us not no yes user assistant agent note noted
    remember recall memory mentioned said says according earlier previously know known
    """.split()  # noqa: SIM905
)


def is_restatement(text: str, others: Iterable[str], words: Callable[[str], Sequence[str]]) -> bool:
    """Return whether a text restates one of the others.

    Its figures and addresses must all stand there, and most of its words; in another language,
    where words cannot be compared, its figures tell.

    Args:
        words: how a text is taken apart, with word endings removed.
    """
    own_words = {word for word in words(text) if word not in _EMPTY}
    figures = {*_NUMBERS.findall(text.casefold())}
    if not own_words:
        return False
    for other in others:
        if not figures <= {*_NUMBERS.findall(other.casefold())}:
            continue
        other_words = set(words(other))
        if len(own_words & other_words) >= _SAME * len(own_words):
            return True
        if (
            figures
            and not _lettered(own_words & other_words)
            and detect_language(text) != detect_language(other)
        ):
            return True
    return False


def _lettered(words: Iterable[str]) -> list[str]:
    return [word for word in words if not any(map(str.isdigit, word))]


def is_stated_by(text: str, others: Iterable[str], words: Callable[[str], Sequence[str]]) -> bool:
    """Return whether the others state everything in a text; stricter than `is_restatement`.

    Each of its sentences must stand in one sentence of theirs, with every word that counts, the
    same figures and the same denials; what is asked is not said.
    """
    stated = [_said(sentence, words) for other in others for sentence in _sentences(other)]
    claims = [_said(sentence, words) for sentence in _sentences(text, asked=True)]
    return any(sentence[0] for sentence in claims) and all(
        any(
            sentence[0] <= other[0] and sentence[1] <= other[1] and sentence[2] == other[2]
            for other in stated
        )
        for sentence in claims
    )


def find_other_values(texts: Iterable[str], others: Sequence[str]) -> frozenset[str]:
    """Return the texts that say what another one says, with another value.

    Every word that means something stands there, with the same denials and as many values; so all
    that whoever wrote it could bring in is a quantity.
    """
    frames = [_VALUE.subn("", other.casefold()) for other in others]
    return frozenset(text for text in texts if _fits(text, frames))


def _fits(text: str, frames: Sequence[tuple[str, int]]) -> bool:
    rest, count = _VALUE.subn("", text)
    if not count or _MARKS.search(rest):
        return False
    words = _meaning(rest)
    for frame, values in frames if words else ():
        if values == count and all(word in frame for word in words):  # as hardly ever
            theirs = _meaning(frame)
            if words <= theirs and words & _DENIALS == theirs & _DENIALS:
                return True
    return False


def _meaning(text: str) -> frozenset[str]:
    """Return the words of a text that mean something, its denials among them."""
    return frozenset(plain_words(text)) - (function_words(detect_language(text)) - _DENIALS)


def _sentences(text: str, *, asked: bool = False) -> Iterable[str]:
    return (
        sentence
        for sentence in _END.split(text)
        if sentence.strip() and (asked or not _ASKED.search(sentence))
    )


def _said(
    sentence: str, words: Callable[[str], Sequence[str]]
) -> tuple[set[str], set[str], set[str]]:
    """Return the words, the figures and the denials of a sentence."""
    plain = {*plain_words(sentence)}
    content = {word for word in words(sentence) if word not in _EMPTY}
    return content, {*_NUMBERS.findall(sentence.casefold())}, plain & _DENIALS
