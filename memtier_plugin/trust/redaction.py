"""Replace secrets, and optionally personal numbers, by ``[redacted:kind]`` before writing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Final

from memtier_plugin.core import concurrency
from memtier_plugin.trust.secret_codes import (
    ACCESS_CODE,
    find_codes,
    find_seed_phrases,
    hints_of_codes,
)
from memtier_plugin.trust.secret_formats import (
    Hints,
    Span,
    find_formats,
    fold_wide,
    without_breaks,
    without_unseen,
)
from memtier_plugin.trust.secret_settings import HINTS, find_assigned, find_settings
from memtier_plugin.trust.secret_statements import find_statements, hints_of_statements

# -- Find account and identity numbers by their form and check digits.  Pure
#
# Not everyone considers them secret, so masking them is optional (`redaction.personal_numbers`).

_IBAN: Final = re.compile(r"\b[A-Z]{2}\d\d(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,3})?\b")
_SSN: Final = re.compile(r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w-])")
_NIR: Final = re.compile(  # France
    r"(?<!\w)[12][ ]?\d\d[ ]?(?:0[1-9]|1[0-2])[ ]?(?:\d\d|2[AB])[ ]?\d{3}[ ]?\d{3}[ ]?\d\d(?!\w)"
)
_DNI: Final = re.compile(r"(?<!\w)[XYZ\d]\d{7}-?[A-HJ-NP-TV-Z](?!\w)")  # Spain
_DNI_LETTERS: Final = "TRWAGMYFPDXBNJZSQVHLCKE"


def find_personal_numbers(text: str) -> Iterator[Span]:
    """Yield IBANs, and the insurance or identity numbers of the US, France and Spain."""
    for match in _IBAN.finditer(text):
        if end := _iban_end(match[0]):
            yield match.start(), match.start() + end, "iban"
    for match in _SSN.finditer(text):
        yield *match.span(), "personal-number"
    for match in _NIR.finditer(text):
        digits = match[0].replace(" ", "").replace("2A", "19").replace("2B", "18")
        if 97 - int(digits[:-2]) % 97 == int(digits[-2:]):
            yield *match.span(), "personal-number"
    for match in _DNI.finditer(text):
        number = match[0][:-1].rstrip("-").translate(str.maketrans("XYZ", "012"))
        if _DNI_LETTERS[int(number) % 23] == match[0][-1]:
            yield *match.span(), "personal-number"


def _iban_end(text: str) -> int:
    """Return how many leading characters of a text are an IBAN; capitalised words may follow it."""
    while len(plain := text.replace(" ", "")) >= 15:
        if int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1:
            return len(text)
        text = text.rpartition(" ")[0]
    return 0


# -- Replace secrets by ``[redacted:kind]`` before anything is written
#
# Kinds of evidence: the formats of keys, tokens and structures that hold a secret
# (`secret_formats`), names that announce one and settings in files (`secret_settings`), statements
# in prose (`secret_statements`), door and card codes and wallet phrases (`secret_codes`). All
# search the text as a reader sees it: full-width characters become plain, invisible ones are
# dropped, and tokens are joined across line ends (`secret_formats`).

_MARKER: Final = re.compile(r"(\[redacted:[a-z0-9-]+\])")
_SHORTEST_NAME: Final = 8  # characters of a name that may hold a secret
_LONGEST_NAME: Final = 256  # characters of a cached name
_NAMES: Final = 512  # cached with their masked forms
_UNGUESSABLE: Final = 20  # bytes of a secret that no brute force can find
_TAIL_CHARS: Final = 6  # characters of a token on its second line, one of them a digit


@dataclass(frozen=True, slots=True)
class RedactedText:
    """A text with its secrets masked, and their kinds in order, each once."""

    text: str
    kinds: tuple[str, ...] = ()


class Redactor:
    """Finds secrets in a text and masks them.

    A span that ``allow`` (exact texts or regular expressions) matches as a whole is kept.
    ``extra`` yields further spans of a text (start, end, kind); its errors propagate, so that no
    text is written unchecked.  ``personal_numbers`` also masks IBANs, personal numbers and door
    codes.
    """

    def __init__(
        self,
        allow: Sequence[str] = (),
        enabled: bool = True,
        extra: Callable[[str], Iterable[Span]] | None = None,
        *,
        personal_numbers: bool = False,
    ) -> None:
        self._enabled = enabled
        self._extra = extra
        self._personal_numbers = personal_numbers
        self._exact = frozenset(allow)
        self._patterns = tuple(filter(None, map(_compiled, allow)))
        # The same few names recur in every message.
        self._remembered_name = lru_cache(_NAMES)(self._masked_name)

    def redact(self, text: str) -> RedactedText:
        """Return the text with every secret masked; the operation is idempotent."""
        kinds: dict[str, None] = {}
        changed = self._enabled
        while changed:
            concurrency.require()
            # Text between markers only shrinks, so the loop ends, nearly always after two rounds.
            pieces = _MARKER.split(text)
            changed = False
            for index in range(0, len(pieces), 2):
                if secret_spans := [*self._spans(pieces[index])]:
                    changed = True
                    spans = _merged(secret_spans)
                    pieces[index] = _replaced(pieces[index], spans)
                    kinds.update(dict.fromkeys(kind for _, _, kind in spans))
            if changed:
                text = "".join(pieces)
        return RedactedText(text, tuple(kinds))

    def redact_name(self, name: str) -> str:
        """Return a name (of a session, a run, a sender, a tool) with its secrets masked.

        Names identify things, so the marker includes a few bytes of the secret's hash: two if the
        secret could be guessed, six if not.  A plain number is a name, not a secret.
        """
        if not self._enabled or len(name) < _SHORTEST_NAME or not name.strip("0123456789+- "):
            return name
        return (self._remembered_name if len(name) <= _LONGEST_NAME else self._masked_name)(name)

    def _masked_name(self, name: str) -> str:
        """Return a name with its secrets masked."""
        if not self.redact(name).kinds:
            return name
        pieces = _MARKER.split(name)
        for index in range(0, len(pieces), 2):
            piece = pieces[index]
            spans = []
            for start, end, kind in _merged(self._spans(piece)):
                secret = piece[start:end].encode("utf-8", "surrogatepass")
                size = 6 if len(secret) >= _UNGUESSABLE else 2
                digest = hashlib.blake2b(secret, digest_size=size).hexdigest()
                spans.append((start, end, f"{kind}-{digest}"))
            pieces[index] = _replaced(piece, spans)
        # Secrets that appear only after the first are masked get no hash.
        return self.redact("".join(pieces)).text

    def _spans(self, text: str) -> Iterator[Span]:
        if not text:
            return
        numbers = find_personal_numbers(fold_wide(text)) if self._personal_numbers else ()
        for start, end, kind in chain(_find_secrets(text), numbers):
            chosen = kind != ACCESS_CODE or self._personal_numbers
            if chosen and not self._allowed(text[start:end]):
                yield start, end, kind
        for start, end, kind in self._extra(text) if self._extra else ():
            if 0 <= start < end <= len(text) and not self._allowed(text[start:end]):
                yield start, end, re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-") or "secret"

    def _allowed(self, secret: str) -> bool:
        return secret in self._exact or any(p.fullmatch(secret) for p in self._patterns)


def _compiled(rule: str) -> re.Pattern[str] | None:
    try:
        return re.compile(rule)
    except re.error:  # an exact text that is no regular expression
        return None


def _find_secrets(text: str) -> Iterator[Span]:
    """Yield the secrets in a text as a reader sees it."""
    view = None
    if not text.isascii():
        text = fold_wide(text)
        view = without_unseen(text)
    yield from _find_in_view(text)
    seen = text
    if view:
        seen = view.text
        for start, end, kind in _find_in_view(seen):
            yield *view.span(start, end), kind
    if "\n" in seen:
        for start, end, kind in _find_broken(seen):
            yield *(view.span(start, end) if view else (start, end)), kind


def _find_in_view(text: str) -> Iterator[Span]:
    """Yield the secrets of a text; of two equal spans, the better-known kind comes first."""
    lower = text.lower()
    hints = _hints().within(lower.split())
    yield from find_formats(text)
    yield from find_seed_phrases(text, lower, hints)
    yield from find_assigned(text, hints)
    yield from find_settings(text, hints)
    yield from find_statements(text, hints)
    yield from find_codes(text, hints)


@cache
def _hints() -> Hints:
    """Return the plain texts, in lower case, of which a text has some or is not searched."""
    return Hints(chain(HINTS, hints_of_statements(), hints_of_codes()))


def _find_broken(text: str) -> Iterator[Span]:
    """Yield the tokens that continue on the next line."""
    view = without_breaks(text)
    if view is None:
        return
    for start, end, kind in find_formats(view.text, tokens_only=True):
        for joint in reversed(view.joins_within(start, end)):
            tail = view.text[joint:end]
            if len(tail) >= _TAIL_CHARS and any(map(str.isdigit, tail)):
                yield *view.span(start, end), kind
                break
            end = joint  # the next line starts with another word


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return disjoint spans in order; of overlapping spans, the first found determines the kind."""
    merged: list[tuple[int, int, int, str]] = []
    for start, end, rank, kind in sorted((s, e, rank, k) for rank, (s, e, k) in enumerate(spans)):
        if merged and start < merged[-1][1]:
            old = merged[-1]
            best = min((old[2], old[3]), (rank, kind))
            merged[-1] = (old[0], max(old[1], end), *best)
        else:
            merged.append((start, end, rank, kind))
    return [(start, end, kind) for start, end, _, kind in merged]


def _replaced(text: str, spans: Iterable[Span]) -> str:
    parts, done = [], 0
    for start, end, kind in spans:
        parts += [text[done:start], f"[redacted:{kind}]"]
        done = end
    return "".join([*parts, text[done:]])
