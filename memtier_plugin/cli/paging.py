"""Page output that is longer than the terminal: by $PAGER, or `less`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import click
from rich.console import Console, RenderableType

from memtier_plugin.cli.views import make_console


def print_paged(parts: Iterable[RenderableType], *, paged: bool = True) -> None:
    """Print these parts, through a pager where they do not fit on the terminal.

    Nothing is paged where stdout is no terminal. Parts are rendered as the pager asks for them.
    """
    console = make_console()
    if not (paged and console.is_terminal):
        for part in parts:
            console.print(part)
        return
    rendered = _render(console, parts)
    first: list[str] = []
    lines = 0
    for text in rendered:
        first.append(text)
        lines += text.count("\n")
        if lines >= console.height:  # the prompt needs a line, too
            click.echo_via_pager(chain(first, rendered))
            return
    click.echo("".join(first), nl=False)


def _render(console: Console, parts: Iterable[RenderableType]) -> Iterator[str]:
    for part in parts:
        with console.capture() as capture:
            console.print(part)
        yield capture.get()
