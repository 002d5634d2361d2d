"""Score a short answer against the expected one without an LLM (MemTier, section 4.1).  Pure.

Soft exact match as published: after normalising, one string contains the other.  That accepts "art"
for "party", so a stricter form is computed too: the tokens of one contain those of the other, in
order and without gaps.  F1 is SQuAD 2.0's token overlap (Rajpurkar et al. 2018); Mem-T's F1 and
BLEU-1 split at punctuation, and keep the second of two consecutive articles.  An answer to a
question about dates or numbers must also have the same ones, however they are written.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memtier_bench.intervals import bootstrap_interval, wilson_interval

SCORES: Final = ("soft_em", "soft_em_tokens", "f1")  # displayed scores of a reader's answers

_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_NUMBERS: Final = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_AS_NUMBER: Final = {
    **{name: f"month {number}" for number, name in enumerate(_MONTHS, 1)},
    **{name[:3]: f"month {number}" for number, name in enumerate(_MONTHS, 1)},
    "sept": "month 9",
    "may": "",  # a verb, too: only beside a number
    **{name: str(number) for number, name in enumerate(_NUMBERS)},
}
_ISO_DATE: Final = re.compile(r"\b(\d{4})-(\d\d?)-(\d\d?)\b")
_MAY: Final = re.compile(r"\bmay\b(?=,? \d)|(?<=\d )may\b|(?<=\d[a-z]{2} )may\b")
_NUMBER_WORD: Final = re.compile(r"month \d+|\d+(?:[.,]\d+)*|[a-z]+")
_UNKNOWN: Final = re.compile(
    r"\W*(?:(?:it is|it's|that is|this is) )?"
    r"(?:unknown(?=\W*$|[.,;:])"
    r"|not (?:known|mentioned|stated|specified|given|provided)\b"
    r"|no (?:information|mention)\b"
    r"|(?:i )?(?:do not|don't|cannot|can't) (?:know|answer|say|tell)\b)",
    re.IGNORECASE,
)
_ARTICLES: Final = re.compile(r"\b(a|an|the)\b")
_MEMT_ARTICLES: Final = re.compile(r"(?:^|\s)(?:a|an|the)(?:$|\s)")
_SPACED: Final = str.maketrans(dict.fromkeys(string.punctuation, " "))
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderAnswer:
    """A reader's answer to a question, with its scores and cost."""

    text: str
    soft_em: bool
    soft_em_tokens: bool
    f1: float
    memt_f1: float = 0.0
    bleu1: float = 0.0
    numbers: bool | None = None  # whether its dates and numbers are the expected ones, if any
    unknown: bool = False  # whether it says that nothing tells
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


def normalise_answer(text: str) -> str:
    """Lower-case a text and strip ASCII punctuation, articles and extra spaces."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def soft_em(answer: str, expected: str) -> bool:
    """Return whether one answer contains the other as a substring (as published).

    An answer that normalises to nothing is right only if the other does too.
    """
    actual, other = normalise_answer(answer), normalise_answer(expected)
    return (actual in other or other in actual) if actual and other else actual == other


def soft_em_tokens(answer: str, expected: str) -> bool:
    """Return whether one answer contains the tokens of the other as a contiguous sequence."""
    actual, other = normalise_answer(answer), normalise_answer(expected)
    if not actual or not other:
        return actual == other
    first, second = f" {actual} ", f" {other} "
    return first in second or second in first


def token_f1(answer: str, expected: str) -> float:
    """Return the harmonic mean of precision and recall over the multiset of tokens."""
    actual, other = normalise_answer(answer).split(), normalise_answer(expected).split()
    if not actual or not other:
        return float(actual == other)
    shared = (Counter(actual) & Counter(other)).total()
    return 2 * shared / (len(actual) + len(other))


def memt_tokens(text: str) -> list[str]:
    """Return the tokens of an answer as in Mem-T's code."""
    bare = " ".join(text.lower().translate(_SPACED).split())
    return _MEMT_ARTICLES.sub(" ", bare).split()


def memt_f1(answer: str, expected: str) -> float:
    """Return Mem-T's F1: the harmonic mean over the multiset of `memt_tokens`."""
    actual, other = memt_tokens(answer), memt_tokens(expected)
    if not actual or not other:
        return float(actual == other)
    return 2 * (Counter(actual) & Counter(other)).total() / (len(actual) + len(other))


def bleu1(answer: str, expected: str) -> float:
    """Return Mem-T's BLEU-1: the clipped precision of words, times the brevity penalty."""
    actual, other = memt_tokens(answer), memt_tokens(expected)
    if not actual or not other:
        return float(actual == other)
    precision = (Counter(actual) & Counter(other)).total() / len(actual)
    return precision * min(1.0, math.exp(1 - len(other) / len(actual)))


def numbers_of(text: str) -> set[str]:
    """Return the numbers of a text, and the parts of its dates, in one spelling."""
    spaced = _ISO_DATE.sub(lambda date: f"{date[1]} month {int(date[2])} {date[3]}", text.lower())
    spaced = _MAY.sub("month 5", spaced)
    numbers = set()
    for word in _NUMBER_WORD.findall(spaced):
        if word[0].isdigit():
            numbers.add(word.replace(",", "").lstrip("0") or "0")
        else:
            numbers.add(word if word.startswith("month ") else _AS_NUMBER.get(word, ""))
    return numbers - {""}


def numbers_match(answer: str, expected: str) -> bool | None:
    """Return whether an answer has the dates and numbers expected; None if none are."""
    numbers = numbers_of(expected)
    return numbers_of(answer) == numbers if numbers else None


def is_unknown(answer: str) -> bool:
    """Return whether an answer says that nothing is known."""
    return bool(_UNKNOWN.match(answer))


def judge_answer(
    answer: str,
    expected: str,
    prompt_tokens: int = 0,
    completion_tokens: int = 0,
    seconds: float = 0.0,
) -> ReaderAnswer:
    """Score an answer by every measure."""
    return ReaderAnswer(
        text=answer,
        soft_em=soft_em(answer, expected),
        soft_em_tokens=soft_em_tokens(answer, expected),
        f1=token_f1(answer, expected),
        memt_f1=memt_f1(answer, expected),
        bleu1=bleu1(answer, expected),
        numbers=numbers_match(answer, expected),
        unknown=is_unknown(answer),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        seconds=seconds,
    )


def summarise_answers(answers: Sequence[tuple[str, ReaderAnswer]]) -> dict[str, Any]:
    """Average a reader's scores over the questions, overall and by category.

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
    scores: dict[str, Any] = {"questions": len(answers)}
    shares: Mapping[str, int] = {
        "soft_em": sum(answer.soft_em for answer in answers),
        "soft_em_tokens": sum(answer.soft_em_tokens for answer in answers),
    }
    for name, right in shares.items():
        scores[name] = round(right / len(answers), 4)
        scores[f"{name}_interval"] = _round_interval(wilson_interval(right, len(answers)))
    for name in ("f1", "memt_f1"):
        values = [float(getattr(answer, name)) for answer in answers]
        scores[name] = round(sum(values) / len(values), 4)
        scores[f"{name}_interval"] = _round_interval(bootstrap_interval(values))
    scores["bleu1"] = round(sum(answer.bleu1 for answer in answers) / len(answers), 4)
    return scores


def _round_interval(interval: tuple[float, float]) -> list[float]:
    return [round(bound, 4) for bound in interval]
