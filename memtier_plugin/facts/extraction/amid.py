"""Judge whether a sentence of a longer message is worth keeping.  Pure.

Most of a long message concerns the task at hand: a pasted plan, a story, a role to play, the next
steps.  What lasts is mostly in the first person, though not everything in the first person lasts.
The model is logistic: the features of `retrieval.worth`, and how many sentences surround this one.
`scripts/fit_worth.py` fits it.
"""

from __future__ import annotations

import math
from typing import Final

from memtier_plugin.facts.extraction.reading import find_verb, orders, speaks_of_self
from memtier_plugin.retrieval.worth import features, vector, weigh
from memtier_plugin.text.phrases import Words

MODEL: Final = "amid"
MOST: Final = 20  # sentences around one; more make no difference


def amid(words: Words, others: int) -> float:
    """Return the odds, as a logarithm, that a sentence is worth keeping.

    Args:
        others: how many other sentences its message has.
    """
    return weigh(features_amid(words, others), vector(words.text), MODEL)


def features_amid(words: Words, others: int) -> dict[str, float]:
    """Return what a sentence is judged by, apart from its vector."""
    values = features(words)
    many, first = math.log1p(min(others, MOST)), float(speaks_of_self(words))
    return values | {
        "many": many,
        "self": first,
        "self, many": first * many,
        "verb": float(find_verb(words) is not None),
        "alone": weigh(values, vector(words.text)),
        "orders": float(orders(words)),
    }
