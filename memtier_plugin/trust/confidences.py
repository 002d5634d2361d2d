"""Detect confidences, sensitive statements, and requests to forget.  Pure."""

from __future__ import annotations

import json
import re
from array import array
from base64 import b85decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry
from memtier_plugin.text.lexicon import lexicons

# -- Logistic models that judge whether a text is told in confidence, and whether it is sensitive
#
# The features of a sentence are its words, their meanings (`Lexicon.discretion`: to tell, to know,
# other people, illness) and pairs of them that occur close together.  A text scores as high as its
# highest sentence.  `scripts/fit_discretion.py` fits the models.

MODEL: Final = Path(__file__).parent / "data" / "discretion.json"
POINTING: Final = ("before", "after", "whole")
LEAST_NORM: Final = (
    8  # least count of features to divide by, so that short sentences score no higher
)

_BEGINNING: Final = 5  # leading letters by which words are compared
_REACH: Final = 4  # words between two that form a feature
_LONGEST: Final = 6  # letters in a word of a script without spaces
_SENTENCE: Final = regex.compile(r"(?:[^.:!?。：！？;；\n]|:(?!\s))+[?？]?")
_UNSPACED: Final = r"[\p{Han}\p{Hiragana}\p{Katakana}]"
_WORD: Final = regex.compile(  # parts of addresses, paths and dotted names are not words
    rf"(?P<name>(?<![\w-])[\w-]++(?:://|[./@\\])[\w./@:\\-]*\w)|(?P<unspaced>{_UNSPACED}+)|\p{{N}}+|[?？:：,，€$£%]|[\p{{L}}\p{{M}}--{_UNSPACED}]+",
    regex.VERSION1,
)
_ASCII_WORD: Final = re.compile(  # the same, and twice as fast
    r"(?P<name>(?<![\w-])[\w-]++(?:://|[./@\\])[\w./@:\\-]*\w)|[0-9]+|[?:,$%]|[a-z]+"
)


def score(kind: str, text: str) -> float:
    """Return the log-odds that a text is of a kind.

    Args:
        kind: ``confided``; ``before``, ``after`` or ``whole``: what else the confidence covers;
            ``sensitive``.
    """
    weights, bias = _model()[kind]
    best = 0.0
    for number, passage in enumerate(parts(kind, text)):
        names = features(passage)
        total = sum(filter(None, map(weights.get, names)))
        total /= max(len(names), LEAST_NORM) ** 0.5
        best = max(best, total) if number else total
    return best + bias


def parts(kind: str, text: str) -> list[str]:
    """Return the lower-case parts judged separately: sentences, or all, so that others count."""
    if kind in POINTING:
        return [text.casefold()]
    return [sentence for sentence in _SENTENCE.findall(text.casefold()) if not sentence.isspace()]


@lru_cache(64)  # each model needs them
def features(sentence: str) -> frozenset[int]:
    """Return the features of a sentence, as 24-bit numbers."""
    words = [_BEGIN, *map(_word, _words(sentence)), _END]
    numbers = {*chain.from_iterable(word.alone for word in words)}
    numbers.update(crc32(later.beginning, here.before) >> 8 for here, later in pairwise(words))
    for at, here in enumerate(words):
        if here.meanings:
            for later in words[at + 1 : at + 1 + _REACH]:
                numbers.update(_pairs(here.meanings, later.meanings))
    return frozenset(numbers)


def _words(sentence: str) -> Iterator[str]:
    for match in (_ASCII_WORD if sentence.isascii() else _WORD).finditer(sentence):
        word, group = match[0], match.lastgroup
        if group == "unspaced":
            yield from _split(word)
        else:
            yield "/" if group else "0" if word.isdecimal() else word


def _split(run: str) -> Iterator[str]:
    """Yield the longest known words in a script without spaces, and the letters between them."""
    start = 0
    while start < len(run):
        sizes = range(min(_LONGEST, len(run) - start), 1, -1)
        size = next((n for n in sizes if _meanings(run[start : start + n])), 1)
        yield run[start : start + size]
        start += size


class _Word(NamedTuple):
    """What a word adds to the features of a sentence."""

    alone: tuple[int, ...]  # the features of the word by itself
    beginning: bytes
    before: int  # the checksum of the beginning, and a space, before another
    meanings: tuple[str, ...]


def _numbered(names: Sequence[str], beginning: str, meanings: tuple[str, ...]) -> _Word:
    names = [*names, f"{beginning}*", *(f"#{meaning}" for meaning in meanings)]
    numbers = tuple(crc32(name.encode()) >> 8 for name in names)
    return _Word(numbers, beginning.encode(), crc32(f"{beginning} ".encode()), meanings)


_BEGIN: Final = _numbered((), "^", ("^",))
_END: Final = _numbered((), "$", ("$",))


@lru_cache(8192)
def _word(word: str) -> _Word:
    return _numbered((word,), word[:_BEGINNING], _meanings(word))


@lru_cache(8192)
def _pairs(firsts: tuple[str, ...], seconds: tuple[str, ...]) -> tuple[int, ...]:
    names = (f"#{first} {second}" for first in firsts for second in seconds)
    return tuple(crc32(name.encode()) >> 8 for name in names)


def _meanings(word: str) -> tuple[str, ...]:
    """Return the meanings of a word in each language that has it."""
    beginnings = (f"{word[:size]}*" for size in range(1, len(word) + 1))
    table = _table()
    return tuple(
        sorted({meaning for name in (word, *beginnings) for meaning in table.get(name, ())})
    )


@cache
def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for language in lexicons():
        for meaning, words in language.discretion.items():
            for word in words:
                table[word] = (*table.get(word, ()), meaning)
    return table


