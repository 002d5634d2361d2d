"""Find seed phrases of wallets, by the words of BIP-39 or by what announces them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from memtier_plugin.trust.secret_formats import DATA, Span
from memtier_plugin.trust.secret_values import is_phrase

_SHORTEST_PHRASE = 12  # words of a phrase
_DISTINCT = 2 / 3  # of them; a phrase is drawn at random
_HINTS = (
    *("seed", "recovery", "backup", "mnemonic", "wiederherstellungsphrase", "semilla"),
    *("récupération", "recupero", "recuperação", "助记词", "シードフレーズ", "니모닉", "сид-фраза"),
)
_WORD = re.compile(r"[A-Za-z]+")
_EDGE = re.compile(r"[^A-Za-z]")
_STEP = 16_384  # characters
_BETWEEN = re.compile(r"[\s,;|]*(?:\(?\d{1,2}[.):]?[\s]*)?\Z")  # "abandon, ability", "2. ability"
_ANNOUNCED = re.compile(
    r"(?i:\b(?:(?:seed|recovery|backup|mnemonic|secret recovery)[ -]?(?:phrase|words?)|mnemonic"
    r"|seed|wiederherstellungsphrase|frase semilla|phrase de récupération|frase di recupero"
    r"|frase de recuperação)|助记词|シードフレーズ|니모닉|сид-фраза)"
    r"[^\n:=：]{0,40}[:=：]\s{0,4}"
    r"(?P<secret>(?:[^\W\d_]{1,12}[ ,]{1,2}){11,23}[^\W\d_]{1,12})(?![^\W\d_])"
)


@cache
def seed_words() -> frozenset[str]:
    """Return the 2048 English words of which a seed phrase consists."""
    return frozenset((DATA / "bip39-english.txt").read_text("ascii").split())


def find_seed_phrases(text: str, lower: str) -> Iterator[Span]:
    """Yield every row of twelve words or more that are words of seed phrases, or announced so."""
    if text.count(" ") + text.count("\n") + text.count(",") < _SHORTEST_PHRASE - 1:
        return
    if any(hint in lower for hint in _HINTS):
        for match in _ANNOUNCED.finditer(text):
            if is_phrase(match["secret"].replace(",", " "), most=24):
                yield *match.span("secret"), "seed-phrase"
    if _has_row([*_words(lower)]):
        yield from _rows(text)


def _words(lower: str) -> Iterator[str]:
    """Yield the words of a text, found in calls that are short: no other thread runs meanwhile."""
    at = 0
    while at < len(lower):
        edge = _EDGE.search(lower, at + _STEP)
        stop = edge.start() if edge else len(lower)
        yield from _WORD.findall(lower, at, stop)
        at = stop


def _has_row(words: Sequence[str]) -> bool:
    """Return whether twelve words of phrases follow each other; of prose a twelfth is looked at."""
    known, end = seed_words(), 0
    for at in range(_SHORTEST_PHRASE - 1, len(words), _SHORTEST_PHRASE):
        if at < end or words[at] not in known:
            continue
        first, end = at, at + 1
        while first and at - first < _SHORTEST_PHRASE and words[first - 1] in known:
            first -= 1
        while end < len(words) and end - first < _SHORTEST_PHRASE and words[end] in known:
            end += 1
        if end - first >= _SHORTEST_PHRASE:
            return True
    return False


def _rows(text: str) -> Iterator[Span]:
    known = seed_words()
    row: list[re.Match[str]] = []
    for word in _WORD.finditer(text):
        if word[0].lower() not in known:
            yield from _phrase(row)
            row = []
        elif row and not _BETWEEN.match(text[row[-1].end() : word.start()]):
            yield from _phrase(row)
            row = [word]
        else:
            row.append(word)
    yield from _phrase(row)


def _phrase(row: Sequence[re.Match[str]]) -> Iterator[Span]:
    """Yield a row that is long enough for a phrase and does not repeat a few words."""
    distinct = {word[0].lower() for word in row}
    if len(row) >= _SHORTEST_PHRASE and len(distinct) >= _DISTINCT * len(row):
        yield row[0].start(), row[-1].end(), "seed-phrase"
