"""The elements of a rendered report: paragraphs, and tables of named columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Report = Mapping[str, Any]  # a JSON report of `memtier bench`, or a part of one


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table whose first column holds names; an empty row is a rule."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    title: str = ""

    def add_row(self, *cells: str) -> None:
        """Add a row, or a rule if there are no cells."""
        self.rows.append(cells)


Section = str | ReportTable


def format_share(value: float | None) -> str:
    """Return a share or mean to three places, and a dash for none."""
    return "-" if value is None else f"{value:.3f}"


def format_signed(change: float) -> str:
    """Return a difference to three places with its sign."""
    return f"{round(change, 3) + 0.0:+.3f}"  # adding 0 makes a negative zero positive
