"""Names of a project in a query: "ecommerce-api" says which project, and little of what is asked.

Every line of a project may have its name, or a part of it ("api"), so that its parts would outweigh
the topic.  Together they count as one word, and n-grams and vectors leave the name out.  Not every
word with a hyphen is a name: one is known if it is the project's or the agent's, or if what is
stored calls it so ("the ecommerce-api project", "ecommerce-api/").  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.lexicon import words_of

if TYPE_CHECKING:
    from memtier_plugin.storage.readers import Reader

MAX_LINES: Final = 24  # that are read for whether they call it a project
# Possessive, and only from the start of a word: linear in texts without a space.
_IDENTIFIER: Final = regex.compile(r"(?<![\p{L}\p{N}])[\p{L}\p{N}]++(?:[-_.][\p{L}\p{N}]++)++")
_MAX_IDENTIFIERS: Final = 4  # of a query that are looked up
_MAX_CHARS: Final = 64  # of an identifier


def find_identifiers(text: str) -> list[str]:
    """Return the words of several parts that may be names, in lower case."""
    matches = (match[0].casefold() for match in _IDENTIFIER.finditer(text))
    names = (name for name in matches if len(name) <= _MAX_CHARS and _has_letters(name))
    return [*dict.fromkeys(names)][:_MAX_IDENTIFIERS]


def _has_letters(identifier: str) -> bool:
    return identifier[0].isalpha() and identifier[-1].isalpha()


def find_project_names(
    text: str, known: Collection[str], lines_with: Callable[[str], Iterable[str]]
) -> tuple[str, ...]:
    """Return the identifiers of a query that name the project.

    Args:
        known: the names of the project and its agent.
        lines_with: returns some stored texts that have an identifier.
    """
    known = {name.casefold() for name in known}
    return tuple(
        identifier
        for identifier in find_identifiers(text)
        if identifier in known or is_called_project(identifier, lines_with(identifier))
    )


def read_project_names(
    reader: Reader, scopes: Sequence[int], text: str, known: Collection[str]
) -> tuple[str, ...]:
    """Return the same, by what is stored."""
    if not find_identifiers(text):
        return ()

    def lines_with(word: str) -> list[str]:
        rows = [*reader.match_words(scopes, {word: 1.0}, MAX_LINES).rows.get(word, ())]
        return [stored.item.text for stored in reader.items_by_row(rows[:MAX_LINES]).values()]

    return find_project_names(text, known, lines_with)


def is_called_project(identifier: str, texts: Iterable[str]) -> bool:
    """Return whether a text calls an identifier a project, or shows it as a folder."""
    pattern = _naming(identifier)
    return any(pattern.search(text) for text in texts)


@cache
def _naming(identifier: str) -> regex.Pattern[str]:
    name = rf"(?<![\w./-])[`'\"“«]?{regex.escape(identifier)}[`'\"”»]?"
    nouns = "|".join(sorted(map(regex.escape, words_of("project_nouns"))))
    folder = rf"(?m:(?<![\w.-]){regex.escape(identifier)}/(?:\s|$))"
    return regex.compile(
        rf"(?i){name}[\s-]+(?:{nouns})\b|\b(?:{nouns})(?:\s+\w+)?[\s:]+{name}(?![\w/-])|{folder}"
    )


def weigh_names(
    weights: Mapping[str, float], names: Collection[str], words: Callable[[str], list[str]]
) -> dict[str, float]:
    """Return the weights of a query's words where those of each name share that of one word."""
    weighed = dict(weights)
    for name in names:
        parts = [word for word in dict.fromkeys(words(name)) if word in weighed]
        for part in parts:
            weighed[part] = min(weighed[part], 1 / len(parts))
    return weighed


def without_names(text: str, names: Collection[str]) -> str:
    """Return a text without these names; the same text if it has little else."""
    if not names:
        return text
    rest = _IDENTIFIER.sub(lambda match: "" if match[0].casefold() in names else match[0], text)
    return rest if regex.search(r"\p{L}{3}", rest) else text
