"""End an import in time: before anything is recorded, or between parts that are recorded whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Final, TypeVar

from memtier_plugin.core.errors import ImportStopped

DEFAULT_MINUTES: Final = 60.0

T = TypeVar("T")


class TimeLimit:
    """The time that an import may take, which begins now.

    Args:
        minutes: 0 for no limit.
        clock: the seconds that pass [those of the machine].
    """

    def __init__(self, minutes: float, clock: Callable[[], float] | None = None) -> None:
        self._minutes = minutes
        self._clock = clock or monotonic
        self._end = self._clock() + 60 * minutes if minutes else math.inf

    def read(self, parts: Iterable[T]) -> Iterator[T]:
        """Yield the parts of a file that is looked through before anything of it is recorded.

        Raises:
            ImportStopped: the time is over.
        """
        for part in parts:
            if self._clock() > self._end:
                raise ImportStopped(
                    f"stopped after {self._minutes:g} min, before the file was read through; "
                    f"nothing was recorded. {self._more_time()}"
                )
            yield part

    def check(self, recorded: int) -> None:
        """Go on, or end an import between two parts.

        Args:
            recorded: how many new messages it has recorded.

        Raises:
            ImportStopped: the time is over.
        """
        if self._clock() <= self._end:
            return
        if recorded:
            then = f"{recorded} new messages are recorded; the same command goes on from there"
        else:
            then = f"no new message was reached. {self._more_time()}"
        raise ImportStopped(f"stopped after {self._minutes:g} min: {then}")

    def _more_time(self) -> str:
        return f"Give it longer: `--minutes {2 * self._minutes:g}`, or 0 for no limit"
