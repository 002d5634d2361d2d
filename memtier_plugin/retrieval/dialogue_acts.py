"""Tell from its words what a user's turn does: set a rule, take one back, want a reminder, ask.

"No, never use yarn here" holds from then on; "no, I meant the other file" does not.  A linear model
tells them apart by words, pairs of words, how the turn opens, the classes of `retrieval.worth` and
a vector of the shipped model.  `scripts/fit_dialogue_acts.py` fits it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

from memtier_plugin.core.errors import EmbeddingUnavailable
from memtier_plugin.providers.embedding.load import encode_query
from memtier_plugin.retrieval import worth
from memtier_plugin.retrieval.prompt_words import likeliest_language, split_words
from memtier_plugin.text.phrases import Words

Act = Literal[
    "rule", "withdrawal", "intention", "closing", "work", "due", "session", "again", "asked"
]

MODEL: Final = Path(__file__).with_suffix(".json")
_LONGEST: Final = 300  # characters of a turn; a longer one is about more than a way of working
_SHORTEST: Final = 4
_READ: Final = 600  # characters of a text that are read
_LANGUAGE_WORDS: Final = 40  # by which the language is told
_LONG_TURN: Final = 5  # the logarithm of its words, from which on a turn is long
_WORD: Final = re.compile(r"[\u3040-\u9fff\uac00-\ud7af]|[\w']+|[?!]")
# Of an address, or of a masked secret: where a thing is, no way of working.
_ADDRESS_PARTS: Final = ("://", "[redacted", "@")


def sets_rule(text: str) -> bool:
    """Return whether what a user says after an assistant's turn is a rule for the next time."""
    likelier = odds("rule", text) >= odds("withdrawal", text)
    return _is_turn(text) and likelier and is_act("rule", text)


def intends(text: str) -> bool:
    """Return whether a user wants something to be done later, at an event or by a day."""
    return _is_turn(text) and is_act("intention", text)


def closes(text: str) -> bool:
    """Return whether a user's words may tell that something is done, or not wanted any more."""
    return _is_turn(text) and (is_act("closing", text) or is_act("withdrawal", text))


def ends_rule(text: str) -> bool:
    """Return whether a user's words may take a rule back; which one, its words must show."""
    return _is_turn(text) and is_act("withdrawal", text) and not sets_rule(text)


def asks_for_work(prompt: str) -> bool:
    """Return whether a prompt, or a question such as "could you ...?", asks for work.

    A user's rules may matter in it.
    """
    is_question = prompt.rstrip().endswith(("?", "？"))
    return is_act("asked" if is_question else "work", prompt[:_READ])


def can_weigh(text: str, until: float | None) -> bool:
    """Return whether the shipped model, by whose vectors acts are told, is there in time.

    Args:
        until: a deadline, by ``time.monotonic()``.
    """
    try:
        encode_query(worth.embedder(), text[:_READ], until)
    except EmbeddingUnavailable:
        return False
    return True


def _is_turn(text: str) -> bool:
    return _SHORTEST <= len(_without_addresses(text)) <= _LONGEST


def _without_addresses(text: str) -> str:
    words = text.split()
    return " ".join(w for w in words if not any(part in w for part in _ADDRESS_PARTS))


def is_act(act: Act, text: str) -> bool:
    """Return whether a text is likely enough an act."""
    return odds(act, text) > float(_model()[act]["least"])


@lru_cache(512)
def odds(act: Act, text: str) -> float:
    """Return the odds, as a logarithm, that a text is an act."""
    text, fitted = _without_addresses(text), _model()[act]
    weights: Mapping[str, float] = fitted["weights"]
    score = float(fitted["bias"])
    score += sum(weights.get(name, 0.0) * value for name, value in features(text).items())
    pairs = zip(worth.vector(text), fitted["vector"], strict=True)
    return score + float(sum(x * weight for x, weight in pairs))


@lru_cache(64)
def features(text: str) -> Mapping[str, float]:
    """Return what a text is judged by, apart from its vector."""
    text = text.strip()
    language = likeliest_language(text, split_words(text)[:_LANGUAGE_WORDS])
    return dict.fromkeys(_grams(text), 1.0) | worth.features(Words.of(text, language))


def _grams(text: str) -> Iterator[str]:
    """Yield a text's words and pairs of words, its opening and its length; letters in Chinese."""
    words = [match[0] for match in _WORD.finditer(text.casefold().replace("’", "'"))]
    pairs = [f"{first} {second}" for first, second in pairwise(words)]
    yield from (f"= {gram}" for gram in (*words, *pairs))
    yield from (f"^ {gram}" for gram in (*words[:1], *pairs[:1]))
    yield f"words {min(_LONG_TURN, (len(words) + 1).bit_length() - 1)}"


@cache
def _model() -> dict[str, Any]:
    model: dict[str, Any] = json.loads(MODEL.read_bytes())
    return model
