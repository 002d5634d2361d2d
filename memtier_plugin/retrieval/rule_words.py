"""Tell by its words whether a turn corrects a way of working, or takes such a rule back.

"No, never use yarn here" holds from then on; "no, I meant the other file" does not.  Both answer
what an assistant did.  What tells them apart is a few meanings (always, only, instead of, this
once, my mistake), alone and in pairs, beside what tells whether a sentence is worth keeping.
`scripts/fit_corrections.py` fits the models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal

from memtier_plugin.retrieval import worth
from memtier_plugin.retrieval.prompt_words import likeliest_language, split_words
from memtier_plugin.text.phrases import Words

Kind = Literal["rules", "withdrawals", "intentions", "closings"]

MODEL: Final = Path(__file__).with_suffix(".json")
_LONGEST: Final = 200  # characters of a turn; a longer one is about more than a way of working
_SHORTEST: Final = 4
_LANGUAGE_WORDS: Final = 40  # by which the language is told
_OPENING: Final = 2  # words whose meaning counts by itself: "No, ..."
_OPENING_CHARS: Final = 4  # the same in a script without spaces
_UNSPACED: Final = re.compile(r"[\u3040-\u9fff\uac00-\ud7af]")
# An address, or a masked secret: where a thing is, no way of working.
_ADDRESS: Final = re.compile(r"\S*(?:://|\[redacted)\S*|\S+@\S+\.\S+")
_PHRASE: Final = re.compile(r'"[^"]+"|\S+')


def sets_rule(text: str) -> bool:
    """Return whether what a user says after an assistant's turn is a rule for the next time."""
    return is_of("rules", text) and not is_of("withdrawals", text)


def intends(text: str) -> bool:
    """Return whether a user wants something to be done later, at an event or by a day."""
    return is_of("intentions", text)


def closes(text: str) -> bool:
    """Return whether a user's words may tell that something is done, or not wanted any more."""
    return is_of("closings", text) or is_of("withdrawals", text)


def ends_rule(text: str) -> bool:
    """Return whether a user's words may take a rule back; which one, its words must show."""
    return is_of("withdrawals", text)


@lru_cache(512)
def is_of(kind: Kind, text: str) -> bool:
    """Return whether a text is likely enough of a kind."""
    text = _ADDRESS.sub("", text)
    if not _SHORTEST <= len(text.strip()) <= _LONGEST:
        return False
    model = _model()[kind]
    weights: Mapping[str, float] = model["weights"]
    odds = sum(weights.get(name, 0.0) * value for name, value in features(text).items())
    vector = zip(worth.vector(text), model["vector"], strict=True)
    odds += sum(value * weight for value, weight in vector)
    return bool(odds + model["bias"] > model["least"])


@lru_cache(64)
def features(text: str) -> Mapping[str, float]:
    """Return what a text is judged by, apart from its vector.

    That is each meaning in it, alone, at its beginning ("^not") and in pairs, and what it is worth.
    """
    text = text.strip()
    language = likeliest_language(text, split_words(text)[:_LANGUAGE_WORDS])
    names = _meanings(text.casefold().replace("’", "'"))
    return dict.fromkeys(names, 1.0) | worth.features(Words.of(text, language))


def _meanings(text: str) -> Iterator[str]:
    spaced = not _UNSPACED.match(text)
    opening = " ".join(text.split()[:_OPENING]) if spaced else text[:_OPENING_CHARS]
    patterns = _patterns()
    names = [name for name in _model()["meanings"] if patterns[name].search(text)]
    yield from names
    yield from (f"^{name}" for name in names if patterns[name].search(opening))
    yield from (f"{first} {second}" for first, second in combinations(names, 2))


def _alternatives(phrases: str) -> Iterator[str]:
    """Yield a pattern for each phrase: quoted where of several words, a star for any ending."""
    for match in _PHRASE.finditer(phrases):
        phrase = match[0].strip('"')
        stem = re.escape(phrase.rstrip("*"))
        if _UNSPACED.search(phrase) or not phrase[0].isalnum():
            yield stem
        else:
            yield rf"(?<!\w){stem}" + ("" if phrase.endswith("*") else r"(?!\w)")


def has_meaning(name: str, text: str) -> bool:
    """Return whether a text has one of the words of a meaning, in any language."""
    return find_meaning(name, text) is not None


def find_meaning(name: str, text: str) -> re.Match[str] | None:
    """Return the first of the words of a meaning in a text."""
    return _patterns()[name].search(text.lower().replace("’", "'"))


def meanings() -> Mapping[str, str]:
    """Return the phrases of each meaning, quoted where of several words."""
    model = _model()
    return {**model["meanings"], **model["triggers"]}


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    named = meanings().items()
    return {name: re.compile("|".join(_alternatives(phrases))) for name, phrases in named}


@cache
def _model() -> dict[str, Any]:
    model: dict[str, Any] = json.loads(MODEL.read_bytes())
    return model
