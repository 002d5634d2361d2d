"""A person's writing style, as the counts of their character n-grams.  Pure.

After True Memory (speaker style vectors): character 3-, 4- and 5-grams of the lower-case text, each
hashed into one of 256 buckets, and the unit vectors of a speaker's lines averaged.  Sums and counts
are stored and the mean is computed on reading, as repeatedly normalising a running mean makes it
drift.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import md5
from typing import Final

from memtier_plugin.text.tokenizer import normalise

BUCKETS: Final = 256
_SIZES: Final = (3, 4, 5)
_MAX_CHARS: Final = 2_000  # of a line

Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StyleVector:
    """The style of some lines: the sum of their unit vectors, and their number."""

    sums: Vector = (0.0,) * BUCKETS
    lines: int = 0

    @classmethod
    def of(cls, texts: Iterable[str]) -> StyleVector:
        """Add up the vectors of lines; a line shorter than three characters has none."""
        vectors = [vector for text in texts if any(vector := text_vector(text))]
        sums = tuple(math.fsum(column) for column in zip(*vectors, strict=True))
        return cls(sums or cls().sums, len(vectors))

    @property
    def mean(self) -> Vector:
        """The unit vector of the lines; all 0 without any."""
        return _unit(self.sums)

    def likeness(self, text: str) -> float:
        """Return the cosine of a text to these lines, 0 to 1."""
        return cosine(text_vector(text), self.mean)


def text_vector(text: str) -> Vector:
    """Return the unit vector (`BUCKETS`) of a text's n-grams; all 0 for one too short for any."""
    [flat] = normalise(text[:_MAX_CHARS])
    counts = [0.0] * BUCKETS
    for size in _SIZES:
        for start in range(len(flat) - size + 1):
            counts[_bucket(flat[start : start + size])] += 1.0
    return _unit(counts)


def cosine(vector: Vector, other: Vector) -> float:
    """Return the cosine of two unit vectors."""
    return math.fsum(map(float.__mul__, vector, other))


def _unit(values: Sequence[float]) -> Vector:
    length = math.sqrt(math.fsum(value * value for value in values))
    return tuple(value / length for value in values) if length else tuple(values)


@lru_cache(maxsize=50_000)
def _bucket(gram: str) -> int:
    digest = md5(gram.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "little") % BUCKETS
