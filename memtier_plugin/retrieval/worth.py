"""Score how much a sentence is worth keeping: a logistic model over a few features.

Worth keeping is what somebody may ask for later: how a thing or a person is, a rule, a decision, a
change, a plan.  The features are word classes of the sentence's language, its length, and a vector
of the shipped model; `scripts/fit_worth.py` fits them.

Most of a longer message concerns the task at hand: a pasted plan, a role to play, the next steps.
A second model weighs its sentences, by real chats: how they begin, how much they point to what was
said before, and how many others surround them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from operator import mul
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.hookspecs import Embedder
from memtier_plugin.providers.embedding.load import load_embedder
from memtier_plugin.retrieval.prompt_words import names_time
from memtier_plugin.text.lexicon import lexicon
from memtier_plugin.text.phrases import Words

_MODEL: Final = Path(__file__).with_suffix(".json")
_PHRASES: Final = (
    *("doubt_cues", "unsettled", "decision_cues", "preference_cues", "keep_cues", "moment_cues"),
    *("rule_cues", "change_cues", "ending_cues", "called_verbs"),
)
_OPENINGS: Final = (*("rule_openers", "order_openers", "task_verbs", "keep_cues", "chat"),)
_WORDS: Final = (
    *("second_person", "first_person", "first_possessive", "kinship", "kin_words", "stating_verbs"),
    *("copulas", "passing", "abstract_subjects", "anaphors", "pointing_words"),
    *("general_words", "answer_parts", "third_person", "traits", "intending"),
    "answering",
)
_FIRST: Final = (
    *("first_person", "first_possessive", "definite", "second_person"),
    *("pointing_words", "stating_verbs", "conditionals"),
)
_NUMBER: Final = re.compile(r"\d+")
_MARKED: Final = re.compile(r"[\"“”`]|(?<!\w)['‘*]")
_NAME: Final = re.compile(r"(?<!^)(?<![.!?] )\b[A-ZÄÖÜÉ][\w-]+")
_LATIN: Final = re.compile(r"[A-Za-z]{2,}")
_OPENING: Final = 4  # words
MOST: Final = 20  # sentences around one; more make no difference
_SCALE: Final = 3.0  # of a vector of length one, beside features of zero and one


def worth(words: Words) -> float:
    """Return the odds, as a logarithm, that a sentence is worth keeping."""
    return _weigh(features(words), vector(words.text), "alone")


def amid(words: Words, others: int) -> float:
    """Return the odds, as a logarithm, that a sentence is worth keeping among others."""
    return _weigh(features_amid(words, others), vector(opening(words)), "amid")


def _weigh(values: Mapping[str, float], of_text: Sequence[float], model: str) -> float:
    """Return the log-odds that a fitted model gives to features."""
    fitted = _models()[model]
    weights: Mapping[str, float] = fitted["weights"]
    score = float(fitted["bias"]) + sum(weights[name] * value for name, value in values.items())
    pairs = zip(of_text, fitted["vector"], strict=True)
    return score + float(sum(x * weight for x, weight in pairs))


def features(words: Words) -> dict[str, float]:
    """Return what a sentence is judged by, apart from its vector."""
    classes, text = lexicon(words.language), words.text
    values = {f"has {name}": float(words.has(name)) for name in _PHRASES}
    values |= {f"opens {name}": float(words.opens(name) is not None) for name in _OPENINGS}
    values |= {f"word {name}": float(words.has_word(name)) for name in _WORDS}
    first = words.words[0] if words.words else ""
    for name in _FIRST:
        members = frozenset(getattr(classes, name))
        begins = text.startswith(tuple(members)) if words.unspaced else first in members
        values[f"first {name}"] = float(begins)
    ordered = max(values["opens rule_openers"], values["opens order_openers"])
    for name in ("second_person", "first_person", "answering"):  # "keep your answers short"
        values[f"order, {name}"] = ordered * values[f"word {name}"]
    size = len(text) / 3 if words.unspaced else len(words.words)
    length = math.log1p(size)
    named = words.language != "german" and _NAME.search(text) is not None
    return values | {
        "length": length,
        "length squared": length * length / 4,
        "time": float(any(names_time((word, frozenset()), words.language) for word in words.words)),
        "number": float(_NUMBER.search(text) is not None),
        "name": float(named or (words.unspaced and _LATIN.search(text) is not None)),
        "exclaims": float(text.rstrip().endswith(("!", "！"))),
    }


def features_amid(words: Words, others: int) -> dict[str, float]:
    """Return what a sentence of a longer message is judged by, apart from how it begins."""
    values, classes, text = features(words), lexicon(words.language), words.text
    many = math.log1p(min(others, MOST))
    first = max(values["word first_person"], values["word first_possessive"])
    pointing = classes.definite | classes.pointing_words | classes.anaphors
    return values | {
        "many": many,
        "self": first,
        "self, many": first * many,
        "alone": _weigh(values, vector(text), "alone"),
        "points": math.log1p(sum(word in pointing for word in words.words)),
        "new": float(not ({*classes.articles} - pointing).isdisjoint(words.words)),
        "marks": float(_MARKED.search(text) is not None),
        "names": math.log1p(len(_NAME.findall(text))),
        "numbers": math.log1p(len(_NUMBER.findall(text))),
    }


def opening(words: Words) -> str:
    """Return the first words of a sentence."""
    tokens = words.tokens[:_OPENING]
    return words.text[: tokens[-1].end] if tokens else ""


@lru_cache(64)  # a sentence of a longer message is weighed by two models
def vector(text: str) -> tuple[float, ...]:
    """Return a sentence's vector: zeros where the model does not know its script."""
    return tuple(float(x) * _SCALE for x in embedder().encode([text.lower()])[0])


def unit(text: str) -> tuple[float, ...]:
    """Return a text's vector of length one; zeros where the model does not know its script."""
    numbers = vector(text)
    length = math.hypot(*numbers)
    return tuple(number / length for number in numbers) if length else numbers


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the product of two vectors of length one."""
    return float(sum(map(mul, first, second)))


def embedder() -> Embedder:
    """Return the shipped model: the process's own, which recalls use, too."""
    shipped = load_embedder("default")
    assert shipped is not None
    return shipped


@cache
def _models() -> dict[str, dict[str, Any]]:
    models: dict[str, dict[str, Any]] = json.loads(_MODEL.read_bytes())
    return models
