"""Find PINs, access and recovery codes, security answers, and wallet seed phrases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from memtier_plugin.trust.secret_formats import DATA, Span, matches_in_steps
from memtier_plugin.trust.secret_statements import (
    clause_ends,
    is_phrase,
    is_predicate,
    language_rows,
)

# -- Find PINs, door and alarm codes, recovery codes and answers to security questions
#
# A number is a code if its clause names one ("PIN"), or has a general word for codes together with
# a lock or a device, in any order and any language (`data/secret-words.json`).

ACCESS_CODE: Final = "access-code"  # of a door, a gate, an alarm
_LETTER: Final = "A-Za-zÀ-ÿА-яЁё0-9_"  # of languages with spaces between words
_NUMBER: Final = re.compile(
    rf"(?<![{_LETTER}.,:/+#*-])[#*]{{0,2}}[0-9A-ZА-Я](?:[0-9A-ZА-Я]|-(?=[0-9])){{1,15}}+[#*]{{0,2}}+"
    rf"(?![{_LETTER}-]|[.,:/][0-9]|[ \t]?(?:[mck]?m|kg|[gmk]?b|bit|bytes|[%°€$])\b)"
)
_CODE: Final = re.compile(
    r"[#*]*+(?=(?:[^0-9]*+[0-9]){3})(?:[A-ZА-Я]{0,2}[0-9]{1,10}(?:[A-ZА-Я]{1,2}[0-9]{0,8})?"
    r"|[0-9]{1,2}(?:-[0-9]{1,2}){2,3})(?P<mark>[#*]*)\Z"
)
_WINDOW: Final = 96  # characters searched on each side of a number
_GAP: Final = 48  # most characters between a code and its name
_VERB: Final = 24  # characters before a number searched for the start of a verb
_CLAUSE_END: Final = re.compile(r"[.!?;]\s|[:\n]|[。！？；]")
_TRIM: Final = " \t,\"'`“„«‘(*"
_ITEM: Final = re.compile(
    r"(?:[\s,;:•*`|-]|\d{1,2}[.)][ \t]|(?:and|or|und|y|et|e|en|и)\s){0,12}+"
    r"(?P<value>[A-Za-z0-9]{3,12}(?:[- ](?=\d)[0-9]{3,12}|-[A-Za-z0-9]{3,12}){0,5})"
    r"(?![\w@/-]|\.\w)"
)
_START: Final = rf"(?<![{_LETTER}])"
_STOP: Final = rf"(?![{_LETTER}])"
_LONG: Final = 4  # digits that set a code apart from a count
_CJK: Final = "⺀"  # scripts from here on have no spaces between words
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d\Z")
_SHORTEST: Final = 6  # characters of a recovery code
_ANSWER: Final = re.compile(
    r"[ \t]*(?P<quote>[\"'“„«]?)(?P<value>[^\s\"“”„«».,;!?][^\n\"“”„«».,;!?]{2,40})"
)
_ANSWER_WORDS: Final = 4


def find_codes(text: str, hints: set[str]) -> Iterator[Span]:
    """Yield codes, PINs and secret answers."""
    if not _hints("code").isdisjoint(hints):
        yield from _codes(text)
    for key, values in (("recovery", _listed), ("answer", _answered)):
        if not _hints(key).isdisjoint(hints):
            for name in matches_in_steps(_pattern(key), text):
                yield from values(text, name.end())


def _codes(text: str) -> Iterator[Span]:
    """Yield the numbers that a word in their clause marks as codes."""
    read = _Names(text)
    for number in matches_in_steps(_NUMBER, text):
        code = _CODE.match(number[0])
        if code is None:
            continue
        start, end = number.span()
        begin = max(start - _WINDOW, text.rfind("\n", max(0, start - _WINDOW), start) + 1)
        verb = _verb_before().search(text, max(begin, start - _VERB), start)
        stop = begin + len(text[begin : verb.start() if verb else start].rstrip(_TRIM))
        for clause in _CLAUSE_END.finditer(text, begin, stop):
            begin = clause.end()
        names = read.within(begin, stop)
        gap = text[names[-1].end() : stop].strip() if names else ""
        near = not gap or _genitive().match(gap) is not None
        stated = len(gap) <= _GAP and (near or verb)
        opens = verb and (
            (verb["opens"] and sum(map(str.isdigit, code[0])) >= _LONG) or "-" in code[0]
        )
        kind = _kind(names, opens=bool(opens)) if stated else ""
        sure = near and kind == "pin"  # whatever follows in the clause
        if not kind and (ahead := _ahead().match(text, end)):
            stop = min(len(text), end + _WINDOW)
            if clause_end := _CLAUSE_END.search(text, ahead.end(), stop):
                stop = clause_end.start()
            named = read.within(ahead.end(), stop)
            if named and named[0].start() <= ahead.end() + _VERB:
                kind, sure = _kind(named), True
        ends = (
            code["mark"]
            or "-" in code[0]
            or clause_ends(text, end)
            or not text[end : end + 1].isascii()
        )
        if kind and (ends or sure):
            yield start, end, kind


class _Names:
    """The names in a text, each read once even if the windows of several numbers overlap."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._names: list[re.Match[str]] = []
        self._end = 0

    def within(self, begin: int, stop: int) -> list[re.Match[str]]:
        """Return the names in a span; spans start in order, except within a window."""
        start = max(begin, self._end)
        if start < stop:
            self._names = [name for name in self._names if name.start() >= begin - _WINDOW]
            self._names += _names().finditer(self._text, start, stop)
            last = self._names[-1].end() if self._names else 0
            self._end = max(last, start, stop - _VERB)  # a name may continue after a window
        return [name for name in self._names if begin <= name.start() and name.end() <= stop]


