"""How deep a recall or an answer goes, why, and what each of its steps took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

# mixed: facts and entries ranked together; facts: facts only; raw: entries only; auto: routed.
Depth = Literal["mixed", "facts", "raw", "auto"]
Action = Literal["S", "R"]  # answer from the summary tier (facts), or go back to the raw log


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a router decided: ``S`` for the facts alone, ``R`` for the raw log.

    ``doubt`` is how far the facts are from being enough (0: not at all), ``why`` says it in words,
    ``by`` names the router: "features", or the model.
    """

    action: Action
    doubt: float
    why: tuple[str, ...]
    by: str = "features"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "action": self.action,
            "doubt": round(self.doubt, 6),
            "why": list(self.why),
            "by": self.by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step took: milliseconds, and the tokens that a reader gets to read or writes.

    ``read`` counts what was looked at to do it: items, or the pages of a research round.
    """

    name: str
    ms: float
    tokens: int = 0
    read: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "ms": round(self.ms, 3),
            "tokens": self.tokens,
            "read": self.read,
        }
