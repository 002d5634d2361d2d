"""Judging a short answer against the expected one, as MemTier 4.1 does without an LLM.  Pure.

Soft exact match as published: after normalising, one string holds the other.  That takes "art" for
right where "party" is expected, so a stricter form stands beside it: the tokens of one hold those
of the other, in order and whole.  F1 is SQuAD 2.0's overlap of tokens (Rajpurkar et al. 2018).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memtier_plugin.bench.intervals import bootstrap_interval, wilson_interval

_ARTICLES: Final = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderAnswer:
    """What a reader said to a question, how right it is, and what it cost."""

    text: str
    soft_em: bool
    soft_em_tokens: bool
    f1: float
    prompt_tokens: int = 0
    completion_tokens: int = 0


def normalise_answer(text: str) -> str:
    """Return text in lower case, without ASCII punctuation, articles and extra spaces."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def soft_em(said: str, expected: str) -> bool:
    """Tell whether one answer holds the other, character by character (as published).

    An answer that is empty when normalised is right only if the other is too: every text holds it.
    """
    one, other = normalise_answer(said), normalise_answer(expected)
    return (one in other or other in one) if one and other else one == other


def soft_em_tokens(said: str, expected: str) -> bool:
    """Tell whether the tokens of one answer stand in the other, in a row and whole."""
    one, other = normalise_answer(said), normalise_answer(expected)
    if not one or not other:
        return one == other
    first, second = f" {one} ", f" {other} "
    return first in second or second in first


def token_f1(said: str, expected: str) -> float:
    """Return the harmonic mean of precision and recall over the tokens, counted as a multiset."""
    one, other = normalise_answer(said).split(), normalise_answer(expected).split()
    if not one or not other:
        return float(one == other)
    shared = (Counter(one) & Counter(other)).total()
    return 2 * shared / (len(one) + len(other))


def judge_answer(
    said: str, expected: str, prompt_tokens: int = 0, completion_tokens: int = 0
) -> ReaderAnswer:
    """Return an answer with everything that is counted of it."""
    return ReaderAnswer(
        text=said,
        soft_em=soft_em(said, expected),
        soft_em_tokens=soft_em_tokens(said, expected),
        f1=token_f1(said, expected),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )


def summarise_answers(answers: Sequence[tuple[str, ReaderAnswer]]) -> dict[str, Any]:
    """Return what a reader reached over the questions, in all and by category.

    Args:
        answers: at least one, each with the category of its question.
    """
    by_category: dict[str, list[ReaderAnswer]] = {}
    for category, answer in answers:
        by_category.setdefault(category, []).append(answer)
    every = [answer for _, answer in answers]
    return {
        **_score_answers(every),
        "prompt_tokens": round(sum(a.prompt_tokens for a in every) / len(every), 1),
        "completion_tokens": round(sum(a.completion_tokens for a in every) / len(every), 1),
        "by_category": {name: _score_answers(group) for name, group in sorted(by_category.items())},
    }


def _score_answers(answers: Sequence[ReaderAnswer]) -> dict[str, Any]:
    found: dict[str, Any] = {"questions": len(answers)}
    shares: Mapping[str, int] = {
        "soft_em": sum(answer.soft_em for answer in answers),
        "soft_em_tokens": sum(answer.soft_em_tokens for answer in answers),
    }
    for name, right in shares.items():
        found[name] = round(right / len(answers), 4)
        found[f"{name}_interval"] = _round_interval(wilson_interval(right, len(answers)))
    values = [answer.f1 for answer in answers]
    found["f1"] = round(sum(values) / len(values), 4)
    found["f1_interval"] = _round_interval(bootstrap_interval(values))
    return found


def _round_interval(interval: tuple[float, float]) -> list[float]:
    return [round(bound, 4) for bound in interval]
