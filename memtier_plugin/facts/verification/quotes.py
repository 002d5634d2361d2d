"""Where a quote stands in what was said: found by code, in the words as they were written.  Pure.

Quote and text are compared in a normal form (NFKC, casefolded, one space, straight quotation marks
and dashes, nothing of no width), and the place is given in the original.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import regex

from memtier_plugin.core.records import Entry
from memtier_plugin.trust.fence import FENCE

MAX_SPANS_PER_ENTRY: Final = (
    8  # of one quote that are looked at; who quotes "I love" means none of them
)
_MOST_TRIES: Final = 500  # of one quote in one entry, within words too: "aaaa" stands in itself
_LONGEST: Final = 200_000  # characters of one entry that are searched

_EDGE: Final = (
    " \t\"'`*_.,;:!?()[]{}\u2026\u3002\u3001\uff0c\uff1b\uff1a\uff01\uff1f\u300c\u300d\u300e\u300f"
)
_STRAIGHT: Final = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4`\u2039\u203a"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb"), '"'),
    **dict.fromkeys([*range(0x2010, 0x2016), 0x2212, 0x2043], "-"),
}
_CLUSTER: Final = regex.compile(r"\X")
_NO_WIDTH: Final = regex.compile(r"[\p{Cf}\p{Cc}--\s]", regex.V1)
_SPACES: Final = regex.compile(r"\s+")
_UNSPACED: Final = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}]")
_WORD: Final = regex.compile(r"[\p{L}\p{M}\p{N}_]")
# Our own block in a recorded message: what was recalled is no evidence for itself.
_OWN: Final = regex.compile(rf"<{FENCE}\b.*?(?:</{FENCE}>|\Z)", regex.DOTALL | regex.IGNORECASE)


@dataclass(frozen=True, slots=True)
class QuoteSpan:
    """Where a quote stands: an entry, and the span of its content."""

    entry: Entry
    start: int
    end: int

    @property
    def text(self) -> str:
        """What stands there."""
        return self.entry.content[self.start : self.end]


def normalise_quote(text: str) -> str:
    """Return the form in which quotes are compared, without the marks at its edges."""
    return _plain(text)[0].strip(_EDGE)


def find_quotes(
    quote: str, entries: Sequence[Entry], hint: str | None = None
) -> Iterator[QuoteSpan]:
    """Yield the places of a quote: of the hinted entry first, then of the others in their order.

    A quote begins and ends with whole words; the system's own entries are not looked at.
    """
    wanted = normalise_quote(quote)
    if not wanted:
        return
    for entry in sorted(entries, key=lambda entry: entry.id != hint):
        if entry.retrievable:
            for start, end in _spans(wanted, entry.content[:_LONGEST]):
                yield QuoteSpan(entry, start, end)


def find_quote(quote: str, entries: Sequence[Entry], hint: str | None = None) -> QuoteSpan | None:
    """Return the first place of a quote, or None where it stands nowhere."""
    return next(find_quotes(quote, entries, hint), None)


def _spans(wanted: str, content: str) -> Iterator[tuple[int, int]]:
    plain, begins, ends = _plain(content)
    own: list[tuple[int, int]] | None = None
    at, found, tries = plain.find(wanted), 0, 0
    while at >= 0 and found < MAX_SPANS_PER_ENTRY and tries < _MOST_TRIES:
        tries += 1
        last = at + len(wanted) - 1
        if _whole(plain, at, last + 1, begins, ends):
            start, end = begins[at], ends[last]
            if own is None:
                own = [match.span() for match in _OWN.finditer(content)]
            if not any(start < o_end and o_start < end for o_start, o_end in own):
                found += 1
                yield start, end
        at = plain.find(wanted, at + 1)


def _whole(plain: str, start: int, end: int, begins: Sequence[int], ends: Sequence[int]) -> bool:
    """Tell whether a span of a normal form begins and ends with whole words and characters."""
    if start and (begins[start - 1] == begins[start] or _joined(plain, start)):
        return False
    return end == len(plain) or not (ends[end] == ends[end - 1] or _joined(plain, end))


def _joined(plain: str, at: int) -> bool:
    """Tell whether a word, a number or a compound goes on across a place."""
    left, right = plain[at - 1], plain[at]
    if _UNSPACED.match(left) or _UNSPACED.match(right):
        return False
    if _WORD.match(left) and _WORD.match(right):
        return True
    # 5 is not in 1.5, can not in can't, sugar not in sugar-free, and a sign belongs to its number.
    before, after = plain[at - 2 : at - 1], plain[at + 1 : at + 2]
    if right in "-'.,:/@%" and _WORD.match(left) and after and _WORD.match(after):
        return right not in ".,:" or (left.isdigit() and after.isdigit())
    if left in "-'.,:/@" and _WORD.match(right):
        if before and _WORD.match(before):
            return left not in ".,:" or (before.isdigit() and right.isdigit())
        return left == "-" and right.isdigit()
    return False


@lru_cache(256)  # the entries of a batch are searched for every claim about them
def _plain(text: str) -> tuple[str, Sequence[int], Sequence[int]]:
    """Return the normal form, and for each of its characters where the original begins and ends."""
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.lower().replace("`", "'"), range(len(text)), range(1, len(text) + 1)
    pieces: list[str] = []
    begins: list[int] = []
    ends: list[int] = []
    spaced = False
    for cluster in _CLUSTER.finditer(text):
        form = _SPACES.sub(" ", unicodedata.normalize("NFKC", cluster[0]).translate(_STRAIGHT))
        form = unicodedata.normalize("NFKC", _NO_WIDTH.sub("", form).casefold())
        if form == " " and spaced:
            continue
        if form:
            spaced = form == " "
            pieces.append(form)
            begins.extend([cluster.start()] * len(form))
            ends.extend([cluster.end()] * len(form))
    return "".join(pieces), begins, ends
