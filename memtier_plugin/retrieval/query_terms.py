"""What a question asks for, and what it only says about asking.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Final

from memtier_plugin.text.tokenizer import Tokenizer

# English words by which people put a question to a memory, or say what the answer is to look like.
# They may also be what is asked for ("my shopping list"), so they count less, not nothing.
_ASKING: Final = """
    remember recall remind mention discuss discussion talk tell say said speak ask question answer
    conversation chat session topic aspect summary summarize summarise overview list describe
    explain comprehensive detail order sequence various different specific overall show give
    provide know think please help bring item thing
"""
ASKING_WEIGHT: Final = 0.3  # what such a word counts


def weigh_terms(words: Sequence[str], language: str) -> dict[str, float]:
    """Return how much each word of a query counts: how often it stands there, or less.

    Args:
        words: the query's, as the tokenizer of the language makes them.
    """
    less = _asking() if language == "english" else frozenset[str]()
    return {
        word: n * (ASKING_WEIGHT if word in less else 1.0) for word, n in Counter(words).items()
    }


@cache
def _asking() -> frozenset[str]:
    return frozenset(Tokenizer("english").words(_ASKING))
