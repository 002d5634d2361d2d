"""The log-probabilities that a model gives the tokens of a text.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Self

_MAX_START: Final = 16  # characters of a mark that a server puts before the text


@dataclass(frozen=True, slots=True)
class ScoredText:
    """The tokens of a text, each with its log-probability; ``read`` counts those that are charged.

    A token may be a part of a character, which servers give as a mark of their own. So positions
    are counted in ASCII characters: ``starts`` has that of each token.
    """

    starts: Sequence[int]
    logprobs: Sequence[float | None]
    read: int

    @classmethod
    def of(
        cls, text: str, tokens: Sequence[str], logprobs: Sequence[float | None], read: int | None
    ) -> Self | None:
        """Return the tokens of a text as a server echoed them; None where these are not of it.

        Raises:
            ValueError: a token has no log-probability, or one that is no number.
        """
        wanted, echoed = _ascii(text), _ascii("".join(tokens))
        before = echoed.find(wanted)
        if not tokens or not 0 <= before <= _MAX_START:
            return None
        if len(tokens) != len(logprobs):
            raise ValueError(f"{len(logprobs)} log-probabilities for {len(tokens)} tokens")
        if not all(value is None or math.isfinite(value) for value in logprobs):
            raise ValueError("a log-probability that is no number")
        lengths = [len(_ascii(token)) for token in tokens]
        starts = [start - before for start in [0, *accumulate(lengths)][: len(tokens)]]
        inside = sum(start < len(wanted) for start in starts)  # else what it went on to write
        return cls(starts[:inside], logprobs[:inside], read or inside)

    def after(self, beginning: str, most: int) -> list[float]:
        """Return the log-probabilities of the first tokens after the beginning of the text."""
        length = len(_ascii(beginning))
        later = zip(self.starts, self.logprobs, strict=True)
        values = [value for start, value in later if start >= length and value is not None]
        return values[:most]


def _ascii(text: str) -> str:
    return "".join(filter(str.isascii, text))
