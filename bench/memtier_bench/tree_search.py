"""Searches of a question as a tree: the results of each path of calls, and branching rollouts.

A state is a function of the calls before it, so that it is computed once however often it is rolled
out.  MoT-GRPO (Mem-T, section 3.2): seed rollouts, each with branches from some of its calls.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from memtier_papers.mem_t.planning import (
    ACTIONS,
    MAX_DEPTH,
    AskedQuestion,
    PlanState,
    ShownLine,
    Tokenize,
    features,
    legal_queries,
    words_of,
)
from memtier_papers.mem_t.tool_calls import FINISH
from memtier_papers.mem_t.tree_credit import TreeNode
from memtier_plugin.answering.store_search import NO_RESULTS, SearchCall, StoreSearch
from memtier_plugin.core.records import count_tokens
from memtier_plugin.core.results import Hit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Weights = NDArray[np.float64]

TREES: Final = 3  # G of Mem-T, section 4.1
ROUNDS: Final = 1  # M, which the paper does not give
PIVOTS: Final = 3  # N_v
_FINISH: Final = next(i for i, action in enumerate(ACTIONS) if action.tool == FINISH)

CallPath = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Situation:
    """A state of a question's searches, with the results of its calls.

    Attributes:
        evidence: the share of the gold turns shown.
        shown: the ids of the items shown, in order.
        tokens: of all lines shown.
    """

    state: PlanState
    queries: tuple[str | None, ...]
    features: NDArray[np.float64]
    legal: NDArray[np.bool_]
    evidence: float
    shown: tuple[str, ...]
    turns: frozenset[str]
    tokens: int

    @property
    def ended(self) -> bool:
        """Whether this is after the last search."""
        return len(self.state.taken) >= MAX_DEPTH


@dataclass(slots=True)
class SearchableQuestion:
    """A question of a data set, and the situations that its searches lead to."""

    id: str
    asked: AskedQuestion
    gold: frozenset[str]
    search: StoreSearch
    turn_of: Mapping[str, str]
    tokenize: Tokenize
    _hits: dict[tuple[str, str], tuple[list[Hit], list[_FoundLine]]] = field(default_factory=dict)
    _situations: dict[CallPath, Situation] = field(default_factory=dict)

    def situation(self, path: CallPath) -> Situation:
        """Return the situation after some searches, by their indexes in `ACTIONS`."""
        known = self._situations.get(path)
        if known is None:
            known = self._begin() if not path else self._follow(self.situation(path[:-1]), path[-1])
            self._situations[path] = known
        return known

    def _begin(self) -> Situation:
        return self._make(PlanState(self.asked), (), frozenset(), 0)

    def _follow(self, before: Situation, index: int) -> Situation:
        query = before.queries[index]
        assert query, "only legal searches are followed"
        seen = set(before.shown)
        lines = [line for line in self._find(ACTIONS[index].tool, query) if line.id not in seen]
        state = PlanState(
            question=self.asked,
            taken=(*before.state.taken, (index, query)),
            lines=(*before.state.lines, *(line.shown for line in lines)),
            new=len(lines),
        )
        shown = (*before.shown, *(line.id for line in lines))
        turns = before.turns.union(*(line.turns for line in lines))
        return self._make(state, shown, turns, before.tokens + sum(line.tokens for line in lines))

    def _make(
        self, state: PlanState, shown: tuple[str, ...], turns: frozenset[str], tokens: int
    ) -> Situation:
        import numpy as np

        queries = tuple(legal_queries(state))
        return Situation(
            state=state,
            queries=queries,
            features=np.array(features(state)),
            legal=np.array([query is not None for query in queries]),
            evidence=len(turns & self.gold) / len(self.gold),
            shown=shown,
            turns=turns,
            tokens=tokens,
        )

    def transcript(self, path: CallPath) -> list[str]:
        """Return the transcript that a model would see after some searches."""
        shown = StoreSearch(self.search.store, self.search.recaller, self.search.viewer)
        lines: list[str] = []
        for step, index in enumerate(path):
            query = self.situation(path[:step]).queries[index]
            assert query, "only legal searches are followed"
            tool = ACTIONS[index].tool
            self._find(tool, query)
            lines.append(f"step {step + 1}: {tool}({query})")
            lines += shown.show(self._hits[tool, query][0], query) or [NO_RESULTS]
        return lines

    def _find(self, tool: str, query: str) -> list[_FoundLine]:
        if (tool, query) not in self._hits:
            hits = self.search.search(SearchCall(tool, query))
            self._hits[tool, query] = hits, [self._read(hit) for hit in _distinct(hits)]
        return self._hits[tool, query][1]

    def _read(self, hit: Hit) -> _FoundLine:
        turns = {self.turn_of[s.entry] for s in hit.sources if s.entry in self.turn_of}
        words = ShownLine(words_of(hit.text, self.tokenize))
        return _FoundLine(hit.id, frozenset(turns), words, count_tokens(hit.text))


@dataclass(frozen=True, slots=True)
class _FoundLine:
    id: str
    turns: frozenset[str]
    shown: ShownLine
    tokens: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a rollout, the situation in which it was made, and its result."""

    before: Situation
    action: int
    log_probability: float
    after: Situation
    path: CallPath

    @property
    def is_last(self) -> bool:
        """Whether this is the end of a rollout."""
        return self.action == _FINISH or self.after.ended


