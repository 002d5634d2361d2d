"""The priority of a record, the drift of a persona, and the tiers that follow.  Pure.

HMO, section 3. The equations are missing from the published text; these are reconstructed from its
prose, and `papers/tests/golden/hmo.json` holds their values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

Tier = Literal[1, 2, 3]
CACHE: Final[Tier] = 1
BUFFER: Final[Tier] = 2
ARCHIVE: Final[Tier] = 3
TIER_NAMES: Final[Mapping[int, str]] = {CACHE: "cache", BUFFER: "buffer", ARCHIVE: "archive"}

LOWEST: Final = 1  # of the importance
HIGHEST: Final = 10
DEFAULT_IMPORTANCE: Final = 4  # if a model gives no number
ALPHA: Final = 0.5  # weight of the importance
BETA: Final = 0.5  # weight of the alignment
TAU_DAYS: Final = 20.0  # the base decay: a half-life of 13.86 days for unused entries
MAX_RECENT: Final = 1_000  # newest entries of the latest sessions kept in the cache
MAX_USES: Final = 50  # maximum that counts, as the gain itself has no bound


def persistence(uses: int) -> float:
    """Return L = 1 + ln(1 + n), the logarithmic gain of uses (HMO, eq. 5)."""
    return 1.0 + math.log1p(min(max(0, uses), MAX_USES))


def base_priority(
    importance: int, alignment: float, *, alpha: float = ALPHA, beta: float = BETA
) -> float:
    """Return the weighted sum of importance, 1 to 10, and alignment, a cosine (HMO, eq. 5)."""
    scaled = (min(max(importance, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return alpha * scaled + beta * max(0.0, alignment)


def priority(base: float, uses: int, days: float, *, tau: float = TAU_DAYS) -> float:
    """Return the priority of a record (HMO, eq. 5).

    Args:
        base: see `base_priority`.
        uses: how often it was used.
        days: since its last use; negative values (the clock was set back) count as 0.
    """
    gain = persistence(uses)
    return base * gain * math.exp(-max(0.0, days) / (tau * gain))


def drift(current: Sequence[float], anchor: Sequence[float]) -> float:
    """Return 1 - cos of two personas (HMO, eq. 6); 1 if either is empty."""
    lengths = math.hypot(*current) * math.hypot(*anchor)
    if not lengths:
        return 1.0
    return 1.0 - math.fsum(a * b for a, b in zip(current, anchor, strict=True)) / lengths


def assign_tiers(
    priorities: Mapping[str, float], recent: Collection[str], cache: int, buffer: int
) -> dict[str, Tier]:
    """Return the tier of each record by its priority (HMO, section 3.2).

    The first ``cache`` are in tier 1, the next ``buffer`` in tier 2, the rest in tier 3. Records of
    the latest sessions are in tier 1 whatever their priority and take none of its slots; as many of
    them as both tiers hold also keep a pointer, to compete once their session is no longer recent.
    """
    tiers: dict[str, Tier] = {}
    slots = {CACHE: cache, BUFFER: buffer}
    room = cache + buffer
    for item in sorted(priorities, key=lambda item: (-priorities[item], item)):
        if item in recent and room:
            room -= 1
            tiers[item] = CACHE
            continue
        tier = next((tier for tier, left in slots.items() if left), ARCHIVE)
        if tier != ARCHIVE:
            slots[tier] -= 1
        tiers[item] = tier
    return tiers
