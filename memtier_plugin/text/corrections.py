"""Tell by its words whether a turn corrects a way of working, or takes such a rule back.  Pure.

"No, never use yarn here" holds from then on; "no, I meant the other file" does not.  Both answer
what an assistant did.  What tells them apart is a few meanings (always, only, instead of, this
once, my mistake), alone and in pairs, so that one model serves all languages.
`scripts/fit_corrections.py` fits it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal

Kind = Literal["rules", "withdrawals"]

MODEL: Final = Path(__file__).parent / "data" / "corrections.json"
MAX_CHARS: Final = 400  # of a turn; a longer one is about more than a way of working
_MIN_CHARS: Final = 5
_FIRST: Final = 2  # words whose meaning counts by itself: "No, ..."
_FIRST_CHARS: Final = 4  # the same in a script without spaces
_UNSPACED: Final = re.compile(r"[\u3040-\u9fff\uac00-\ud7af]")
_PHRASE: Final = re.compile(r'"[^"]+"|\S+')


def sets_rule(text: str) -> bool:
    """Return whether what a user says after an assistant's turn is a rule for the next time."""
    return is_of("rules", text) and not is_of("withdrawals", text)


def ends_rule(text: str) -> bool:
    """Return whether a user's words may take a rule back; which one, its words must show."""
    return is_of("withdrawals", text)


@lru_cache(256)
def is_of(kind: Kind, text: str) -> bool:
    """Return whether a text is likely enough of a kind."""
    if not _MIN_CHARS <= len(text.strip()) <= MAX_CHARS:
        return False
    model = _model()[kind]
    weights: Mapping[str, float] = model["weights"]
    odds = sum(weights.get(name, 0.0) for name in features(text)) + float(model["bias"])
    return odds > float(model["least"])


def features(text: str) -> list[str]:
    """Return the meanings in a text: each alone, at its beginning ("^not"), and in pairs."""
    text = text.strip().casefold().replace("’", "'")
    spaced = not _UNSPACED.match(text)
    first = " ".join(text.split()[:_FIRST]) if spaced else text[:_FIRST_CHARS]
    patterns = _patterns()
    meanings = [name for name, pattern in patterns.items() if pattern.search(text)]
    opening = [f"^{name}" for name in meanings if patterns[name].search(first)]
    return [*meanings, *opening, *(f"{one} {two}" for one, two in combinations(meanings, 2))]


def compile_meaning(phrases: str) -> re.Pattern[str]:
    """Return what finds one of some phrases: quoted where of several words, a star for endings."""
    found = (phrase.strip('"') for phrase in _PHRASE.findall(phrases))
    return re.compile("|".join(_alternatives(found)))


def _alternatives(phrases: Iterable[str]) -> Iterable[str]:
    for phrase in phrases:
        stem = re.escape(phrase.rstrip("*"))
        if _UNSPACED.search(phrase) or not phrase[0].isalnum():
            yield stem
        else:
            yield rf"(?<!\w){stem}" + ("" if phrase.endswith("*") else r"(?!\w)")


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {name: compile_meaning(words) for name, words in _model()["meanings"].items()}


@cache
def _model() -> dict[str, Any]:
    model: dict[str, Any] = json.loads(MODEL.read_bytes())
    return model
