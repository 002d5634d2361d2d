"""Find secrets by their format, in views of a text that rejoin broken tokens."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from memtier_plugin.text.tokenizer import WordCache

# -- Views of a text that rejoin broken tokens, and searches that read a text in steps

# Invisible characters: they split a token for a pattern, but not for a reader.
INVISIBLE: Final = "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
INVISIBLE_MORE: Final = "\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f"
UNSEEN: Final = re.compile(f"[{INVISIBLE}{INVISIBLE_MORE}]+")
_STEP: Final = 4096  # characters searched before another thread gets a turn
_REACH: Final = 1024  # characters of the longest match
_WIDE: Final = re.compile("[\uff01-\uff5e\u3000]")
_FOLD: Final = {
    0x3000: " ",
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
}
_TOKEN: Final = r"[A-Za-z0-9_+/=.-]"
_BREAK: Final = re.compile(  # after a run of token characters with a digit
    rf"(?<!{_TOKEN})(?=[A-Za-z_+/=.-]{{0,200}}[0-9]){_TOKEN}{{8,}}+"
    rf"(?P<cut>[ \t]{{0,80}}+\\?\r?\n[ \t>|]{{0,80}}+)(?={_TOKEN})"
)


class TextView:
    """A text without some of its parts, with a way back to positions in the original."""

    def __init__(self, text: str, left_out: Iterable[tuple[int, int]]) -> None:
        parts, self._starts, self._shifts = [], [0], [0]
        done = length = 0
        for start, end in left_out:
            parts.append(text[done:start])
            length += start - done
            done = end
            self._starts.append(length)
            self._shifts.append(done - length)
        self.text = "".join([*parts, text[done:]])

    def joins_within(self, start: int, end: int) -> list[int]:
        """Return the positions within a span where something was omitted."""
        first, last = bisect_right(self._starts, start), bisect_right(self._starts, end - 1)
        return self._starts[max(first, 1) : last]

    def place(self, at: int) -> int:
        """Return the original position of a position in the view."""
        return at + self._shifts[bisect_right(self._starts, at) - 1]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the original span of a span in the view."""
        return self.place(start), self.place(end - 1) + 1


def fold_wide(text: str) -> str:
    """Return a text of the same length with full-width characters as plain ones."""
    return text.translate(_FOLD) if _WIDE.search(text) else text


def without_unseen(text: str) -> TextView | None:
    """Return the view without invisible characters, or None if the text has none."""
    spans = [match.span() for match in UNSEEN.finditer(text)]
    return TextView(text, spans) if spans else None


def without_breaks(text: str) -> TextView | None:
    """Return the view with tokens joined across line ends, or None if none may be."""
    spans = [match.span("cut") for match in _BREAK.finditer(text)]
    return TextView(text, spans) if spans else None


