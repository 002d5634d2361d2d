"""Read a time that a person typed: 2026-03-14T09:00, 2d, yesterday, last Friday."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from memtier_plugin.core.times import from_iso
from memtier_plugin.text.dates.spans import find_time_spans

TIME_FORMS: Final = (
    "a time like 2026-03-14 or 2026-03-14T09:00 (UTC), as long ago as 30m, 3h, 2d or 1w, "
    'or words like yesterday or "last Friday"'
)
_AGO: Final = re.compile(r"(\d+)\s*(m|min|h|d|w)", re.IGNORECASE)
_UNITS: Final = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_EARLIEST: Final = datetime(1971, 1, 1, tzinfo=UTC)  # "before 2020" has no beginning


def read_typed_time(text: str, now: datetime) -> datetime:
    """Return the moment that a text names; of a day, or longer, its beginning.

    Raises:
        ValueError: it names none; the message says what does.
    """
    text = text.strip()
    try:
        if ago := _AGO.fullmatch(text):
            return now - timedelta(**{_UNITS[ago[2].lower()]: int(ago[1])})
    except OverflowError:
        raise ValueError(f"{text!r} is longer ago than there are years") from None
    try:
        return from_iso(text)
    except ValueError:
        for span in find_time_spans(text, now):
            if span.words.strip().casefold() == text.casefold() and span.start > _EARLIEST:
                return span.start
        raise ValueError(f"{text!r} is not {TIME_FORMS}") from None
