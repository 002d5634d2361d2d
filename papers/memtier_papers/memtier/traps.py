"""Why training weights by rewards may move nothing (MemTier, section 4.4), found before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from memtier_papers.memtier.fit import Example

DOMINANCE: Final = 5.0  # of the largest weighted spread over the second (MemTier: 5 to 10)
TrapName = Literal["circular reward", "constant reward", "constant signal", "dominance"]


@dataclass(frozen=True, slots=True)
class Trap:
    """Why training moves nothing, or nothing that shows; with ``stops`` it is not tried."""

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
    """Tell of each signal whether it is the same for all hits of every question, (s)."""
    units = np.ones(examples[0].signals.shape[1]) if examples else np.zeros(0)
    return np.asarray(spreads(examples, units) <= 0)


def circular_reward(credited: int) -> Trap:
    """Return the trap of a reward that comes from credits alone."""
    return Trap(
        "circular reward",
        True,
        f"all {credited} rewards come from credits, which what is injected now has earned: a proxy"
        " of a proxy, with nothing that is known to be right (MemTier 4.4, trap 1)",
    )


def constant_reward(rewards: Sequence[float]) -> Trap | None:
    """Return the trap of rewards that are all equal."""
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
    """Return the traps of signals that say nothing, or of one that drowns the others."""
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
