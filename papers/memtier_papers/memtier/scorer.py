"""The scorer as published in MemTier (section 3.2, eq. 2 and 3), for the `paper` profile.

Pure.  Raw Okapi BM25 over a given pool (rank-bm25), decay with its bypass, cognitive weight, tier
bonus.  Where the paper is ambiguous: facts and entries are ranked together, a raw score above the
threshold bypasses decay literally, and the pool of Stage 2 is the scoped one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memtier_plugin.retrieval.signals import TIER_FACTOR
from memtier_plugin.storage.index.postings import K1, B

PAPER_SIGNALS: Final = ("semantic", "bm25", "decay", "cw", "tier")
RRF_CONSTANT: Final = 60  # of reciprocal rank fusion (MemTier, appendix B; Cormack et al. 2009)


def decay(age_days: float, rate: float, *, bypass: bool = False) -> float:
    """Return the decay at an age (MemTier, section 3.2, eq. 3); future times count as now.

    Args:
        bypass: a strong match does not decay.
    """
    return 1.0 if bypass else math.exp(-rate * max(0.0, age_days))


def weight_signal(weight: float) -> float:
    """Map a cognitive weight from [-1, 1] to [0, 1] (MemTier, section 3.2)."""
    return (weight + 1) / 2


@dataclass(frozen=True, slots=True)
class Document:
    """A fact or entry as scored: its words, age in days, weight and tier."""

    id: str
    words: Sequence[str]
    sessions: tuple[str, ...]
    age_days: float = 0.0
    weight: float = 0.0
    tier: str = "episodic"
    timestamp: float = 0.0  # seconds since the epoch, for ties in Stage 1


@dataclass(frozen=True, slots=True)
class Scored:
    """A document with its score and the five signals of eq. 2."""

    document: Document
    score: float
    signals: Mapping[str, float]


def okapi_scores(documents: Sequence[Sequence[str]], query: Sequence[str]) -> list[float]:
    """Return rank-bm25's raw BM25 of each document; repeated query words count repeatedly."""
    if not any(documents):
        return [0.0] * len(documents)  # rank-bm25 divides by the number of words
    from rank_bm25 import BM25Okapi

    return [float(s) for s in BM25Okapi(list(documents), k1=K1, b=B).get_scores(list(query))]


def select_sessions(
    facts: Sequence[Document],
    scores: Sequence[float],
    visible: set[str],
    limit: int | None = None,
) -> tuple[str, ...]:
    """Return the sessions of the best facts: Stage 1 (S_sem in MemTier, section 3.2).

    Args:
        scores: a fact that scores 0 selects nothing.
        visible: sessions with an entry that the viewer may see; others are skipped.
        limit: their number, k1 in the paper; None for all, as `fuse_ranks` expects.
    """
    order = sorted(
        (i for i, score in enumerate(scores) if score > 0),
        key=lambda i: (-scores[i], -facts[i].timestamp, facts[i].id),
    )
    sessions: dict[str, None] = {}
    for i in order:
        for session in facts[i].sessions:
            if session in visible and (limit is None or len(sessions) < limit):
                sessions[session] = None
    return tuple(sessions)


def fuse_ranks(
    lists: Sequence[Sequence[str]],
    constant: int = RRF_CONSTANT,
    weights: Sequence[float] | None = None,
) -> dict[str, float]:
    """Fuse rankings of names by reciprocal rank (Cormack et al. 2009), best first.

    A name earns w / (constant + rank) in each ranking that contains it; ties go by name.

    Args:
        weights: w of each ranking (True Memory, eq. 3); None for 1.
    """
    scores: dict[str, float] = {}
    for names, weight in zip(lists, weights or [1.0] * len(lists), strict=True):
        for rank, name in enumerate(names, start=1):
            scores[name] = scores.get(name, 0.0) + weight / (constant + rank)
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))


def score_document(
    document: Document,
    bm25: float,
    scope: Sequence[str],
    weights: Mapping[str, float],
    *,
    rate: float = 0.05,
    threshold: float = 2.0,
    scaled: float | None = None,
    semantic: float = 0.0,
) -> Scored:
    """Score one document (MemTier, section 3.2, eq. 2).

    Args:
        bm25: the raw score, which decides whether decay is bypassed (eq. 3).
        scaled: the score used instead if BM25 is normalised.
        scope: S_sem; an entry of one of its sessions bypasses decay (eq. 3).
        weights: for ``semantic``, ``bm25``, ``decay``, ``cw`` and ``tier``.
        semantic: the cosine to the query; the paper reserves the signal and leaves it at 0.
    """
    bypass = bm25 > threshold or any(session in scope for session in document.sessions)
    signals = {
        "semantic": semantic,
        "bm25": bm25 if scaled is None else scaled,
        "decay": decay(document.age_days, rate, bypass=bypass),
        "cw": weight_signal(document.weight),
        "tier": TIER_FACTOR[document.tier] - 1,
    }
    total = sum(weights[name] * signals[name] for name in PAPER_SIGNALS)
    return Scored(document, total, signals)


def order_scored(scored: Sequence[Scored]) -> list[Scored]:
    """Order by score; ties go by id."""
    return sorted(scored, key=lambda s: (-s.score, s.document.id))


def ablate(weights: Mapping[str, float], dropped: str) -> dict[str, float]:
    """Return an ablation's weights: one signal 0, the rest summing to 1 (MemTier, table 2)."""
    return normalise_weights({name: 0.0 if name == dropped else w for name, w in weights.items()})


def normalise_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """Return weights clipped at 0 and divided by their sum (MemTier, section 4.4)."""
    clipped = {name: max(0.0, weight) for name, weight in weights.items()}
    total = sum(clipped.values())
    return {name: weight / total for name, weight in clipped.items()} if total else clipped


def normalise_scores(scores: Sequence[float], how: str) -> list[float]:
    """Normalise BM25 scores: ``raw``, ``log1p``, ``minmax`` or ``zscore`` (MemTier, appendix E).

    ``log1p`` treats rank-bm25's negative scores (in pools of a few documents) as 0.
    """
    if how == "raw" or not scores:
        return list(scores)
    if how == "log1p":
        return [math.log1p(max(0.0, score)) for score in scores]
    if how == "minmax":
        low, high = min(scores), max(scores)
        return [(score - low) / (high - low) if high > low else 0.0 for score in scores]
    mean = sum(scores) / len(scores)
    deviation = math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores))
    return [(score - mean) / deviation if deviation else 0.0 for score in scores]
