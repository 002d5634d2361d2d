"""Find where a quote stands in the recorded entries, whatever a model says about it.  Pure.

Quote and text are compared in a normal form (NFKC, casefolded, single spaces, straight quotation
marks and dashes, no zero-width characters); the span is given in the original.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry

MAX_SPANS_PER_ENTRY: Final = 8  # of one quote: a more frequent one is no evidence
_MAX_TRIES: Final = 500  # of one quote in one entry, including matches within words
_MAX_CHARS: Final = 200_000  # of one entry that are searched

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


@dataclass(frozen=True, slots=True)
class QuoteSpan:
    """The place of a quote: an entry, and the span of its content."""

    entry: Entry
    start: int
    end: int

    @property
    def text(self) -> str:
        """The quote as it was written."""
        return self.entry.content[self.start : self.end]


def normalise_quote(text: str) -> str:
    """Return the form in which quotes are compared, without punctuation at its edges."""
    return _plain(text)[0].strip(_EDGE)


def find_quotes(
    quote: str, entries: Sequence[Entry], hint: str | None = None
) -> Iterator[QuoteSpan]:
    """Yield the places of a quote: first in the hinted entry, then in the others in their order.

    A quote begins and ends with whole words; entries of the system are not searched.
    """
    normal = normalise_quote(quote)
    if not normal:
        return
    for entry in sorted(entries, key=lambda entry: entry.id != hint):
        if entry.retrievable:
            for start, end in _spans(normal, entry.content[:_MAX_CHARS]):
                yield QuoteSpan(entry, start, end)


def find_quote(quote: str, entries: Sequence[Entry], hint: str | None = None) -> QuoteSpan | None:
    """Return the first place of a quote, or None."""
    return next(find_quotes(quote, entries, hint), None)


def _spans(normal: str, content: str) -> Iterator[tuple[int, int]]:
    plain, begins, ends = _plain(content)
    position, count, tries = plain.find(normal), 0, 0
    while position >= 0 and count < MAX_SPANS_PER_ENTRY and tries < _MAX_TRIES:
        tries += 1
        last = position + len(normal) - 1
        if _is_whole(plain, position, last + 1, begins, ends):
            start, end = begins[position], ends[last]
            count += 1
            yield start, end
        position = plain.find(normal, position + 1)


def _is_whole(plain: str, start: int, end: int, begins: Sequence[int], ends: Sequence[int]) -> bool:
    """Check whether a span of a normal form begins and ends with whole words and characters."""
    if start and (begins[start - 1] == begins[start] or _continues(plain, start)):
        return False
    return end == len(plain) or not (ends[end] == ends[end - 1] or _continues(plain, end))


def _continues(plain: str, position: int) -> bool:
    """Check whether a word, a number or a compound continues across a position."""
    left, right = plain[position - 1], plain[position]
    if _UNSPACED.match(left) or _UNSPACED.match(right):
        return False
    if _WORD.match(left) and _WORD.match(right):
        return True
    # 5 is not in 1.5, can not in can't, sugar not in sugar-free, and a sign belongs to its number.
    before, after = plain[position - 2 : position - 1], plain[position + 1 : position + 2]
    if right in "-'.,:/@%" and _WORD.match(left) and after and _WORD.match(after):
        return right not in ".,:" or (left.isdigit() and after.isdigit())
    if left in "-'.,:/@" and _WORD.match(right):
        if before and _WORD.match(before):
            return left not in ".,:" or (before.isdigit() and right.isdigit())
        return left == "-" and right.isdigit()
    return False


@lru_cache(256)  # every claim about a batch searches its entries
def _plain(text: str) -> tuple[str, Sequence[int], Sequence[int]]:
    """Return the normal form, and the span in the original of each of its characters."""
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
