"""The finding of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "error"]


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """The finding of a check: severity, location, message and remedy."""

    level: Level
    what: str
    where: str = ""
    remedy: str = ""
