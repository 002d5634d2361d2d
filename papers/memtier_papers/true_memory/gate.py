"""The encoding gate: does a line deserve more than its place in the log?  Pure.

After True Memory (section 4.1, eq. 1): novelty by how much a line adds to its compressed
neighbours, salience by its kind of speech, and prediction error by how far it turns its nearest
line's vector.  The ledger keeps every line whatever the gate decides, so a missing vector does not
open it: its weight is shared among the other signals.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from memtier_plugin.text.languages import detect_language
from memtier_plugin.text.lexicon import LANGUAGES, WordSet, words_of
from memtier_plugin.text.phrases import Words as Reading
from memtier_plugin.text.phrases import only_acknowledges, only_asks
from memtier_plugin.text.tokenizer import plain_words

NEIGHBOURS: Final = 10  # earlier lines to compare with
SEPARATOR: Final = " [SEP] "
THRESHOLD: Final = 0.30
FLOOR: Final = 0.10  # of the threshold, and of salience
_WEIGHTS: Final = (0.25, 0.20, 0.30)  # novelty, salience, prediction error
_LEAST_NOVELTY: Final = 0.05
_LEAST_BYTES: Final = 10
_SAME_TOPIC: Final = 0.2  # cosine from which a line can be surprising given its nearest
PAIR_CHARS: Final = 1_000  # of each of two lines embedded together
_MAX_CHARS: Final = 4_000
_OFFSETS: Final[Mapping[str, float]] = {
    "correction": -0.06,
    "decision": -0.04,
    "relationship": -0.04,
    "event": -0.04,
    "activity": -0.02,
}

Reason = Literal["threshold", "salience-floor", "contradiction-bypass"]


@dataclass(frozen=True, slots=True)
class GateDecision:
    """The gate's decision on a line."""

    score: float
    threshold: float
    admit: bool
    reason: Reason


def novelty(memory: Sequence[str], text: str) -> float:
    """Return how much a line adds to its nearest earlier lines, `_LEAST_NOVELTY` to 1.

    Args:
        memory: those lines; they are joined by a space.
    """
    if not memory:
        return 1.0
    encoded = text[:_MAX_CHARS].encode("utf-8", "surrogatepass")
    if len(encoded) < _LEAST_BYTES:
        return _LEAST_NOVELTY
    known = " ".join(line[:_MAX_CHARS] for line in memory).encode("utf-8", "surrogatepass")
    added = _compressed(known + b" " + encoded) - _compressed(known)
    return max(_LEAST_NOVELTY, min(1.0, added / _compressed(encoded)))


def salience(text: str) -> float:
    """Return how much a line commits its speaker, by its kind of speech, 0 to 1.

    Acknowledgements .02, questions .2, words that change something .6, events in the speaker's life
    .8; other statements .25, and .5 from five words on, whatever the length.
    """
    if only_acknowledges(text):
        return 0.02
    if only_asks(text):
        return 0.2
    words = plain_words(text[:_MAX_CHARS])
    if corrects(text):
        return 0.6
    if not _words("event_verbs").isdisjoint(words) and not _first_person().isdisjoint(words):
        return 0.8
    return 0.5 if len(words) >= 5 else 0.25


def prediction_error(cross: Sequence[float], paired: Sequence[float], cosine: float) -> float:
    """Return how far a line turns the vector of its nearest line, 0 to 1.

    Args:
        cross: the unit vector of "line [SEP] nearest", in the shape of ``paired``.
        paired: that of "nearest [SEP] nearest".
        cosine: of the line to its nearest one; an unrelated line predicts nothing, so 0.
    """
    if cosine < _SAME_TOPIC:
        return 0.0
    lengths = math.sqrt(math.fsum(a * a for a in cross) * math.fsum(b * b for b in paired))
    if not lengths:
        return 0.0
    dot = math.fsum(a * b for a, b in zip(cross, paired, strict=True))
    return max(0.0, min(1.0, 1.0 - dot / lengths))


def decide(
    novelty: float, salience: float, prediction_error: float | None, category: str = ""
) -> GateDecision:
    """Decide on a line by its three signals.

    Args:
        prediction_error: None without vectors.
        category: "correction" is admitted whatever its signals; some lower the threshold.
    """
    signals = (novelty, salience, prediction_error)
    counted = [(w, s) for w, s in zip(_WEIGHTS, signals, strict=True) if s is not None]
    score = sum(w * s for w, s in counted) / sum(w for w, _ in counted)
    threshold = max(FLOOR, THRESHOLD + _OFFSETS.get(category, 0.0))
    if category == "correction":
        return GateDecision(score, threshold, True, "contradiction-bypass")
    if salience < FLOOR:
        return GateDecision(score, threshold, False, "salience-floor")
    return GateDecision(score, threshold, score >= threshold, "threshold")


def category(text: str) -> str:
    """Return the category of a line that lowers its threshold, or ""."""
    if corrects(text):
        return "correction"
    words = plain_words(text[:_MAX_CHARS])
    reading = _reading(text)
    if reading.has("decision_cues"):
        return "decision"
    if not _words("kinship").isdisjoint(words):
        return "relationship"
    return "event" if not _words("event_verbs").isdisjoint(words) else ""


def corrects(text: str) -> bool:
    """Return whether a line says that something has changed."""
    reading = _reading(text)
    return reading.has("change_cues") or reading.has("ending_cues")


def _reading(text: str) -> Reading:
    language = detect_language(text[:_MAX_CHARS])
    return Reading.of(text[:_MAX_CHARS], language if language in LANGUAGES else "english")


def _compressed(data: bytes) -> int:
    return len(gzip.compress(data, 6, mtime=0))


@cache
def _words(name: str) -> WordSet:
    return words_of(name)


@cache
def _first_person() -> WordSet:
    return words_of("first_person") | words_of("first_possessive")
