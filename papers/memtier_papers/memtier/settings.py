"""The settings of MemTier as published."""

from __future__ import annotations

from typing import Annotated, Literal

from memtier_plugin.core.settings.schema import Settings, Within
from memtier_plugin.core.structs import Record


class PublishedProfile(Record, frozen=True, kw_only=True):
    """The values of `retrieval.profile` besides MemTier's own."""

    profile: Literal["recall_first", "paper"] = "recall_first"


class PaperWeights(Record, frozen=True, kw_only=True):
    """The weights of the published score (MemTier eq. 2)."""

    semantic: Annotated[float, Within(0, 100)] = 0.0
    bm25: Annotated[float, Within(0, 100)] = 0.35
    decay: Annotated[float, Within(0, 100)] = 0.25
    cw: Annotated[float, Within(0, 100)] = 0.25
    tier: Annotated[float, Within(0, 100)] = 0.15


class Paper(Record, frozen=True, kw_only=True):
    """The `paper` profile's size, variants and weights."""

    k: Annotated[int, Within(1, 1000)] = 4
    token_budget: Annotated[int, Within(16, 100_000)] = 300
    scope: Literal["sessions", "none"] = "sessions"
    stage_one: Literal["bm25", "dense", "rrf"] = "bm25"
    normalise: Literal["raw", "log1p", "minmax", "zscore"] = "raw"
    weights: PaperWeights = PaperWeights()


class CauseSettings(Record, frozen=True, kw_only=True):
    """Random withholding of lines, to measure their effect, and what follows from it."""

    withhold: Annotated[float, Within(0, 0.5)] = 0.0
    weigh: bool = False
    propose: bool = False
    retire_after: Annotated[int, Within(5, 100_000)] = 30


class ModelAttribution(Record, frozen=True, kw_only=True):
    """Sharing of a run's reward by a model's log-probabilities."""

    proxy: Literal["call", "jaccard", "overlap", "logprob"] = "call"
    model: str = "none"


def credits_runs(settings: Settings) -> bool:
    """Return whether a run has one reward, shared by words, instead of each of its calls."""
    paper = settings.of(PublishedProfile).profile == "paper"
    return paper or settings.of(ModelAttribution).proxy != "call"
