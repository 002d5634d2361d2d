"""The encoding gate: does a line deserve more than its place in the log?  Pure.

After True Memory (section 4.1, eq. 1): novelty by how much a line adds to its compressed
neighbours, salience by its kind of speech (`speech_acts`), and prediction error by how far it turns
its nearest line's vector.  The ledger keeps every line whatever the gate decides, so a missing
vector does not open it: its weight is shared among the other signals.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from memtier_papers.true_memory.speech_acts import MAX_CHARS

NEIGHBOURS: Final = 10  # earlier lines to compare with
SEPARATOR: Final = " [SEP] "
THRESHOLD: Final = 0.30
FLOOR: Final = 0.10  # of salience
_WEIGHTS: Final = (0.25, 0.20, 0.30)  # novelty, salience, prediction error
_LEAST_NOVELTY: Final = 0.05
_LEAST_BYTES: Final = 10
_SAME_TOPIC: Final = 0.2  # cosine from which a line can be surprising given its nearest
PAIR_CHARS: Final = 1_000  # of each of two lines embedded together
# Of the threshold, by category; any other has none.
_OFFSETS: Final[Mapping[str, float]] = {
    "correction": -0.06,
    "decision": -0.04,
    "relationship": -0.04,
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
        memory: those lines, joined by a space; the new line follows without one.
    """
    if not memory:
        return 1.0
    encoded = text[:MAX_CHARS].encode("utf-8", "surrogatepass")
    if len(encoded) < _LEAST_BYTES:
        return _LEAST_NOVELTY
    known = " ".join(line[:MAX_CHARS] for line in memory).encode("utf-8", "surrogatepass")
    added = _compressed(known + encoded) - _compressed(known)
    return max(_LEAST_NOVELTY, min(1.0, added / _compressed(encoded)))


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
    threshold = THRESHOLD + _OFFSETS.get(category, 0.0)
    if category == "correction":
        return GateDecision(score, threshold, True, "contradiction-bypass")
    if salience < FLOOR:
        return GateDecision(score, threshold, False, "salience-floor")
    return GateDecision(score, threshold, score >= threshold, "threshold")


def _compressed(data: bytes) -> int:
    return len(gzip.compress(data, 6, mtime=0))
