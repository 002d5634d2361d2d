"""Train the weights of the router's doubts: by labels (SFT), then by rewards (GRPO).  No I/O.

The policy is a logistic regression over the doubts of `tiermem.routing`: it escalates with
probability sigmoid(weights · doubts - limit).  GRPO draws eight decisions a question; the advantage
of each is (reward - mean) / standard deviation, with a penalty for leaving the policy after SFT
(TierMem, section 3 and appendix B; the clip never binds, as each draw is used once).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final

from memtier_papers.mem_t.tree_credit import EPSILON
from memtier_papers.tiermem.router_reward import route_label, route_reward
from memtier_papers.tiermem.settings import RouterDoubts
from memtier_plugin.core.errors import Unsupported

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

NAMES: Final = tuple(each.name for each in fields(RouterDoubts) if each.name != "limit")
HARD_TIMES: Final = 5  # weight of a question that only the log answers

_STEPS: Final = 400
_RATE: Final = 0.05
_RIDGE: Final = 0.001
_EPOCHS: Final = 6
_DRAWS: Final = 8  # decisions per question
_BATCH: Final = 24
_TEMPERATURE: Final = 1.2
_BETA: Final = 0.02
_GRPO_RATE: Final = 0.01


@dataclass(frozen=True, slots=True)
class RoutedCase:
    """A question with its doubts, and the results of each route.

    Attributes:
        amounts: of each doubt, 0 to 1; empty if there is no fact, so that the log is used anyway.
        recall, tokens: injected from the facts ("S") and the log ("R").
    """

    id: str
    conversation: str
    amounts: Mapping[str, float]
    recall: Mapping[str, float]
    tokens: Mapping[str, int]

    @property
    def s_right(self) -> bool:
        """Whether the facts alone show every gold turn."""
        return self.recall["S"] == 1

    @property
    def r_right(self) -> bool:
        """Whether the log shows every gold turn."""
        return self.recall["R"] == 1

    def score(self, doubts: RouterDoubts) -> float:
        """Return by how much the doubts exceed the limit."""
        weights = asdict(doubts)
        total = sum(weights[name] * value for name, value in self.amounts.items())
        return float(total - doubts.limit)

    def action(self, doubts: RouterDoubts) -> str:
        """Return the decision that `routing.decide_route` would make."""
        return "S" if self.amounts and round(self.score(doubts), 9) <= 0 else "R"

    def reward(self, action: str) -> float:
        """Return the reward of a decision."""
        return route_reward(action, self.s_right, self.r_right)


def train_by_labels(cases: Sequence[RoutedCase]) -> RouterDoubts:
    """Return the doubts with the least cross-entropy to the labels.

    Raises:
        Unsupported: all labels are the same, or there are none.
    """
    import numpy as np

    labelled = [(c, route_label(c.s_right, c.r_right)) for c in cases if c.amounts]
    rows = [(case, label) for case, label in labelled if label]
    if len({label for _, label in rows}) < 2:
        raise Unsupported(
            f"of {len(cases)} questions {len(rows)} have a label, and all the same: a router needs "
            "some that the facts answer, and some that only the log does"
        )
    values = _matrix([case for case, _ in rows])
    targets = np.array([float(label == "R") for _, label in rows])
    return _as_doubts(_climb_labels(values, targets), values)


def train_by_rewards(cases: Sequence[RoutedCase], start: RouterDoubts, seed: int) -> RouterDoubts:
    """Return the doubts after GRPO from a first policy.

    Raises:
        Unsupported: all decisions earn the same.
    """
    import numpy as np

    usable = [case for case in cases if case.amounts and case.r_right]
    if not usable:
        raise Unsupported("the log is right for none of these questions: nothing can be learned")
    rows = [c for c in usable for _ in range(1 if c.s_right else HARD_TIMES)]
    values = _matrix(rows)
    earned = np.array([[case.reward("S"), case.reward("R")] for case in rows])
    chance = np.random.default_rng(seed)
    reference = _as_vector(start)
    weights = reference.copy()
    first, second, step = np.zeros_like(weights), np.zeros_like(weights), 0
    for _ in range(_EPOCHS):
        order = chance.permutation(len(rows))
        for begin in range(0, len(order), _BATCH):
            chosen = order[begin : begin + _BATCH]
            slope = _reward_slope(weights, reference, values[chosen], earned[chosen], chance)
            step += 1
            first = 0.9 * first + 0.1 * slope
            second = 0.999 * second + 0.001 * slope**2
            drift = first / (1 - 0.9**step)
            weights += _GRPO_RATE * drift / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return _as_doubts(weights, values)


def _reward_slope(
    weights: Vector,
    reference: Vector,
    values: NDArray[np.float64],
    earned: NDArray[np.float64],
    chance: np.random.Generator,
) -> Vector:
    """Return the gradient of one batch's objective: drawn decisions, minus the divergence."""
    import numpy as np

    likely = _sigmoid(values @ weights / _TEMPERATURE)
    drawn = chance.random((len(values), _DRAWS)) < likely[:, None]
    rewards = np.where(drawn, earned[:, 1:], earned[:, :1])
    spread = rewards.std(axis=1, keepdims=True)
    advantages = (rewards - rewards.mean(axis=1, keepdims=True)) / (spread + EPSILON)
    slopes = (advantages * (drawn - likely[:, None])).mean(axis=1) / _TEMPERATURE
    now, before = _sigmoid(values @ weights), _sigmoid(values @ reference)
    apart = np.log(now / before) - np.log((1 - now) / (1 - before))
    slopes -= _BETA * now * (1 - now) * apart
    total: Vector = slopes @ values / len(values)
    return total


def _climb_labels(values: NDArray[np.float64], targets: Vector) -> Vector:
    import numpy as np

    weights = np.zeros(values.shape[1])
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, _STEPS + 1):
        slope = (targets - _sigmoid(values @ weights)) @ values / len(values) - _RIDGE * weights
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        drift = first / (1 - 0.9**step)
        weights += _RATE * drift / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return weights


def _sigmoid(values: Vector) -> Vector:
    import numpy as np

    clipped: Vector = np.clip(1 / (1 + np.exp(-values)), 1e-9, 1 - 1e-9)
    return clipped


def _matrix(cases: Sequence[RoutedCase]) -> NDArray[np.float64]:
    """Return a row of doubts for each case, and a column of ones for the limit."""
    import numpy as np

    return np.array([[*(c.amounts.get(name, 0.0) for name in NAMES), 1.0] for c in cases])


def _as_doubts(weights: Vector, seen: NDArray[np.float64]) -> RouterDoubts:
    """Return the doubts; those that never occurred keep their hand-set share of the new limit."""
    hand, limit = asdict(RouterDoubts()), -float(weights[-1])
    unseen = max(limit, 1.0) / hand["limit"]
    values = {
        name: float(weight) if column.any() else hand[name] * unseen
        for name, weight, column in zip(NAMES, weights, seen.T, strict=False)
    }
    bounded = {name: min(100.0, max(-100.0, round(v, 4))) for name, v in values.items()}
    return RouterDoubts(**bounded, limit=min(100.0, max(-100.0, round(limit, 4))))


def _as_vector(doubts: RouterDoubts) -> Vector:
    import numpy as np

    values = asdict(doubts)
    return np.array([*(values[name] for name in NAMES), -doubts.limit])