def _kind(names: list[re.Match[str]], *, opens: bool = False) -> str:
    """Return which code a clause's names make of a number: "pin", `ACCESS_CODE` or ""."""
    kinds = {name.lastgroup for name in names}
    if "pin" in kinds:
        return "pin"
    if "no_lock" in kinds or not (opens or "code" in kinds):
        return ""
    if "device" in kinds:
        return "pin"
    return ACCESS_CODE if "lock" in kinds else ""


def _listed(text: str, at: int) -> Iterator[Span]:
    """Yield the recovery codes listed after their name."""
    if lead := _lead().match(text, at):
        at = lead.end()
    form = ""
    while item := _ITEM.match(text, at):
        value = item["value"]
        drawn = len(value) >= _SHORTEST and sum(map(str.isdigit, value)) > 1
        if _DATE.match(value) or not (drawn or (form and _form(value) == form)):
            return
        form, at = _form(value), item.end()
        yield *item.span("value"), "recovery-code"


def _form(value: str) -> str:
    return re.sub(r"[A-Za-z0-9]", "a", value) if "-" in value else ""


def _answered(text: str, at: int) -> Iterator[Span]:
    """Yield the stated answer to a security question."""
    lead = _lead().match(text, at)
    answer = _ANSWER.match(text, lead.end() if lead else at)
    if answer is None:
        return
    value = answer["value"].rstrip(" \t'’)*`")
    words = len(value.split())
    named = bool(answer["quote"] or value[0].isupper())
    if words <= _ANSWER_WORDS and (named or (lead and words == 1 and not is_predicate(value))):
        start = answer.start("value")
        yield start, start + len(value), "secret"


def _any_of(key: str) -> str:
    return "|".join(row[key] for row in language_rows() if row.get(key))


@cache
def _hints(key: str) -> frozenset[str]:
    return frozenset(hint for row in language_rows() for hint in row[f"{key}_hints"].split())


def hints_of_codes() -> Iterator[str]:
    """Yield the plain texts by which `find_codes` and `find_seed_phrases` begin."""
    yield from _hints("code").union(_hints("recovery"), _hints("answer"), _PHRASE_HINTS)


