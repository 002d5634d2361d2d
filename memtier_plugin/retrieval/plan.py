"""The records that a recall passes from step to step, each made of the one before.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memtier_plugin.core.results import Depth, Hit, RecallRequest, Route, Step
from memtier_plugin.retrieval.block import BlockPlan
from memtier_plugin.retrieval.contradictions import StatedValue
from memtier_plugin.retrieval.floor import Judged
from memtier_plugin.retrieval.hypothetical import Hypothesis
from memtier_plugin.retrieval.prompt_kind import NO_KINDS, PromptKinds
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.retrieval.routing import RoutedHits
from memtier_plugin.retrieval.search import SearchResult


@dataclass(frozen=True, slots=True)
class Query:
    """The recall's options, with the defaults of the settings filled in.

    Attributes:
        until: the deadline, a moment of ``time.monotonic()``.
        by_meaning: whether vectors are compared, too.
        kinds: what kinds of prompt it is; of a search, none.
        hypothesis: the made-up answer whose like is searched for, too.
    """

    text: str
    viewer: Viewer
    request: RecallRequest
    depth: Depth
    k: int
    token_budget: int
    until: float | None
    by_meaning: bool
    kinds: PromptKinds = NO_KINDS
    hypothesis: Hypothesis | None = None

    @property
    def searched(self) -> str:
        """The text that is searched for."""
        return self.kinds.query or self.text


@dataclass(frozen=True, slots=True)
class Candidates:
    """The hits of a search, best first.

    Attributes:
        degradations: why the search is less than it should be, if it is.
    """

    hits: tuple[Hit, ...]
    result: SearchResult
    degradations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """The hits to choose lines from: allowed, distinct, of contradicting facts the newest first.

    Attributes:
        values: by id, what facts of single-valued relations state.
        already_shown: ids of those left out because the conversation shows them already.
    """

    hits: tuple[Hit, ...]
    values: Mapping[str, StatedValue]
    already_shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Routed:
    """The lines that the router chose, with what follow-up searches added.

    Attributes:
        route: None where the query was not routed.
        added: the lines that were not among the candidates.
    """

    lines: RoutedHits
    route: Route | None = None
    steps: tuple[Step, ...] = ()
    degradations: tuple[str, ...] = ()
    added: tuple[Hit, ...] = ()


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """All hits of a query, and those of them offered to the block.

    Attributes:
        hits: best first, with what follow-up searches added at the end.
        values: by id, what facts of single-valued relations state.
        left_out: by id, why the router or the floor does not offer a hit.
        already_shown: ids of what is not offered because the conversation shows it.
        judged: what of the lines is worth showing.
        current: ids of lines that replace another one that was found.
    """

    query: Query
    hits: tuple[Hit, ...]
    result: SearchResult
    degradations: tuple[str, ...]
    values: Mapping[str, StatedValue]
    block: BlockPlan
    route: Route | None
    left_out: Mapping[str, str]
    steps: tuple[Step, ...]
    already_shown: tuple[str, ...]
    judged: Judged
    current: frozenset[str] = frozenset()
