"""The settings of True Memory."""

from __future__ import annotations

from typing import Annotated, Literal

from memtier_plugin.core.settings.schema import Within
from memtier_plugin.core.structs import Record


class FusedProfile(Record, frozen=True, kw_only=True):
    """What `retrieval.profile` may be beside MemTier's own."""

    profile: Literal["recall_first", "rrf"] = "recall_first"


class SignalWeights(Record, frozen=True, kw_only=True):
    """The weights of the likeness to a made-up answer, and of the surprise."""

    hypothetical: Annotated[float, Within(0, 100)] = 1.0
    surprise: Annotated[float, Within(0, 100)] = 0.0


class Rrf(Record, frozen=True, kw_only=True):
    """The `rrf` profile's own size, and its salience guard (True Memory, stages 8 and 9)."""

    k: Annotated[int, Within(1, 1000)] = 10
    token_budget: Annotated[int, Within(16, 100_000)] = 600
    guard: bool = True


class Rerank(Record, frozen=True, kw_only=True):
    """The model that reads the query and what was found together."""

    model: str = "none"

    @property
    def is_on(self) -> bool:
        """Whether a model is configured."""
        return self.model != "none"


class PeopleSettings(Record, frozen=True, kw_only=True):
    """Whether profiles of people are written, and recalled by questions about somebody."""

    profiles: bool = False


GateMode = Literal["off", "tag", "index"]


class Gate(Record, frozen=True, kw_only=True):
    """Whether the encoding gate judges entries, and leaves those it rejects out of the index."""

    mode: GateMode = "off"


class MadeUpAnswers(Record, frozen=True, kw_only=True):
    """Whether the model makes up an answer, whose like is searched for."""

    hypothetical: bool = False
