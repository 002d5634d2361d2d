"""Views of a text that rejoin broken tokens, and searches that read a text in steps."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

# Characters that are not seen: they part a token for a pattern, and for no reader.
INVISIBLE: Final = "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
INVISIBLE_MORE: Final = "\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f"
UNSEEN: Final = re.compile(f"[{INVISIBLE}{INVISIBLE_MORE}]+")
_STEP: Final = 4096  # characters that a search reads before another thread may have its turn
_REACH: Final = 1024  # characters of the longest match
_WIDE: Final = re.compile("[\uff01-\uff5e\u3000]")
_FOLD: Final = {
    0x3000: " ",
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
}
_TOKEN: Final = r"[A-Za-z0-9_+/=.-]"
_BREAK: Final = re.compile(  # behind a row of characters as in tokens, with a digit among them
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
        """Return the positions in a span where something was left out."""
        first, last = bisect_right(self._starts, start), bisect_right(self._starts, end - 1)
        return self._starts[max(first, 1) : last]

    def place(self, at: int) -> int:
        """Return the position in the text of a position in the view."""
        return at + self._shifts[bisect_right(self._starts, at) - 1]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the text behind a span of the view."""
        return self.place(start), self.place(end - 1) + 1


def fold_wide(text: str) -> str:
    """Return a text of the same length with full-width characters as plain ones."""
    return text.translate(_FOLD) if _WIDE.search(text) else text


def without_unseen(text: str) -> TextView | None:
    """Return the view without invisible characters, or None if the text has none."""
    if text.isascii():
        return None
    spans = [match.span() for match in UNSEEN.finditer(text)]
    return TextView(text, spans) if spans else None


def without_breaks(text: str) -> TextView | None:
    """Return the view with tokens joined across line ends, or None if none may be."""
    if "\n" not in text:
        return None
    spans = [match.span("cut") for match in _BREAK.finditer(text)]
    return TextView(text, spans) if spans else None


def matches_in_steps(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield what ``finditer`` does, of a pattern whose matches are short, in short calls.

    A call holds the interpreter for as long as it takes, and one over a long text may take a tenth
    of a second in which no other request is answered.
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
