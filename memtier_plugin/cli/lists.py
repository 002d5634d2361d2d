"""Read options that hold several values with commas between them."""

from __future__ import annotations

from itertools import pairwise

import click


def parse_names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Read names with commas between them."""
    return tuple(part.strip() for part in value.split(",")) if value else ()


def parse_sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Read ascending whole numbers with commas between them; none for no value."""
    if value is None:
        return ()
    try:
        sizes = tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{value!r}: expected whole numbers such as 1000,10000", ctx, param
        ) from None
    if sizes[0] < 1 or any(large <= small for small, large in pairwise(sizes)):
        raise click.BadParameter(f"{value!r}: expected ascending sizes above 0", ctx, param)
    return sizes
