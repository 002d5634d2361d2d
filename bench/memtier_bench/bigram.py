"""A one-page language model that expects what followed a word before.  Pure.

The probability of a word mixes how often it followed the previous word in the text so far, how
often it occurred at all, and a share for unseen words. It is a poor language model, but it knows
one thing that a large one knows too: text in the prompt makes its repetition likelier.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

_BIGRAM, _UNIGRAM, _NEW = 0.75, 0.2, 0.05
_VOCABULARY: Final = 10_000  # equally likely words without any evidence
_TOKEN: Final = re.compile(r"\s*\w+|\s*[^\w\s]|\s+$")


def tokenize(text: str) -> list[str]:
    """Return the tokens of a text: words with the spaces before them, and marks."""
    return _TOKEN.findall(text)


def score_tokens(tokens: list[str]) -> list[float | None]:
    """Return the natural logarithm of each token's probability; None for the first."""
    pairs: Counter[tuple[str, str]] = Counter()
    heads: Counter[str] = Counter()
    words: Counter[str] = Counter()
    values: list[float | None] = []
    before = None
    for number, token in enumerate(tokens):
        word = token.strip().casefold()
        if before is None:
            values.append(None)
        else:
            pair = pairs[before, word] / heads[before] if heads[before] else 0.0
            chance = _BIGRAM * pair + _UNIGRAM * words[word] / number + _NEW / _VOCABULARY
            values.append(math.log(chance))
            pairs[before, word] += 1
            heads[before] += 1
        words[word] += 1
        before = word
    return values
