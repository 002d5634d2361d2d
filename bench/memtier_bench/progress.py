"""Report the progress of a benchmark."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # the current step, the number done, and the total


def no_progress(what: str, done: int, total: int) -> None:
    """Report no progress."""
