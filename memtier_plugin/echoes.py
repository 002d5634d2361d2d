"""Whether a text only repeats another, in its words or in others.  Pure.

What an agent says after it was shown a line is no second witness of that line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import regex

_SAME: Final = 0.6  # of what a text says, by its words, that must stand in the other
_FIGURES: Final = regex.compile(r"\p{N}[\p{N}.,:/-]*\p{N}|\p{N}|[\w.+-]+@[\w.-]+|https?://\S+")
# Words that everybody says of anything.
_EMPTY: Final = frozenset(
    """
    a an the is are was were be been it its this that these those of to in on at by for with from
    and or but as so has have had do does did will would can could should may might must i you he
    she they we my your his her their our me him them us not no yes user assistant agent note noted
    remember recall memory mentioned said says according earlier previously know known
    """.split()  # noqa: SIM905
)


def repeats(text: str, others: Iterable[str], words: Callable[[str], Sequence[str]]) -> bool:
    """Tell whether a text says no more than one of the others does.

    Its figures and addresses must all stand there, and most of its words.

    Args:
        words: how a text is taken apart, with word endings removed.
    """
    said = {word for word in words(text) if word not in _EMPTY}
    figures = {*_FIGURES.findall(text.casefold())}
    if not said:
        return False
    for other in others:
        known = set(words(other))
        if len(said & known) < _SAME * len(said):
            continue
        if figures <= {*_FIGURES.findall(other.casefold())}:
            return True
    return False
