"""Calendar periods: the week, month, year or season of a day, and days some units away.  Pure."""

from __future__ import annotations

from calendar import monthrange
from datetime import date, timedelta

Period = tuple[date, date]  # the first and the last day


def period_of(unit: str, day: date) -> Period:
    """Return the day, week, month or year that contains a day."""
    if unit == "week":
        monday = day - timedelta(days=day.weekday())
        return monday, monday + timedelta(days=6)
    if unit == "month":
        return day.replace(day=1), day.replace(day=monthrange(day.year, day.month)[1])
    if unit == "year":
        return date(day.year, 1, 1), date(day.year, 12, 31)
    return day, day


def shift_day(day: date, unit: str, count: int) -> date:
    """Return the day ``count`` units away; of a month or a year away, the first of that month.

    Raises:
        OverflowError, ValueError: the calendar has no such day.
    """
    if unit in ("day", "week"):
        return day + timedelta(days=count * (7 if unit == "week" else 1))
    months = day.year * 12 + day.month - 1 + count * (12 if unit == "year" else 1)
    return date(months // 12, months % 12 + 1, 1)


def season_of(number: int, day: date, step: int) -> Period:
    """Return the spring (0) to winter (3) that has begun (step 0), is over (-1) or is next (1).

    The seasons are those of the northern half of the earth, in whole months.
    """
    month = 3 + 3 * number
    year = day.year + 1
    while True:
        try:
            first = date(year, month, 1)
            last = shift_day(first, "month", 3) - timedelta(days=1)
        except ValueError:  # uttered in the year 1 or 9999
            return day, day
        if (first <= day if step == 0 else last < day) and step <= 0:
            return first, last
        if step > 0 and date(year - 1, month, 1) <= day:
            return first, last
        year -= 1