def matches_in_steps(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of ``finditer`` in short calls, for a pattern with short matches.

    A call holds the interpreter lock; over a long text it could block other requests for a tenth of
    a second.
    """
    at, size = 0, len(text)
    while at < size:
        limit = at + _STEP
        last = limit + _REACH >= size
        for match in pattern.finditer(text, at, size if last else limit + _REACH):
            if not last and match.start() >= limit:
                break
            yield match
            at = match.end()
        if last:
            return
        at = max(at, limit)


# -- Find which plain texts occur in a text, word by word: most words recur, so they are cached


class Hints:
    """Finds which of its plain texts, none with white space, occur in a text."""

    def __init__(self, hints: Iterable[str]) -> None:
        self._by_start: dict[str, list[str]] = {}
        for hint in dict.fromkeys(hints):
            self._by_start.setdefault(hint[:2], []).append(hint)
        self._words = WordCache(self._within)

    def within(self, words: Iterable[str]) -> set[str]:
        """Return the hints that occur in any of these words."""
        return {*self._words.of_all(words)}

    def _within(self, word: str) -> list[str]:
        starts = {*word} | {word[at : at + 2] for at in range(len(word))}
        known = starts & self._by_start.keys()
        return [hint for start in known for hint in self._by_start[start] if hint in word]


# -- Find secrets by their format: issuers' tokens, key blocks, URLs, headers, command arguments
#
# The formats are data (`data/secret-formats.json`).  Where a detector of detect-secrets finds as
# much as a pattern of ours, it is used; the library is imported only for a text with a hint of such
# a token, as the import takes 100 ms and brings an unused HTTP client.  Formats without a detector,
# or without a plain-text hint (Discord, Twilio), have a pattern here.  Every pattern takes linear
# time: no unbounded scan can fail and be repeated from another start. Detectors of the library that
# take longer are left out (IBM, Cloudant, SoftLayer: cubic in spaces; npm, basic authentication),
# as is `JwtTokenDetector`, which leaves the signature.

Span = tuple[int, int, str]

DATA: Final = Path(__file__).parent / "data"
# A token starts after a character that cannot be part of one, or after an escape (\n in JSON).
_START: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
_BODY: Final = r"(?P<drawn>(?:[\w~+/=-]|\.(?=\w)){{{least},}})"
# An argument that is not a variable, a placeholder or the next option.
_ARGUMENT: Final = (
    r"(?:pass:|(?P<quote>[\"']))?(?P<secret>(?<=[\"'])[^\"'\n$<]{3,200}"
    r"|[^\s\"'`,;$<-][^\s\"'`<]{2,200})"
)
_TOKEN_END: Final = re.compile(
    r"[A-Za-z0-9_-]*"
)  # detectors stop as soon as a token could be complete
_AROUND: Final = " \t\r\n\"'=:"  # around the token in a detector's match
_SHORTEST_SECRET: Final = 16  # characters of a group that holds the secret
_LOOKED_AT: Final = 120  # characters that must look random
_HUMP: Final = re.compile(r"[a-z][A-Z]")
_CAPITALS: Final = re.compile(r"[A-Z]{2}")
_GENERIC: Final = "token"  # issuer unknown
_COOKIES: Final = re.compile(
    r"(?i:\b(?P<set>set-)?cookies?\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?|--cookie[ =][\"']?)"
    r"(?P<pairs>[^\n\"']{3,8192})"
)
_COOKIE: Final = re.compile(r"(?:^|;)[ \t]*(?P<name>[\w.$-]{1,80})=(?P<value>[^;\s\\]{4,4096})")
_SESSION_NAME: Final = re.compile(
    r"(?i)sess|sid\b|sid$|auth|token|jwt|csrf|xsrf|remember|login|secret|credential|passw"
)
_CARD: Final = re.compile(
    r"[0-9](?<![\w.,/+=-][0-9])(?<![0-9][ .-][0-9])"
    r"(?:[0-9]{12,15}|[0-9]{3}(?P<sep>[ -])[0-9]{4}(?P=sep)[0-9]{4}(?P=sep)[0-9]{4}"
    r"|[0-9]{3}(?P<amex>[ -])[0-9]{6}(?P=amex)[0-9]{5})(?![\w/+=-]|[ .-][0-9])"
)
_ISSUED: Final = re.compile(  # Visa, Mastercard, Amex, Discover, JCB, UnionPay
    r"(?:4\d{15}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]|[3-6]\d|7[01]|720)\d{12,13}|3[47]\d{13}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14})\Z"
)


class _Format(NamedTuple):
    """The format of a secret; every match contains one of the plain-text ``hints``.

    The secret is the group ``secret``, or the whole match; the group ``drawn`` must look random.
    Every match has at least ``shortest`` characters without white space, so that prose without such
    a run need not be searched.
    """

    kind: str
    hints: tuple[str, ...]
    source: str  # the pattern, compiled when a hint is found
    shortest: int
    detector: str = ""  # of detect-secrets, instead of a pattern
    option: str = ""  # of a command, which every match has too


def find_formats(text: str, *, tokens_only: bool = False) -> Iterator[Span]:
    """Yield the secrets in a text that have a known format, the most specific kind first.

    Args:
        tokens_only: only tokens of known issuers, not formats that may contain white space.
    """
    words = text.split()
    longest = max(map(len, words), default=0)
    hints, by_hint = _hints()
    for number in sorted({n for hint in hints.within(words) for n in by_hint[hint]}):
        kind, _, source, shortest, detector, option = _load()[number]
        if longest < shortest or (tokens_only and (not shortest or kind == _GENERIC)):
            continue
        if option not in text:
            continue
        if detector:
            yield from _detected(text, kind, detector)
        else:
            pattern = compiled(source)
            group = "secret" if "secret" in pattern.groupindex else 0
            drawn = "drawn" in pattern.groupindex
            for match in pattern.finditer(text):
                if not drawn or _looks_drawn(match["drawn"][:_LOOKED_AT]):
                    yield *match.span(group), kind
    if not tokens_only:
        if "ookie" in text or "OOKIE" in text:
            yield from _cookies(text)
        for match in _CARD.finditer(text):
            if _is_card(match[0]):
                yield *match.span(), "card-number"


def _detected(text: str, kind: str, detector: str) -> Iterator[Span]:
    """Yield the matches of a detector, each extended to the end of its token."""
    for pattern in detector_patterns(detector):
        for match in matches_in_steps(pattern, text):
            group = 0
            if pattern.groups and match[1] and len(match[1]) >= _SHORTEST_SECRET:
                group = 1  # the rest is a name
            start, end = match.span(group)
            start += len(match[group]) - len(match[group].lstrip(_AROUND))
            end -= len(match[group]) - len(match[group].rstrip(_AROUND))
            token_end = _TOKEN_END.match(text, end)
            if token_end and _looks_drawn(text[start : token_end.end()][:_LOOKED_AT]):
                yield start, token_end.end(), kind


@cache
def detector_patterns(detector: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of a detector of detect-secrets, by its module and class."""
    module, _, name = detector.partition(".")
    library = import_module(f"detect_secrets.plugins.{module}")
    return tuple(getattr(library, name).denylist)


@cache
def compiled(source: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern, compiled on first use: most texts need few of them."""
    return re.compile(source, flags)


@cache
def _hints() -> tuple[Hints, dict[str, list[int]]]:
    """Return all hints, and the numbers of the formats that have each."""
    by_hint: dict[str, list[int]] = {}
    for number, form in enumerate(_load()):
        for hint in form.hints:
            by_hint.setdefault(hint, []).append(number)
    return Hints(by_hint), by_hint


@cache
def _load() -> tuple[_Format, ...]:
    data: dict[str, Any] = json.loads((DATA / "secret-formats.json").read_text("utf-8"))
    known = [
        _Format(
            form["kind"],
            tuple(form["hints"].split()),
            form.get("pattern", "").replace("{START}", _START),
            form["shortest"],
            form.get("detector", ""),
        )
        for form in data["formats"]
    ]
    known += chain.from_iterable(map(_commands, data["commands"]))
    generic = known.pop(next(i for i, form in enumerate(known) if form.kind == _GENERIC))
    for row in data["prefixes"]:
        prefixes = row["prefixes"].split()
        pattern = _START + f"(?:{'|'.join(map(re.escape, prefixes))})"
        pattern += _BODY.format(least=row["least"])
        shortest = row["least"] + min(map(len, prefixes))
        known.append(_Format(row["kind"], tuple(prefixes), pattern, shortest))
    return (*known, generic)


def _commands(row: dict[str, str]) -> Iterator[_Format]:
    """Yield the formats of passwords given as arguments of commands."""
    commands = row["commands"].split()
    hints = tuple(
        c for c in commands if not any(shorter != c and shorter in c for shorter in commands)
    )
    for key, gap in (("option", r"(?:\s{1,4}|(?<=[:=]))"), ("glued", "")):
        for option in row.get(key, "").split():
            pattern = (
                rf"\b(?:{'|'.join(map(re.escape, commands))})\b[^\n|;]{{0,200}}?"
                rf"\s{re.escape(option)}{gap}{_ARGUMENT}"
            )
            yield _Format("password", hints, pattern, 0, option=option)


def _looks_drawn(text: str) -> bool:
    """Return whether a text has digits, or mixes cases more than a camelCase name does.

    A token with neither, such as one repeated letter (``AKCAAAAAAAAAA``), is a placeholder.
    """
    if any(map(str.isdigit, text)):
        return True
    return len(_HUMP.findall(text)) > 1 and _CAPITALS.search(text) is not None


def _cookies(text: str) -> Iterator[Span]:
    """Yield the values of session cookies, and random-looking ones."""
    for header in _COOKIES.finditer(text):
        for pair in _COOKIE.finditer(header["pairs"]):
            value = pair["value"]
            random = len(value) >= 20 and any(map(str.isdigit, value)) and "/" not in value
            if random or _SESSION_NAME.search(pair["name"]):
                start = header.start("pairs") + pair.start("value")
                yield start, start + len(value), "cookie"
            if header["set"]:
                break  # the rest are attributes of the cookie


def _is_card(grouped: str) -> bool:
    """Return whether digits in the groups of a payment card are its number: the check is right."""
    number = re.sub(r"\D", "", grouped)
    if not _ISSUED.match(number):
        return False
    digits = [int(digit) for digit in reversed(number)]
    doubled = (digit * 2 - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
