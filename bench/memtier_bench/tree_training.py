"""Train the small planner: by trees (MoT-GRPO), or by chains (GRPO) as the paper's comparison.

The objective is that of Mem-T (eq. 14 and 15): PPO's clipped ratio with the advantage of a call, a
penalty for leaving the first policy, the mean over the calls of a tree and over trees.  The policy
is a softmax linear in the features, so its gradient has a closed form.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from memtier_bench.tree_search import (
    PIVOTS,
    ROUNDS,
    TREES,
    Call,
    CallTree,
    SearchableQuestion,
    grow_tree,
    rate_end,
    roll_out,
)
from memtier_papers.mem_t.planning import ACTIONS, FEATURES
from memtier_papers.mem_t.tree_credit import dual_advantages, reward, standardise, tree_rewards
from memtier_plugin.core.errors import Unsupported

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memtier_bench.tree_search import Weights

Method = Literal["tree", "chain"]
CLIP: Final = 0.2
KL: Final = 0.001  # beta of Mem-T, eq. 14
BATCH: Final = 32  # questions
UPDATES: Final = 60
_EPOCHS: Final = 2  # over the calls of a batch
_RATE: Final = 0.05
_CHAINS: Final = TREES * (1 + ROUNDS * PIVOTS)  # as many rollouts as the trees have


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a policy is trained, optionally without one of the two advantages for an ablation."""

    method: Method = "tree"
    intra: bool = True
    inter: bool = True


@dataclass(slots=True)
class TrainingBatch:
    """The calls of a batch as arrays, one row each."""

    features: NDArray[np.float64]
    legal: NDArray[np.bool_]
    actions: NDArray[np.int64]
    old: NDArray[np.float64]  # log probabilities when they were drawn
    advantages: NDArray[np.float64]
    shares: NDArray[np.float64]  # of a call in the mean of eq. 14


def first_weights() -> Weights:
    """Return the weights of an untrained policy: all legal actions are equally likely."""
    import numpy as np

    return np.zeros((len(ACTIONS), len(FEATURES)))


def train_policy(
    questions: Sequence[SearchableQuestion],
    recipe: Recipe,
    seed: int,
    updates: int = UPDATES,
) -> tuple[Weights, list[float]]:
    """Return the trained weights, and each update's mean rollout reward.

    Raises:
        Unsupported: all rollouts earned the same reward, so there is nothing to learn.
    """
    import numpy as np

    chance = random.Random(seed)
    weights = first_weights()
    first, second, step = np.zeros_like(weights), np.zeros_like(weights), 0
    means, differed = [], False
    for _ in range(updates):
        drawn = chance.sample(questions, min(BATCH, len(questions)))
        groups = [credit_calls(question, weights, recipe, chance) for question in drawn]
        means.append(sum(mean for _, mean in groups) / len(groups))
        batch = _stack([row for rows, _ in groups for row in rows], len(groups))
        differed = differed or bool(np.abs(batch.advantages).max() > 0)
        for _ in range(_EPOCHS):
            step += 1
            slope = objective_gradient(weights, batch)
            first = 0.9 * first + 0.1 * slope
            second = 0.999 * second + 0.001 * slope**2
            drift = first / (1 - 0.9**step)
            weights += _RATE * drift / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    if not differed:
        raise Unsupported(
            f"all rollouts of {len(questions)} questions earned the same, so that every advantage "
            "is 0: take more questions, or harder or easier ones"
        )
    return weights, means


def credit_calls(
    question: SearchableQuestion, weights: Weights, recipe: Recipe, chance: random.Random
) -> tuple[list[tuple[Call, float, float]], float]:
    """Roll a question out; return its calls with advantage and share, and the mean leaf reward."""
    if recipe.method == "chain":
        return _credit_chains(question, weights, chance)
    trees = [grow_tree(question, weights, chance) for _ in range(TREES)]
    rows, ends = [], []
    for tree, values in zip(trees, tree_advantages(trees, recipe), strict=True):
        share = 1 / len(trees) / len(tree.calls)
        rows += [(call, value, share) for call, value in zip(tree.calls, values, strict=True)]
        ends += [_end_reward(call) for call in tree.calls if call.is_last]
    return rows, sum(ends) / len(ends)


