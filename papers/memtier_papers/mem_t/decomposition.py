"""Split a question about several people, things or times by rules, without a model.  Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from memtier_plugin.text.lexicon import lexicon

MAX_PARTS: Final = 4
_LONGEST_CONJUNCT: Final = 3  # words
_MAX_CHARS: Final = 2_000  # of a question
_WORD: Final = re.compile(r"[\w'\u2019-]+|[^\w\s]")
_CONJUNCTIONS: Final = frozenset({"and", "or", "vs", "versus", "than", "&"})
_BEFORE_CONJUNCT: Final = frozenset(
    {"a", "an", "the", "his", "her", "my", "their", "our", "your", "in", "on", "at", "with", "for"}
)


def take_parts(question: str) -> list[str]:
    """Return the question once for each of the things it joins.

    A thing is up to three words without function words; names join only with names.

    Returns:
        at most `MAX_PARTS` questions; none if nothing is joined.
    """
    tokens = _WORD.findall(question[:_MAX_CHARS])
    joints = [i for i, token in enumerate(tokens) if token.casefold() in _CONJUNCTIONS]
    if joints:  # a comma joins only in a list closed by a conjunction
        joints += [i for i, token in enumerate(tokens) if token == "," and i < joints[-1]]
    parts: list[str] = []
    for joint in sorted(joints):
        start, first, end = _conjuncts(tokens, joint)
        if start < joint and first < end:
            parts += (
                " ".join(tokens[:joint] + tokens[end:]),
                " ".join(tokens[:start] + tokens[first:]),
            )
    return [*dict.fromkeys(parts)][:MAX_PARTS]


def _conjuncts(tokens: Sequence[str], joint: int) -> tuple[int, int, int]:
    """Return where the thing before a joint starts, and the span of the thing after it."""
    first = joint + 1
    while first < len(tokens) and tokens[first].casefold() in _BEFORE_CONJUNCT:
        first += 1
    joins_names = joint > 0 and _is_name(tokens[joint - 1])
    joins_names = joins_names and first < len(tokens) and _is_name(tokens[first])
    belongs = _is_name if joins_names else _is_content
    start, end = joint, first
    while start and joint - start < _LONGEST_CONJUNCT and belongs(tokens[start - 1]):
        start -= 1
    while end < len(tokens) and end - first < _LONGEST_CONJUNCT and belongs(tokens[end]):
        end += 1
    return start, first, end


def _is_name(token: str) -> bool:
    return token[:1].isupper() and _is_content(token)


def _is_content(token: str) -> bool:
    folded = token.casefold()
    joins = folded in _CONJUNCTIONS
    return token[:1].isalnum() and not joins and folded not in lexicon("english").stop_words
