"""Times: the clock, ISO 8601 text, and zones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache


def to_iso(moment: datetime) -> str:
    """Return the fixed-width UTC form used on disk; text order is time order."""
    # Not strftime, which writes the year 800 with three digits on some platforms.
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


@lru_cache(1024)  # the entries of a session share theirs
def from_iso(text: str) -> datetime:
    """Parse an ISO-8601 time; one without an offset is UTC.

    Raises:
        ValueError: the text is not a time.
    """
    moment = datetime.fromisoformat(text)
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"the time {text!r} is out of range") from error


def aware(moment: datetime | None) -> datetime | None:
    """Return a time with its zone; one without is UTC."""
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def utc_now() -> datetime:
    # Milliseconds, as on disk: what is written and what is read back are equal.
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


Clock = Callable[[], datetime]
