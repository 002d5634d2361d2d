"""Bounds of numbers in public calls, as annotations that `codecs.check_arguments` reads."""

from __future__ import annotations

from typing import Annotated, NamedTuple


class Within(NamedTuple):
    """The least and the greatest value of a number; None where it has no end."""

    low: float
    high: float | None = None


Count = Annotated[int, Within(1, 2**63 - 1)]
Lines = Annotated[int, Within(1, 1000)]
Tokens = Annotated[int, Within(16, 100_000)]
Milliseconds = Annotated[float, Within(0, 86_400_000)]  # a day
