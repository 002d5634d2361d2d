"""The settings of True Memory."""

from __future__ import annotations

from typing import Annotated, Literal

from memtier_plugin.core.settings.schema import Within
from memtier_plugin.core.structs import Record


class FusedProfile(Record, frozen=True, kw_only=True):
    """The values of `retrieval.profile` besides MemTier's own."""

    profile: Literal["recall_first", "rrf"] = "recall_first"


class SignalWeights(Record, frozen=True, kw_only=True):
    """The weights of surprise and of the similarity to a made-up answer."""

    hypothetical: Annotated[float, Within(0, 100)] = 1.0
    surprise: Annotated[float, Within(0, 100)] = 0.0


class Rrf(Record, frozen=True, kw_only=True):
    """The `rrf` profile's size, salience guard and surprise (True Memory, stages 8 and 9).

    ``surprise`` is the paper's alpha: a line of surprise s counts 1 + alpha s times.
    """

    k: Annotated[int, Within(1, 1000)] = 10
    token_budget: Annotated[int, Within(16, 100_000)] = 600
    guard: bool = True
    surprise: Annotated[float, Within(0, 1)] = 0.2


class Rerank(Record, frozen=True, kw_only=True):
    """The model that reads the query and the hits together."""

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
    """Whether the encoding gate judges entries, and omits rejected ones from the index."""

    mode: GateMode = "off"


class MadeUpAnswers(Record, frozen=True, kw_only=True):
    """Whether the model makes up an answer to search for similar lines."""

    hypothetical: bool = False