@dataclass(slots=True)
class CallTree:
    """The calls of a tree, each after its parent, and the index of the parent."""

    calls: list[Call] = field(default_factory=list)
    parents: list[int | None] = field(default_factory=list)

    def nodes(self) -> list[TreeNode]:
        """Return the nodes in the form that `tree_credit` takes."""
        return [
            TreeNode(parent, call.after.evidence, rate_end(call.after))
            for parent, call in zip(self.parents, self.calls, strict=True)
        ]


def _distinct(hits: Sequence[Hit]) -> list[Hit]:
    first: dict[str, Hit] = {}
    for hit in hits:
        first.setdefault(hit.id, hit)
    return [*first.values()]


def rate_end(end: Situation) -> float:
    """Return the quality of a rollout's end: 1 if every gold turn was shown.

    It replaces the F1 of the answer that the paper uses, which only a model can give.
    """
    return float(end.evidence == 1)


def roll_out(
    question: SearchableQuestion, weights: Weights, chance: random.Random, path: CallPath = ()
) -> list[Call]:
    """Return the calls that a policy draws, starting from a situation."""
    calls: list[Call] = []
    while True:
        before = question.situation(path)
        if before.ended:
            return calls
        chances = action_probabilities(weights, before.features, before.legal)
        action = draw_index(chances, chance)
        if action != _FINISH:
            path = (*path, action)
        calls.append(Call(before, action, _log(chances[action]), question.situation(path), path))
        if action == _FINISH:
            return calls


def follow_best(question: SearchableQuestion, weights: Weights) -> Situation:
    """Return the situation reached by a policy's likeliest calls."""
    path: CallPath = ()
    while True:
        here = question.situation(path)
        if here.ended:
            return here
        chances = action_probabilities(weights, here.features, here.legal)
        action = int(chances.argmax())
        if action == _FINISH:
            return here
        path = (*path, action)


def grow_tree(question: SearchableQuestion, weights: Weights, chance: random.Random) -> CallTree:
    """Return a seed rollout with branches from drawn calls (Mem-T, section 3.2, eq. 8 and 9)."""
    tree = CallTree()
    _graft(tree, None, roll_out(question, weights, chance))
    for _ in range(ROUNDS):
        inner = [index for index, call in enumerate(tree.calls) if not call.is_last]
        for pivot in chance.choices(inner, k=PIVOTS) if inner else ():
            _graft(tree, pivot, roll_out(question, weights, chance, tree.calls[pivot].path))
    return tree


def _graft(tree: CallTree, parent: int | None, calls: Sequence[Call]) -> None:
    for call in calls:
        tree.calls.append(call)
        tree.parents.append(parent)
        parent = len(tree.calls) - 1


def action_probabilities(
    weights: Weights, values: NDArray[np.float64], legal: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the softmax over the legal actions, as `planning.probabilities`."""
    import numpy as np

    scores = np.where(legal, weights @ values, -np.inf)
    parts = np.exp(scores - scores.max())
    total: NDArray[np.float64] = parts / parts.sum()
    return total


def draw_index(chances: NDArray[np.float64], chance: random.Random) -> int:
    """Draw an index by its probability."""
    left = chance.random()
    for index, share in enumerate(chances.tolist()):
        left -= share
        if left < 0:
            return index
    return int(chances.argmax())


def _log(value: float) -> float:
    return math.log(max(value, 1e-300))
