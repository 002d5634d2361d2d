"""Tell in which scripts a text is written.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex

MAX_FOREIGN: Final = 0.2  # of a text's letters, from which it is not written in some scripts
_ANY_LETTER: Final = regex.compile(r"\p{L}")


def is_written_in(text: str, scripts: Sequence[str]) -> bool:
    """Return whether nearly all letters of a text belong to some of these scripts.

    A term of another script in a sentence does not count, nor does what is no letter.

    Args:
        scripts: Unicode names of scripts ("Latin", "Han", ...).
    """
    if text.isascii() and "Latin" in scripts:  # most texts, at once
        return True
    foreign = len(_foreign_letters(tuple(scripts)).findall(text))
    return foreign == 0 or foreign < MAX_FOREIGN * len(_ANY_LETTER.findall(text))


@cache
def _foreign_letters(scripts: tuple[str, ...]) -> regex.Pattern[str]:
    known = "".join(rf"\p{{{script}}}" for script in scripts)
    return regex.compile(rf"[\p{{L}}--[{known}]]", regex.V1)
