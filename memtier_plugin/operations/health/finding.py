"""Describe one thing that a check looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """One thing that `doctor` looked at."""

    level: Literal["ok", "warn", "error"]
    what: str
    where: str = ""
    remedy: str = ""
