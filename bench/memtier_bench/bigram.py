"""A language model that fits on a page: it expects what followed a word before. Pure.

The probability of a word is that of its following the word before it, as often as it did so in the
text so far, mixed with how often the word occurred at all and with a word never seen. It is no
model of language, but it knows one thing that a large one knows too: what stands in the prompt
makes its repetition likelier.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

_BIGRAM, _UNIGRAM, _NEW = 0.75, 0.2, 0.05
_VOCABULARY: Final = 10_000  # words that are as likely as any other where nothing is known
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
