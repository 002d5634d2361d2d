"""The finding of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """What a check found, how grave it is, where, and the remedy."""

    level: Literal["ok", "warn", "error"]
    what: str
    where: str = ""
    remedy: str = ""
