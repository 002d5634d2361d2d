"""Render documents on the terminal: tables, pages, times and lists."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, pairwise
from math import isfinite
from typing import IO, Any, Final, TextIO, cast

import click
from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.formats import describe_age, to_iso
from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.text.dates.spans import read_typed_time
from memtier_plugin.trust.escaping import escape_controls as escape_controls

# -- Helpers of the views: a view renders the JSON document that `--json` prints
#
# Remembered text is untrusted, so it must not control the terminal: `escape_controls` makes control
# characters visible, and no text is ever parsed as rich markup.

Document = Mapping[str, Any]

_UNBOUNDED: Final = 100_000  # columns, where output is not a terminal and must not wrap
LEVEL_MARKS: Final = {"ok": "✓", "warn": "!", "error": "✗"}
LEVEL_COLOURS: Final = {"ok": "green", "warn": "yellow", "error": "red"}

_INDENT: Final = 13  # indentation below a ranked line
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
    """A stream that strips the console's trailing spaces."""

    out: TextIO

    def write(self, text: str) -> int:
        """Write text that ends at the end of a line."""
        return self.out.write(_PADDING.sub("", text))

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the stream."""
        return getattr(self.out, name)


def safe_text(value: object, style: str = "") -> Text:
    """Return text that is safe to print."""
    return Text(escape_controls(value), style=style)


def indented(text: str, style: str = "") -> RenderableType:
    """Render a text below that of its ranked line."""
    return Padding(safe_text(text, style), (0, 0, 0, _INDENT), expand=False)


def draws() -> bool:
    """Return whether to draw charts, only on a terminal."""
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
    """Render rows under column names, or ``nothing`` if there are none.

    A cell is a renderable, or a value that is made safe to print.
    """
    table = column_table(*names, right=right, wide=wide)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else safe_text(cell) for cell in row))
    return table if table.row_count else safe_text(nothing, "dim")


def format_time(iso: object) -> str:
    """Format an ISO time as date and minute, or a dash for none."""
    return escape_controls(str(iso)[:16].replace("T", " ")) if iso else "-"


def format_age(iso: object, now: datetime) -> str:
    """Format the time since an ISO time: "12 minutes ago"; "never" for none."""
    return describe_age(str(iso), to_iso(now)) if iso else "never"


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
        return ", ".join(format_value(inner) for inner in value) or "-"
    return "-" if value is None or value == "" else str(value)


def sentence_view(text: str) -> Callable[[Document], RenderableType]:
    """Return a view that says what was done in a sentence."""
    return lambda _: safe_text(text)


_SINGULAR: Final = {"entries": "entry", "summaries": "summary"}


def count_words(counts: Mapping[str, int], *, empty: bool = False) -> str:
    """Describe counts: "1 fact, 2 conflicts".

    Args:
        empty: name the first two counts even if they are 0.
    """
    return ", ".join(
        f"{number:,} {_SINGULAR.get(kind, kind.removesuffix('s')) if number == 1 else kind}"
        for position, (kind, number) in enumerate(counts.items())
        if number or (empty and position < 2)
    )


def describe_report(report: Mapping[str, Any]) -> str:
    """Describe what a consolidation did: "4 entries read, 2 facts, 1 superseded"."""
    names = ("proposed", "superseded", "updated")
    done = [f"{report[name]} {name}" for name in names if report.get(name)]
    facts = count_words({"facts": report["facts"]}) or "no new fact"
    read = count_words({"entries": report["read"]}, empty=True)
    problem = f"; it ended early: {report['problem']}" if report.get("problem") else ""
    return f"{', '.join([f'{read} read', facts, *done])}{problem}"


def done_view(document: Document) -> RenderableType:
    """Render a document as names and values."""
    return name_value_table(
        (name.replace("_", " "), format_value(value)) for name, value in document.items()
    )


# -- Page output that is longer than the terminal: by $PAGER, or `less`


def print_paged(renderables: Iterable[RenderableType], *, paged: bool = True) -> None:
    """Print these parts, through a pager if they do not fit on the terminal.

    Nothing is paged unless stdout is a terminal. Parts are rendered as the pager requests them.
    """
    console = make_console()
    if not (paged and console.is_terminal):
        for renderable in renderables:
            console.print(renderable)
        return
    rendered = _render(console, renderables)
    first: list[str] = []
    lines = 0
    for text in rendered:
        first.append(text)
        lines += text.count("\n")
        if lines >= console.height:  # the shell prompt needs a line too
            click.echo_via_pager(chain(first, rendered))
            return
    click.echo("".join(first), nl=False)


def _render(console: Console, renderables: Iterable[RenderableType]) -> Iterator[str]:
    for renderable in renderables:
        with console.capture() as capture:
            console.print(renderable)
        yield capture.get()


# -- Times as people type them

written_option: Final = click.option(
    "--written", is_flag=True, help="Go by the time of writing, not by the time said."
)


class LengthOfTime(click.FloatRange):
    """A number of seconds, minutes or days; rejects NaN and infinity, which floats may be."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return a finite number in the range."""
        number = float(super().convert(value, param, ctx))
        return number if isfinite(number) else self.fail(f"{value} is not a number", param, ctx)


def parse_optional_time(text: str | None) -> datetime | None:
    """Parse a typed time; None stays None.

    Raises:
        click.BadParameter: the text is not a time.
    """
    return None if text is None else parse_time(text, datetime.now(UTC))


def parse_time(text: str, now: datetime) -> datetime:
    """Parse a typed time: 2026-03-14T09:00, 2d, yesterday.

    Raises:
        click.BadParameter: the text is not a time, or is before the year 1.
    """
    try:
        return read_typed_time(text, now)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def parse_span(since: str, until: str | None) -> tuple[datetime, datetime]:
    """Parse the two times of a comparison; the later one defaults to now.

    Raises:
        click.BadParameter: one of them is not a time.
        MessageError: the first is the later one.
    """
    now = datetime.now(UTC)
    start, end = parse_time(since, now), parse_time(until, now) if until else now
    if start > end:
        raise MessageError(f"{since} is later than {until or 'now'}: name the earlier one first")
    return start, end


# -- Options with several values, separated by commas


def parse_names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Parse names separated by commas."""
    return tuple(name.strip() for name in value.split(",")) if value else ()


def parse_sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Parse ascending whole numbers separated by commas; none for no value."""
    if value is None:
        return ()
    try:
        sizes = tuple(int(size) for size in value.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{value!r}: expected whole numbers such as 1000,10000", ctx, param
        ) from None
    if sizes[0] < 1 or any(large <= small for small, large in pairwise(sizes)):
        raise click.BadParameter(f"{value!r}: expected ascending sizes above 0", ctx, param)
    return sizes
