"""Attribute an answer to the lines of a block by a model's log-probabilities.  Pure.

The affinity of line i is how much likelier the line makes each token of the answer y, given the
context C of block and prompt: a_i = max(0, mean_t(log p(y_t | C) - log p(y_t | C without line i))).
MemTier (section 3.3) mentions such a proxy without a formula: the mean over tokens, the floor at 0
and leaving out one line at a time are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from memtier_papers.memtier.scoring import ScoredText

MAX_ANSWER_TOKENS: Final = 256  # of the answer that are scored
_ANSWER_CHARS: Final = 8 * MAX_ANSWER_TOKENS  # of the answer that are sent


def context_of(lines: Sequence[str], prompt: str) -> str:
    """Return a context in the form for a model without a chat format."""
    return "\n".join([*lines, "", f"User: {prompt}", "Assistant:"])


def leave_one_out(
    lines: Sequence[str], prompt: str, answer: str, score: Callable[[str], ScoredText]
) -> list[float]:
    """Return the affinity of each line to the answer, in nats per token, at least 0.

    The answer is scored once with all lines, and once without each.

    Raises:
        ValueError: the answer has no token.
    """
    answer = answer[:_ANSWER_CHARS].strip()

    def mean_logprob(shown: Sequence[str]) -> float:
        context = context_of(shown, prompt)
        scored = score(f"{context} {answer}")
        values = scored.after(context, MAX_ANSWER_TOKENS) if answer else []
        if not values:
            raise ValueError("no token of the answer was scored")
        return math.fsum(values) / len(values)

    whole_block = mean_logprob(lines)
    without = [mean_logprob([*lines[:i], *lines[i + 1 :]]) for i in range(len(lines))]
    return [max(0.0, whole_block - value) for value in without]
