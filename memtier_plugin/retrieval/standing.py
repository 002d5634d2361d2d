"""Standing instructions that hold for a task although they share no words with it.

"Start every argument name with i_" is what a task to write a function needs, and no measure of
likeness tells.  An instruction holds where it names what the task is about (a function, an e-mail),
or an aspect that any work of that domain has (naming, comments), or how to answer at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

import regex

from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.hits import entry_hit
from memtier_plugin.retrieval.prompt_words import split_words
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.lexicon import Words, lexicons, words_of

MAX_LINES: Final = 4  # of standing instructions in a block
_READ: Final = 64  # instructions that are looked at, the newest
_MAX_CHARS: Final = 2_000  # of a text that is looked at
_NAMED, _ASPECT = 2, 1  # how well an instruction suits
# Somebody's promise to follow an instruction, not the instruction.
_PROMISE: Final = regex.compile(r"(?i)\b(?:I|we)(?:['’]ll| will)\b(?! (?:need|want|ask|expect))")


def read_standing(reader: Reader, viewer: Viewer) -> list[Hit]:
    """Return the newest standing instructions that a viewer may see."""
    scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)
    rows = reader.standing_rows(scopes, _READ)
    stored = reader.items_by_row(rows)
    return [entry_hit(stored[row], 0.0, {}) for row in rows if row in stored]


def select_standing(prompt: str, hits: Iterable[Hit]) -> list[Hit]:
    """Return the few instructions that hold for a task, the best suited first, then the newest.

    Args:
        hits: the newest first.
    """
    words = frozenset(split_words(prompt[:_MAX_CHARS]))
    suited = [(suits(words, hit.text), hit) for hit in hits if not _PROMISE.search(hit.text)]
    suited = [(degree, hit) for degree, hit in suited if degree]
    suited.sort(key=lambda pair: -pair[0])
    return [hit for _, hit in suited[:MAX_LINES]]


def suits(task: Words, instruction: str) -> int:
    """Return how well an instruction suits the words of a task; 0 if it does not."""
    words = frozenset(split_words(instruction[:_MAX_CHARS]))
    degree, named = 0, False
    for domain, own in _domains("domains").items():
        aspects = _domains("style_words").get(domain, frozenset())
        named = named or not words.isdisjoint(own | aspects)
        if task.isdisjoint(own):
            continue
        if not words.isdisjoint(own & task):
            degree = _NAMED
        elif not words.isdisjoint(aspects):
            degree = max(degree, _ASPECT)
    if not degree and not named and not words.isdisjoint(words_of("answering")):
        return _ASPECT
    return degree


@cache
def _domains(name: str) -> dict[str, Words]:
    """Return the words of each domain over all languages."""
    domains: dict[str, set[str]] = {}
    for words in lexicons():
        for domain, own in getattr(words, name).items():
            domains.setdefault(domain, set()).update(own)
    return {domain: frozenset(own) for domain, own in domains.items()}