def tree_advantages(trees: Sequence[CallTree], recipe: Recipe | None = None) -> list[list[float]]:
    """Return the advantage of each call of a question's trees."""
    recipe = recipe or Recipe()
    rewards = [tree_rewards(tree.nodes()) for tree in trees]
    return dual_advantages(rewards, intra=recipe.intra, inter=recipe.inter)


def _credit_chains(
    question: SearchableQuestion, weights: Weights, chance: random.Random
) -> tuple[list[tuple[Call, float, float]], float]:
    """Give every call of a chain the advantage of its end among the chains (GRPO)."""
    chains = [roll_out(question, weights, chance) for _ in range(_CHAINS)]
    ends = [_end_reward(chain[-1]) for chain in chains]
    values = standardise(ends, ends)
    rows = [
        (call, value, 1 / len(chains) / len(chain))
        for chain, value in zip(chains, values, strict=True)
        for call in chain
    ]
    return rows, sum(ends) / len(ends)


def _end_reward(call: Call) -> float:
    return reward(call.after.evidence, rate_end(call.after))


def _stack(rows: Sequence[tuple[Call, float, float]], questions: int) -> TrainingBatch:
    import numpy as np

    calls = [call for call, _, _ in rows]
    return TrainingBatch(
        features=np.stack([call.before.features for call in calls]),
        legal=np.stack([call.before.legal for call in calls]),
        actions=np.array([call.action for call in calls]),
        old=np.array([call.log_probability for call in calls]),
        advantages=np.array([value for _, value, _ in rows]),
        shares=np.array([share for _, _, share in rows]) / questions,
    )


def log_probabilities(weights: Weights, batch: TrainingBatch) -> NDArray[np.float64]:
    """Return the log probability of every action in every row; minus infinity where illegal."""
    import numpy as np

    scores = np.where(batch.legal, batch.features @ weights.T, -np.inf)
    scores -= scores.max(axis=1, keepdims=True)
    total: NDArray[np.float64] = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return total


def objective(weights: Weights, batch: TrainingBatch) -> float:
    """Return the objective of Mem-T, eq. 14; the reference policy is the untrained one."""
    import numpy as np

    logs = log_probabilities(weights, batch)
    ratios = np.exp(logs[np.arange(len(logs)), batch.actions] - batch.old)
    clipped = np.clip(ratios, 1 - CLIP, 1 + CLIP)
    gains = np.minimum(ratios * batch.advantages, clipped * batch.advantages)
    return float((batch.shares * (gains - KL * _divergences(logs, batch))).sum())


def objective_gradient(weights: Weights, batch: TrainingBatch) -> Weights:
    """Return the gradient of `objective` with respect to the weights."""
    import numpy as np

    logs = log_probabilities(weights, batch)
    chances = np.exp(logs)
    rows = np.arange(len(logs))
    ratios = np.exp(logs[rows, batch.actions] - batch.old)
    gains = ratios * batch.advantages
    moving = gains <= np.clip(ratios, 1 - CLIP, 1 + CLIP) * batch.advantages
    taken = np.zeros_like(chances)
    taken[rows, batch.actions] = 1.0
    slopes = (gains * moving)[:, None] * (taken - chances)
    apart = np.where(batch.legal, logs - _reference(batch), 0.0)
    slopes -= KL * chances * (apart - _divergences(logs, batch)[:, None])
    total: Weights = (slopes * batch.shares[:, None]).T @ batch.features
    return total


def _reference(batch: TrainingBatch) -> NDArray[np.float64]:
    import numpy as np

    reference: NDArray[np.float64] = -np.log(batch.legal.sum(axis=1, keepdims=True))
    return reference


def _divergences(logs: NDArray[np.float64], batch: TrainingBatch) -> NDArray[np.float64]:
    """Return KL(policy || untrained policy) of each row."""
    import numpy as np

    apart = np.where(batch.legal, logs - _reference(batch), 0.0)
    total: NDArray[np.float64] = (np.exp(logs) * apart).sum(axis=1)
    return total
