"""The elements of a rendered report: paragraphs, and tables of named columns."""

from __future__ import annotations

from dataclasses import dataclass, field


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
