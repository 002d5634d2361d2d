"""Helpers of the views: a view renders the JSON document that `--json` prints.

Remembered text is untrusted, so it must not control the terminal: `escape_controls` makes control
characters visible, and no text is ever parsed as rich markup.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final, TextIO, cast

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.trust.escaping import escape_controls as escape_controls

Document = Mapping[str, Any]

_UNBOUNDED: Final = 100_000  # columns: what is no terminal has no width at which to wrap
LEVEL_MARKS: Final = {"ok": "✓", "warn": "!", "error": "✗"}
LEVEL_COLOURS: Final = {"ok": "green", "warn": "yellow", "error": "red"}

_INDENT: Final = 13  # columns before the text below a ranked line
_PADDING: Final = re.compile(r"(?<! ) ++(?=\n)")


def make_console(*, stderr: bool = False) -> Console:
    """Return a console on the current stdout or stderr, without markup and highlighting."""
    out = sys.stderr if stderr else sys.stdout
    plain: dict[str, Any] = {"markup": False, "highlight": False, "emoji": False}
    if out.isatty():
        return Console(file=out, **plain)
    return Console(file=cast(IO[str], _Unpadded(out)), width=_UNBOUNDED, **plain)


@dataclass(frozen=True, slots=True)
class _Unpadded:
    """A stream that drops the spaces that pad lines to the width of the console."""

    out: TextIO

    def write(self, text: str) -> int:
        """Write a text that ends where a line does."""
        return self.out.write(_PADDING.sub("", text))

    def __getattr__(self, name: str) -> Any:
        """Return what else the stream can do."""
        return getattr(self.out, name)


def safe_text(value: object, style: str = "") -> Text:
    """Return text that is safe to print."""
    return Text(escape_controls(value), style=style)


def indented(text: str, style: str = "") -> RenderableType:
    """Render a text below that of its ranked line."""
    return Padding(safe_text(text, style), (0, 0, 0, _INDENT), expand=False)


def draws() -> bool:
    """Tell whether drawings are shown: they are for eyes, so only on a terminal."""
    return sys.stdout.isatty()


def one_line(value: object, limit: int = 200) -> str:
    """Return the value on one line, truncated to a limit."""
    line = " ".join(str(value).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def name_value_table(rows: Iterable[tuple[str, object]]) -> Table:
    """Return a table of aligned names and values."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, value if isinstance(value, Text) else safe_text(value))
    return grid


def column_table(*names: str, right: Iterable[str] = (), wide: Iterable[str] = ()) -> Table:
    """Return an empty table with a ruled head; only the columns in ``wide`` wrap."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in names:
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=name not in wide,
            overflow="fold",
            ratio=1 if name in wide and sys.stdout.isatty() else None,
        )
    return table


def table_view(
    names: Sequence[str],
    rows: Iterable[Iterable[object]],
    *,
    right: Iterable[str] = (),
    wide: Iterable[str] = (),
    nothing: str = "",
) -> Table | Text:
    """Render rows below the names of their columns; ``nothing`` where there are none.

    A cell is a text that is rendered already, or a value that is made safe to print.
    """
    table = column_table(*names, right=right, wide=wide)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else safe_text(cell) for cell in row))
    return table if table.row_count else safe_text(nothing, "dim")


def format_time(iso: object) -> str:
    """Format an ISO time as date and minute, or a dash for none."""
    return escape_controls(str(iso)[:16].replace("T", " ")) if iso else "-"


def short_id(item_id: object) -> str:
    """Return the last characters of an id, as shown in an injected block."""
    return escape_controls(item_id)[-SHORT_ID_CHARS:]


def format_value(value: object) -> str:
    """Format a value for reading: yes or no, lists with commas, a dash for none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        parts = ((k, format_value(v), isinstance(v, Mapping)) for k, v in value.items())
        return ", ".join(f"{k} ({v})" if nested else f"{k} {v}" for k, v, nested in parts) or "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(format_value(part) for part in value) or "-"
    return "-" if value is None or value == "" else str(value)


def done_view(document: Document) -> RenderableType:
    """Render a document as names and values."""
    return name_value_table(
        (name.replace("_", " "), format_value(value)) for name, value in document.items()
    )
