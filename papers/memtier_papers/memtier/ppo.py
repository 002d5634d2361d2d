"""Learn the weights of MemTier, eq. 2, by policy gradient (MemTier, section 4.4, eq. 4).  Pure.

A Gaussian with a mean for each weight draws the weights of an episode; its reward is +1 or -1.
PPO's clipped objective moves the mean, with the batch's mean reward as the baseline.  The paper
does not state the clip, the optimiser (Adam here) and its rate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SIGMA: Final = 0.15  # exploration (MemTier, section 4.4)
CLIP: Final = 0.2


@dataclass(frozen=True, slots=True)
class Episode:
    """The weights drawn for one question, and their reward."""

    action: tuple[float, ...]
    reward: float


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return A_t = r_t - mean(r) (MemTier, eq. 4); equal rewards give zeros."""
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def log_probability(action: Sequence[float], mean: Sequence[float], sigma: float = SIGMA) -> float:
    """Return the log density of an action under the diagonal Gaussian policy."""
    return sum(
        -((a - m) ** 2) / (2 * sigma**2) - math.log(sigma) - math.log(2 * math.pi) / 2
        for a, m in zip(action, mean, strict=True)
    )


def likelihood_ratio(old: float, new: float) -> float:
    """Return the probability ratio of an action from its log probabilities."""
    return math.exp(new - old)


def clipped_objective(likelier: float, advantage: float, clip: float = CLIP) -> float:
    """Return PPO's clipped objective (Schulman et al. 2017, eq. 7) of one action."""
    clipped = min(1 + clip, max(1 - clip, likelier))
    return min(likelier * advantage, clipped * advantage)


def policy_gradient(
    mean: Sequence[float], old: Sequence[float], batch: Sequence[Episode], sigma: float = SIGMA
) -> list[float]:
    """Return the gradient of the batch's mean objective with respect to the policy's mean.

    Args:
        old: the mean from which the actions were drawn.
    """
    total = [0.0] * len(mean)
    gains = advantages([episode.reward for episode in batch])
    for episode, gain in zip(batch, gains, strict=True):
        before = log_probability(episode.action, old, sigma)
        likelier = likelihood_ratio(before, log_probability(episode.action, mean, sigma))
        if clipped_objective(likelier, gain) < likelier * gain:
            continue  # clipped: no further step in this direction
        for i, (a, m) in enumerate(zip(episode.action, mean, strict=True)):
            total[i] += likelier * gain * (a - m) / sigma**2 / len(batch)
    return total


def learn_weights(
    start: Sequence[float],
    episodes: Sequence[Episode],
    chance: random.Random,
    *,
    epochs: int = 4,
    size: int = 16,
    rate: float = 0.001,
) -> list[float]:
    """Return the policy's mean after some epochs of Adam over batches of episodes.

    Raises:
        ValueError: all episodes have the same reward, so there is nothing to learn.
    """
    if len({episode.reward for episode in episodes}) < 2:
        raise ValueError(
            f"all {len(episodes)} rewards are equal, so every advantage is 0 (MemTier 4.4): "
            "take more questions, or harder or easier ones"
        )
    mean, shuffled, step = list(start), list(episodes), 0
    first, second = [0.0] * len(mean), [0.0] * len(mean)
    for _ in range(epochs):
        chance.shuffle(shuffled)
        for begin in range(0, len(shuffled), size):
            step += 1
            slopes = policy_gradient(mean, start, shuffled[begin : begin + size])
            for i, slope in enumerate(slopes):
                first[i] = 0.9 * first[i] + 0.1 * slope
                second[i] = 0.999 * second[i] + 0.001 * slope**2
                drift = first[i] / (1 - 0.9**step)
                spread = math.sqrt(second[i] / (1 - 0.999**step))
                mean[i] += rate * drift / (spread + 1e-8)
    return mean
