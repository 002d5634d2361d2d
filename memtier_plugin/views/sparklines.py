"""Draw numbers as characters: a sparkline of a series, a bar of a share, a span of time.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_LEVELS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
MOST_COLUMNS: Final = 24  # of a sparkline beside a text


def sparkline(
    values: Sequence[float],
    low: float | None = None,
    high: float | None = None,
    columns: int = MOST_COLUMNS,
) -> str:
    """Return one block character for each value, the newest ``columns`` of them.

    Args:
        low: the value at the bottom, the least of the series when None; ``high`` likewise.
    """
    shown = values[-columns:]
    if not shown:
        return ""
    bottom = min(shown) if low is None else low
    top = max(shown) if high is None else high
    if top <= bottom:  # a series that never moves stands at the bottom
        return _LEVELS[0] * len(shown)
    steps = len(_LEVELS) - 1
    shares = ((value - bottom) / (top - bottom) for value in shown)
    return "".join(_LEVELS[round(max(0.0, min(1.0, share)) * steps)] for share in shares)


def signed_sparkline(values: Sequence[float], columns: int = MOST_COLUMNS) -> str:
    """Return the sparkline of a series around 0, which stands at half the height."""
    most = max(map(abs, values), default=0.0)
    return sparkline(values, -most, most, columns) if most else _LEVELS[4] * len(values[-columns:])


def bar(share: float, columns: int) -> str:
    """Return a horizontal bar: a share of so many columns, to an eighth of one."""
    eighths = round(max(0.0, min(1.0, share)) * columns * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def span(start: float, end: float, columns: int) -> str:
    """Return the part of a line of time that something holds, from 0 to 1; one column at least."""
    first = min(columns - 1, max(0, int(start * columns)))
    last = max(first + 1, min(columns, round(end * columns)))
    return "·" * first + "━" * (last - first) + "·" * (columns - last)
