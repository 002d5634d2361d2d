"""End an import in time: before anything is recorded, or between parts that are recorded whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from time import monotonic
from typing import Final, TypeVar

from memtier_plugin.core.errors import ImportStopped

DEFAULT_MINUTES: Final = 60.0
_EVERY: Final = 1000  # lines or messages of a session, between two looks at the clock

T = TypeVar("T")


class TimeLimit:
    """The time that an import may take, which begins now.

    Args:
        minutes: 0 for no limit.
        clock: a monotonic clock, in seconds [`time.monotonic`].
    """

    def __init__(self, minutes: float, clock: Callable[[], float] | None = None) -> None:
        self._minutes = minutes
        self._clock = clock or monotonic
        self._end = self._clock() + 60 * minutes if minutes else math.inf

    def read(self, parts: Iterable[T]) -> Iterator[T]:
        """Yield the parts of a file that is looked through before anything of it is recorded.

        What reads a part goes by the same limit, see `in_time`.

        Raises:
            ImportStopped: the time is over.
        """
        token = _at_hand.set(self)
        try:
            for part in parts:
                self.check_unrecorded()
                yield part
        finally:
            _at_hand.reset(token)

    def check_unrecorded(self) -> None:
        """Go on, or end an import that has recorded nothing yet.

        Raises:
            ImportStopped: the time is over.
        """
        if self._clock() > self._end:
            raise ImportStopped(
                f"stopped after {self._minutes:g} min, before the file was read through; "
                f"nothing was recorded. {self._more_time()}"
            )

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


_at_hand: Final[ContextVar[TimeLimit | None]] = ContextVar("memtier_import", default=None)


def in_time(parts: Iterable[T]) -> Iterator[T]:
    """Yield the lines or messages of a session, as long as the import that looks through it may.

    Raises:
        ImportStopped: the time is over.
    """
    for number, part in enumerate(parts, start=1):
        if number % _EVERY == 0 and (limit := _at_hand.get()):
            limit.check_unrecorded()
        yield part
