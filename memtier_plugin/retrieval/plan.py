"""The records that a recall passes from step to step, each made of the one before.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core.records import FOR_PROMPTS, Fact
from memtier_plugin.core.results import Depth, Hit, RecallRequest, Route, Step
from memtier_plugin.retrieval.block import BlockPlan, keep_injectable
from memtier_plugin.retrieval.duplicates import StatedValue
from memtier_plugin.retrieval.floor import Judged
from memtier_plugin.retrieval.prompt_kind import NO_KINDS, PromptKinds
from memtier_plugin.retrieval.query import Viewer, asks_several
from memtier_plugin.retrieval.search import SearchResult

if TYPE_CHECKING:
    from memtier_plugin.retrieval.candidates import Expansion
    from memtier_plugin.retrieval.search import Ranker


def with_subject(text: str, subject: str) -> str:
    """Return a prompt with what it leaves to its session."""
    return f"{text} ({subject})" if subject else text


class Query(Struct, frozen=True):
    """The recall's options, with the defaults of the settings filled in.

    Attributes:
        until: the deadline, a moment of ``time.monotonic()``.
        by_meaning: whether vectors are compared, too.
        ranker: of the profile.
        is_judged: whether what is found is judged: not for a search, and not as published.
        guarded: whether what comes from outside is kept out of prompts (`trust.defence`).
        kinds: the kinds of prompt it is; none for a search.
        subject: what its session named last, if the query only refers to that.
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
    def full_text(self) -> str:
        """The prompt, with the subject that it leaves to its session."""
        return with_subject(self.text, self.subject)

    @property
    def search_text(self) -> str:
        """The text to search for."""
        return with_subject(self.kinds.query or self.text, self.subject)

    @property
    def resolved_kinds(self) -> PromptKinds:
        """Its kinds once its subject is known: with one, it no longer leans on the session."""
        return replace(self.kinds, follow_up=0.0) if self.subject else self.kinds

    @property
    def several(self) -> bool:
        """Whether it has several answers, each in a separate line."""
        return bool(self.kinds.several) or asks_several(self.text[:2000])

    def keep_allowed(self, hits: Iterable[Hit]) -> list[Hit]:
        """Return the hits that may stand in the block, by what the recall is for."""
        if self.request.purpose not in FOR_PROMPTS:
            return list(hits)
        return keep_injectable(hits, guarded=self.guarded)

    def keep_depth(self, hits: Sequence[Hit]) -> Sequence[Hit]:
        """Return the hits that its depth admits: facts, entries, or both."""
        if self.depth in ("mixed", "auto"):
            return hits
        return [hit for hit in hits if isinstance(hit.item, Fact) == (self.depth == "facts")]

    @property
    def is_ask(self) -> bool:
        """Whether the hits alone are to answer it."""
        return self.request.purpose == "ask"


class Candidates(Struct, frozen=True):
    """The hits of a search, best first.

    Attributes:
        degradations: what kept the search from being complete.
    """

    hits: tuple[Hit, ...]
    result: SearchResult
    degradations: tuple[str, ...]

    def among(self, ids: Collection[str]) -> list[Hit]:
        """Return the hits of these ids, best first."""
        return [hit for hit in self.hits if hit.id in ids] if ids else []

    @property
    def by_time(self) -> bool:
        """Whether only lines of the time that the query names can answer it."""
        return self.result.query_evidence.by_time


class ChosenHits(Struct, frozen=True):
    """The hits to choose lines from: allowed, distinct, and the newer of contradicting facts first.

    Attributes:
        values: the values of single-valued relations that the hits state, by id.
        already_shown: ids of hits left out because the conversation shows them.
    """

    hits: tuple[Hit, ...]
    values: Mapping[str, StatedValue]
    already_shown: tuple[str, ...]


class Routed(Struct, frozen=True):
    """The hits that a router offers to the block: all that were selected, unless one was asked.

    Attributes:
        left_out: by id, why the others are not.
        route: None where the query was not routed.
        added: those that were not among the candidates.
    """

    hits: tuple[Hit, ...]
    left_out: Mapping[str, str] = {}
    route: Route | None = None
    steps: tuple[Step, ...] = ()
    degradations: tuple[str, ...] = ()
    added: tuple[Hit, ...] = ()


class RecallPlan(Struct, frozen=True):
    """All hits of a query, and those of them offered to the block.

    Attributes:
        hits: best first; what follow-up searches added comes last.
        values: the values of single-valued relations that the hits state, by id.
        left_out: why the router or the floor withholds a hit, by id.
        already_shown: ids of hits withheld because the conversation shows them.
        judged: the lines worth showing.
        current: ids of lines that replace another hit.
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
