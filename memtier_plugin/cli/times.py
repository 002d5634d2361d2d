"""Times as a person types them."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

import click

from memtier_plugin.core.errors import MessageError
from memtier_plugin.text.dates.typed import read_typed_time

written_option: Final = click.option(
    "--written", is_flag=True, help="Go by the time of writing, not by the time said."
)


class LengthOfTime(click.FloatRange):
    """A number of seconds, minutes or days; NaN and infinity, which floats may be, are refused."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return a finite number in the range."""
        number = float(super().convert(value, param, ctx))
        return number if isfinite(number) else self.fail(f"{value} is no number", param, ctx)


def parse_optional_time(text: str | None) -> datetime | None:
    """Parse a time as it is typed; None stays None.

    Raises:
        click.BadParameter: the text is no such time.
    """
    return None if text is None else parse_time(text, datetime.now(UTC))


def parse_time(text: str, now: datetime) -> datetime:
    """Parse a time as it is typed: 2026-03-14T09:00, 2d, yesterday.

    Raises:
        click.BadParameter: the text is no such time, or longer ago than there are years.
    """
    try:
        return read_typed_time(text, now)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


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
