"""Times as a person types them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.times import from_iso

_RELATIVE_TIME: Final = re.compile(r"(\d+)\s*(m|min|h|d|w)", re.IGNORECASE)
_UNITS: Final = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}

written_option: Final = click.option(
    "--written", is_flag=True, help="Go by the time of writing, not by the time said."
)


def parse_optional_time(text: str | None) -> datetime | None:
    """Parse an ISO time; None stays None.

    Raises:
        click.BadParameter: the text is no such time.
    """
    if text is None:
        return None
    try:
        return from_iso(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time like 2026-03-14 or 2026-03-14T09:00"
        ) from None


def parse_time(text: str, now: datetime) -> datetime:
    """Parse an ISO time, or one relative to ``now`` such as "2d" (two days ago).

    Raises:
        click.BadParameter: the text is neither, or longer ago than there are years.
    """
    if ago := _RELATIVE_TIME.fullmatch(text.strip()):
        try:
            return now - timedelta(**{_UNITS[ago[2].lower()]: int(ago[1])})
        except OverflowError:
            raise click.BadParameter(f"{text!r} is longer ago than there are years") from None
    try:
        return from_iso(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither a time like 2026-03-14 or 2026-03-14T09:00, nor as long ago "
            "as 30m, 3h, 2d or 1w"
        ) from None


def parse_span(since: str, until: str | None) -> tuple[datetime, datetime]:
    """Parse the two moments of a comparison; the later one is now where it is left out.

    Raises:
        click.BadParameter: one is no time.
        MessageError: the first is the later one.
    """
    now = datetime.now(UTC)
    start, end = parse_time(since, now), parse_time(until, now) if until else now
    if start > end:
        raise MessageError(f"{since} is later than {until or 'now'}: name the earlier one first")
    return start, end
