"""The records that a recall passes from step to step, each made of the one before.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memtier_plugin.core.records import FOR_PROMPTS
from memtier_plugin.core.results import Depth, Hit, RecallRequest, Route, Step
from memtier_plugin.retrieval.block import BlockPlan, keep_injectable
from memtier_plugin.retrieval.contradictions import StatedValue
from memtier_plugin.retrieval.floor import Judged
from memtier_plugin.retrieval.prompt_kind import NO_KINDS, PromptKinds
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.retrieval.routing import RoutedHits, asks_several
from memtier_plugin.retrieval.search import SearchResult

if TYPE_CHECKING:
    from memtier_plugin.retrieval.rankers import Expansion, Ranker


def with_subject(text: str, subject: str) -> str:
    """Return a prompt with what it leaves to its session."""
    return f"{text} ({subject})" if subject else text


@dataclass(frozen=True, slots=True)
class Query:
    """The recall's options, with the defaults of the settings filled in.

    Attributes:
        until: the deadline, a moment of ``time.monotonic()``.
        by_meaning: whether vectors are compared, too.
        ranker: of the profile.
        is_judged: whether what is found is judged: not for a search, and not as published.
        guarded: whether what comes from outside is kept out of prompts (`trust.defence`).
        kinds: what kinds of prompt it is; of a search, none.
        subject: what its session named last, if it only points at that.
        expansion: another text that is searched for by its meaning.
    """

    text: str
    viewer: Viewer
    request: RecallRequest
    depth: Depth
    k: int
    token_budget: int
    until: float | None
    by_meaning: bool
    ranker: Ranker
    is_judged: bool
    guarded: bool
    kinds: PromptKinds = NO_KINDS
    subject: str = ""
    expansion: Expansion | None = None

    @property
    def asked(self) -> str:
        """The prompt, with what it leaves to its session."""
        return with_subject(self.text, self.subject)

    @property
    def searched(self) -> str:
        """The text that is searched for."""
        return with_subject(self.kinds.query or self.text, self.subject)

    @property
    def own_kinds(self) -> PromptKinds:
        """Its kinds by what is searched for: with a subject it leans on nothing any more."""
        return replace(self.kinds, follow_up=0.0) if self.subject else self.kinds

    @property
    def several(self) -> bool:
        """Whether it has several answers, which lie in as many lines."""
        return bool(self.kinds.several) or asks_several(self.text[:2000])

    def keep_allowed(self, hits: Iterable[Hit]) -> list[Hit]:
        """Return the hits that may stand in the block, by what the recall is for."""
        if self.request.purpose not in FOR_PROMPTS:
            return list(hits)
        return keep_injectable(hits, guarded=self.guarded)

    @property
    def asks(self) -> bool:
        """Whether it is to be answered by what is found alone."""
        return self.request.purpose == "ask"


@dataclass(frozen=True, slots=True)
class Candidates:
    """The hits of a search, best first.

    Attributes:
        degradations: why the search is less than it should be, if it is.
    """

    hits: tuple[Hit, ...]
    result: SearchResult
    degradations: tuple[str, ...]

    @property
    def by_time(self) -> bool:
        """Whether only what was said in a time answers."""
        return self.result.query_evidence.by_time


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
