"""A drop-in for `regex` that compiles each pattern on first use, which keeps start-up short."""

from __future__ import annotations

from typing import Any, Final

import regex
from regex import (
    IGNORECASE,
    MULTILINE,
    V1,
    VERBOSE,
    VERSION1,
    I,
    Match,
    Pattern,
    escape,
    findall,
    fullmatch,
    match,
    search,
    sub,
)

__all__ = [
    "IGNORECASE",
    "MULTILINE",
    "V1",
    "VERBOSE",
    "VERSION1",
    "I",
    "Match",
    "Pattern",
    "compile",
    "escape",
    "findall",
    "fullmatch",
    "match",
    "search",
    "sub",
]

_METHODS: Final = (
    *("search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn", "subf"),
    *("pattern", "flags", "groups", "groupindex", "scanner", "named_lists"),
)


class _LazyPattern:
    """A pattern that compiles itself on first use and then keeps the compiled methods."""

    __slots__ = ("_arguments", *_METHODS)

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:  # reached only for slots that are not filled yet
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = regex.compile(*self._arguments)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(self, name)


def compile(pattern: str, flags: int = 0) -> Pattern[str]:
    """Return a pattern that compiles itself on first use."""
    lazy: Any = _LazyPattern(pattern, flags)
    return lazy