# The first call of `b85decode` fills its table; a second thread would find it half full.
b85decode(b"")


@cache
def _model() -> dict[str, tuple[dict[int, float], float]]:
    """Return the feature weights of each kind, and its bias."""
    model: dict[str, tuple[dict[int, float], float]] = {}
    for kind, fitted in json.loads(MODEL.read_bytes()).items():
        names, weights = b85decode(fitted["features"]), array("b", b85decode(fitted["weights"]))
        numbers = (int.from_bytes(names[at : at + 3], "big") for at in range(0, len(names), 3))
        pairs = zip(numbers, weights, strict=True)
        model[kind] = {n: weight * fitted["scale"] for n, weight in pairs}, fitted["bias"]
    return model


# -- Detect what is told in confidence, and what is sensitive by its kind.  Pure
#
# A message asking that others not hear, repeat or keep something is a confidence as a whole,
# whatever its content: "between us, the port is 8443" is not published for the sake of the port. It
# may also make a confidence of what was said before, of what follows, or of the whole session. If
# the model is unsure, the speaker decides: the facts wait for review.

SENSITIVE: Final = "is sensitive"  # reason for which a fact waits for review
DOUBTFUL: Final = "may be a confidence"  # another
WITHHELD: Final = (SENSITIVE, DOUBTFUL)

_MAX_CHARS: Final = 10_000  # characters read at each end of a message
_CONFIDED: Final = 0.7  # log-odds from which a message is a confidence
_DOUBTFUL: Final = 0.0  # and from which it may be one
_SENSITIVE: Final = 0.0
_POINTS: Final = -1.25


@dataclass(frozen=True, slots=True)
class Confidence:
    """What a message makes confidential besides itself and the answer to it.

    ``before``: what was said before it; ``after``: what the speaker says next; ``whole``: the whole
    session.
    """

    before: bool = False
    after: bool = False
    whole: bool = False


@lru_cache(128)  # the next run of a session reads its previous one again
def find_confidence(text: str) -> Confidence | None:
    """Return what a message makes confidential; None if it asks for no confidence."""
    if _odds(text) < _CONFIDED:
        return None
    text = _read(text)
    points = {kind: score(kind, text) for kind in ("before", "after", "whole")}
    best = max(points, key=points.__getitem__)
    return Confidence(**{best: True}) if points[best] > _POINTS else Confidence()


def may_be_confided(text: str) -> bool:
    """Return whether a message is a confidence, or may be one."""
    return _odds(text) >= _DOUBTFUL


@lru_cache(1024)  # a consolidation needs both, and re-reads a session's last prompts
def _odds(text: str) -> float:
    return score("confided", _read(text))


def rests_on_doubtful(sources: Collection[str], entries: Mapping[str, Entry]) -> bool:
    """Return whether one of these entries may be a confidence of its speaker.

    Args:
        sources: the ids of the entries.
        entries: of one agent, session and sender, by id.
    """
    resting = (entries[source] for source in sources if source in entries)
    return any(_is_spoken(entry) and may_be_confided(entry.content) for entry in resting)


def is_sensitive(text: str) -> bool:
    """Return whether a text is about a sensitive topic: health, pay, belief and so on.

    Allergies and diets are excluded: knowing them protects the person.
    """
    return score("sensitive", _read(text)) >= _SENSITIVE


def _read(text: str) -> str:
    if len(text) <= 2 * _MAX_CHARS:
        return text
    return f"{text[:_MAX_CHARS]}\n{text[-_MAX_CHARS:]}"


def confided_entries(entries: Sequence[Entry]) -> set[str]:
    """Return the ids of a session's confidential entries: whole runs, as answers repeat them.

    Args:
        entries: of one agent, session and sender, in order.
    """
    runs: dict[str, list[Entry]] = {}
    for entry in entries:
        runs.setdefault(entry.run_id, []).append(entry)
    order, private = [*runs], set[str]()
    for number, run in enumerate(order):
        for entry in runs[run]:
            confidence = find_confidence(entry.content) if _is_spoken(entry) else None
            if confidence is None:
                continue
            if confidence.whole:
                return {entry.id for entry in entries}
            private.add(run)
            private.update(order[max(0, number - 1) : number] if confidence.before else ())
            private.update(order[number + 1 : number + 2] if confidence.after else ())
    return {entry.id for run in private for entry in runs[run]}


def _is_spoken(entry: Entry) -> bool:
    return entry.role == "user" and entry.origin == "user"


# -- Detect prompts that ask to forget something.  Pure

_ASKS: Final = regex.compile(
    r"""(?xi)\b(?:forget|unlearn|delet(?:e|ing)|remov(?:e|ing)|eras(?:e|ing)|hide|wipe|clear|drop|discard
    |(?:do\s+not|don['’]?t|stop|no\s+longer)\s+(?:remember|keep|store)\w*
    |vergiss|vergesst|vergessen|lösch\w*|entfern\w*|streich\w*
    |oubli\w*|supprim\w*|efface\w*|retire[rz]?
    |olvid\w*|borr\w*|elimin\w*|quit[ae]\w*|dimentic\w*|cancell\w*|rimuov\w*
    |esque[cç]\w*|apag\w*|remov[ae]\w*|vergeet|verwijder\w*|wis
    |забудь\w*|забыть|удали\w*|сотри\w*)\b
    |忘记|忘掉|忘了|删除|刪除|删掉|忘れ|削除|消して|잊어|잊으|삭제|지워"""
)


def asks_to_forget(prompt: str) -> bool:
    """Return whether a prompt has a word for forgetting, in any known language."""
    return bool(_ASKS.search(prompt))
