"""Detect in advance why training weights by rewards would fail (MemTier, section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from memtier_papers.memtier.fit import Example

DOMINANCE: Final = 5.0  # ratio of the largest weighted spread to the second (MemTier: 5 to 10)
TrapName = Literal["circular reward", "constant reward", "constant signal", "dominance"]


@dataclass(frozen=True, slots=True)
class Trap:
    """Why training changes nothing, or nothing visible; with ``stops`` it is not attempted."""

    name: TrapName
    stops: bool
    reason: str


def spreads(examples: Sequence[Example], weights: np.ndarray) -> np.ndarray:
    """Return the mean spread of each weighted signal over a question's hits, (s)."""
    widths = [
        np.ptp(example.signals, axis=0) * weights for example in examples if len(example.signals)
    ]
    return np.mean(widths, axis=0) if widths else np.zeros_like(weights)


def find_constant(examples: Sequence[Example]) -> np.ndarray:
    """Return for each signal whether it is the same for all hits of every question, (s)."""
    units = np.ones(examples[0].signals.shape[1]) if examples else np.zeros(0)
    return np.asarray(spreads(examples, units) <= 0)


def circular_reward(credited: int) -> Trap:
    """Return the trap of a reward that comes only from credits."""
    return Trap(
        "circular reward",
        True,
        f"all {credited} rewards come from credits, which what is injected now has earned: a proxy"
        " of a proxy, with nothing that is known to be right (MemTier 4.4, trap 1)",
    )


def constant_reward(rewards: Sequence[float]) -> Trap | None:
    """Return the trap of identical rewards."""
    if len(set(rewards)) > 1:
        return None
    return Trap(
        "constant reward",
        True,
        f"all {len(rewards)} rewards are equal, so that every advantage is 0 (MemTier 4.4, trap 2):"
        " take more questions, or harder or easier ones",
    )


def signal_traps(
    examples: Sequence[Example], weights: np.ndarray, names: Sequence[str]
) -> list[Trap]:
    """Return the traps of uninformative signals, or of one that dominates the others."""
    traps = []
    constant = find_constant(examples)
    if constant.any():
        frozen = ", ".join(name for name, same in zip(names, constant, strict=True) if same)
        traps.append(
            Trap(
                "constant signal",
                False,
                f"these are the same for all hits of every question, and keep their weights:"
                f" {frozen}",
            )
        )
    widths = spreads(examples, weights)
    order = np.argsort(-widths)
    if len(order) > 1 and widths[order[0]] > DOMINANCE * widths[order[1]]:
        first, second = order[0], order[1]
        ratio = f"{widths[first] / widths[second]:.1f} times" if widths[second] else "more than"
        traps.append(
            Trap(
                "dominance",
                False,
                f"{names[first]} spreads by {widths[first]:.3f}, {ratio} {names[second]}"
                f" ({widths[second]:.3f}): small steps of the weights reorder nothing; scale the"
                " signals first",
            )
        )
    return traps
