"""Credit the calls of a retrieval tree, and the operations that wrote its memory.  Pure.

MoT-GRPO (Mem-T, sections 3.2 and 3.3): every node of a tree of searches gets a reward, which is
compared within its tree and with all trees of the question; the operations that wrote the memory
get the advantages of the leaves in hindsight.  ``ALPHA`` and ``EPSILON`` are not in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

ALPHA: Final = 0.5  # weight of the evidence in a reward
EPSILON: Final = 1e-6
TRACE: Final = 0.1  # lambda of Mem-T, eq. 17
KEPT_SHARE: Final = 0.5

Operation = TypeVar("Operation")


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One call of a tree.

    Attributes:
        parent: the index of the previous node in the tree's list; None for the first call.
        evidence: the share of the gold turns shown so far.
        answer: the quality of a leaf's answer, 0 to 1; ignored for other nodes.
        valid: whether the call could be parsed.
    """

    parent: int | None
    evidence: float
    answer: float = 0.0
    valid: bool = True


def expected_answers(tree: Sequence[TreeNode]) -> list[float]:
    """Return Perform(v): a leaf's answer, else the mean over the children (Mem-T, section 3.2).

    An invalid child counts 0.

    Args:
        tree: each node after its parent.
    """
    children: list[list[float]] = [[] for _ in tree]
    values = [0.0] * len(tree)
    for index in range(len(tree) - 1, -1, -1):
        node = tree[index]
        below = children[index]
        values[index] = math.fsum(below) / len(below) if below else node.answer
        if node.parent is not None:
            children[node.parent].append(values[index] if node.valid else 0.0)
    return values


def reward(evidence: float, answer: float, *, valid: bool = True, alpha: float = ALPHA) -> float:
    """Return R(v) = I_fmt (alpha Evid + Perform) (Mem-T, eq. 10)."""
    return alpha * evidence + answer if valid else 0.0


def tree_rewards(tree: Sequence[TreeNode], alpha: float = ALPHA) -> list[float]:
    """Return the reward of each node (Mem-T, eq. 10)."""
    return [
        reward(node.evidence, answer, valid=node.valid, alpha=alpha)
        for node, answer in zip(tree, expected_answers(tree), strict=True)
    ]


def standardise(values: Sequence[float], among: Sequence[float]) -> list[float]:
    """Return how many standard deviations (population) each value is above the others' mean.

    Equal rewards give 0.
    """
    mean = math.fsum(among) / len(among)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in among) / len(among))
    return [(value - mean) / (spread + EPSILON) for value in values]


def dual_advantages(
    rewards: Sequence[Sequence[float]], *, intra: bool = True, inter: bool = True
) -> list[list[float]]:
    """Return A(v) = A_intra + A_inter for the nodes of each tree (Mem-T, eq. 11 to 13).

    Args:
        rewards: of the nodes of each tree of one question.
        intra, inter: turn one off for an ablation.
    """
    everything = [value for tree in rewards for value in tree]
    advantages = []
    for tree in rewards:
        inside = standardise(tree, tree) if intra else [0.0] * len(tree)
        across = standardise(tree, everything) if inter else [0.0] * len(tree)
        advantages.append([a + b for a, b in zip(inside, across, strict=True)])
    return advantages


def leaves(tree: Sequence[TreeNode]) -> list[int]:
    """Return the indexes of the nodes without children."""
    parents = {node.parent for node in tree}
    return [index for index in range(len(tree)) if index not in parents]


def hindsight_score(
    advantages: Mapping[str, float], *, aligned: bool, traced: Collection[str]
) -> float:
    """Return S(a) of an operation that wrote a memory item (Mem-T, eq. 16 and 17).

    Args:
        advantages: of each leaf of the question's trees.
        aligned: whether the item's sources meet the gold turns.
        traced: the leaves on whose path the item was shown.
    """
    total = math.fsum(
        value * (aligned + TRACE * (leaf in traced)) for leaf, value in advantages.items()
    )
    return total / len(advantages)


def select_operations(
    scored: Iterable[tuple[str, float, Operation]], *, positive: bool = True
) -> dict[str, list[tuple[float, Operation]]]:
    """Return the better half of the operations of each kind, best first.

    Mem-T, section 3.3; half of an odd number is rounded up.

    Args:
        scored: the kind, score and operation.
        positive: drop operations without a positive score, which rank alone would keep if nothing
            of their kind helped.
    """
    kinds: dict[str, list[tuple[float, Operation]]] = {}
    for kind, score, operation in scored:
        kinds.setdefault(kind, []).append((score, operation))
    selected = {}
    for kind, rows in kinds.items():
        rows.sort(key=lambda row: -row[0])
        half = rows[: math.ceil(KEPT_SHARE * len(rows))]
        selected[kind] = [row for row in half if row[0] > 0 or not positive]
    return selected
