"""Bounds of numbers in public calls, as annotations that `codecs.check_arguments` reads."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Lines = Annotated[int, Meta(ge=1, le=1000)]
Tokens = Annotated[int, Meta(ge=16, le=100_000)]
Milliseconds = Annotated[float, Meta(ge=0, le=86_400_000)]  # a day