def _verbs() -> str:
    now = _any_of("now")
    return rf"(?:{_any_of('verb')}|{_any_of('are')})(?:[ \t]+(?:{now}))?"


@cache
def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(_any_of(key), re.IGNORECASE)


@cache
def _names() -> re.Pattern[str]:
    keys = ("no_lock", "pin", "code", "device", "lock")
    return re.compile("|".join(f"(?P<{key}>{_any_of(key)})" for key in keys), re.IGNORECASE)


@cache
def _genitive() -> re.Pattern[str]:
    return re.compile(rf"(?:{_any_of('of')})\b.*\w", re.IGNORECASE)


@cache
def _verb_before() -> re.Pattern[str]:
    """Match the text between the name of a code and the code."""
    opens = rf"\b(?P<opens>{_any_of('opens')})"
    return re.compile(
        rf"(?:(?:(?<![^\W_])|(?=[{_CJK}-\uffff]))(?:{_START}(?:{_verbs()})|{opens})|[=:—–-])"
        r"[ \t:]*[\"'`“„«‘*(]?\Z",
        re.IGNORECASE,
    )


@cache
def _ahead() -> re.Pattern[str]:
    """Match the text between a code and its name: 4471 is the code of ..."""
    return re.compile(rf"[ \t]+(?:{_any_of('verb')}){_STOP}", re.IGNORECASE)


@cache
def _lead() -> re.Pattern[str]:
    """Match the text between a name and the first value after it."""
    return re.compile(
        rf"(?:[ \t]*\([^)\n]{{1,40}}\))?[^\n.:=\d]{{0,40}}?(?:{_START}(?:{_verbs()})\b|[=:—–\n])",
        re.IGNORECASE,
    )


# -- Find wallet seed phrases, by the words of BIP-39 or by an announcement

_SHORTEST_PHRASE = 12  # words of a phrase
_DISTINCT = 2 / 3  # share of distinct words; a seed phrase is drawn at random
_PHRASE_HINTS = frozenset(
    (
        "seed",
        "recovery",
        "backup",
        "mnemonic",
        "wiederherstellungsphrase",
        "semilla",
        "récupération",
        "recupero",
        "recuperação",
        "助记词",
        "シードフレーズ",
        "니모닉",
        "сид-фраза",
    )
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
    """Return the 2048 English words that seed phrases are made of."""
    return frozenset((DATA / "bip39-english.txt").read_text("ascii").split())


def find_seed_phrases(text: str, lower: str, hints: set[str]) -> Iterator[Span]:
    """Yield runs of at least twelve seed words, or of words announced as a seed phrase."""
    if text.count(" ") + text.count("\n") + text.count(",") < _SHORTEST_PHRASE - 1:
        return
    if not _PHRASE_HINTS.isdisjoint(hints):
        for match in _ANNOUNCED.finditer(text):
            if is_phrase(match["secret"].replace(",", " "), most=24):
                yield *match.span("secret"), "seed-phrase"
    if _has_row([*_words(lower)]):
        yield from _rows(text)


def _words(lower: str) -> Iterator[str]:
    """Yield the words of a text in short calls, since each call blocks other threads."""
    at = 0
    while at < len(lower):
        edge = _EDGE.search(lower, at + _STEP)
        stop = edge.start() if edge else len(lower)
        yield from _WORD.findall(lower, at, stop)
        at = stop


def _has_row(words: Sequence[str]) -> bool:
    """Return whether twelve seed words are in a row, checking every twelfth word first."""
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
    """Yield a run that is long enough and does not repeat just a few words."""
    distinct = {word[0].lower() for word in row}
    if len(row) >= _SHORTEST_PHRASE and len(distinct) >= _DISTINCT * len(row):
        yield row[0].start(), row[-1].end(), "seed-phrase"
