"""Report the progress of a benchmark."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # what is being done, how many are done, of how many


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore the progress of a run that nobody watches."""
