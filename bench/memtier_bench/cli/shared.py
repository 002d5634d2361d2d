"""`memtier bench shared`: measure a project that many machines share."""

from __future__ import annotations

from typing import Any, Final

import click

from memtier_bench.cli.options import OUTPUTS, count_option, run_bench
from memtier_plugin.cli.scope import ExampleCommand
from memtier_plugin.cli.views import parse_sizes

_PARTS: Final = ("machines", "appends", "lag", "catch-up")


@click.command(cls=ExampleCommand)
@click.option(
    "--url",
    required=True,
    metavar="URL",
    help="A PostgreSQL, as a user that may create databases and roles, or a NATS server, as one "
    "that may do all; what it makes there it removes.",
)
@count_option("--machines", 4, "How many machines write at once")
@count_option("--runs", 2000, "How many runs end on each")
@count_option("--recalls", 1000, "How many recalls one of them makes")
@count_option("--lines", 4000, "How many lines are appended in all, for each row")
@click.option(
    "--writers",
    callback=parse_sizes,
    default="1,4,16",
    metavar="N,N,...",
    help="How many append at once [1,4,16].",
)
@click.option(
    "--batches",
    callback=parse_sizes,
    default="2,100",
    metavar="N,N,...",
    help="How many lines they append at a time [2,100].",
)
@click.option(
    "--catch-up",
    callback=parse_sizes,
    default="20000",
    metavar="N,N,...",
    help="How many entries a new machine fetches and indexes [20000].",
)
@click.option(
    "--only",
    type=click.Choice(_PARTS),
    multiple=True,
    help="Only this part; can be given again [all].",
)
@OUTPUTS
def shared(url: str, **options: Any) -> None:
    """Measure many machines on one server: equality, appends, lag, cost, catching up."""
    from memtier_bench.shared import run_shared

    run_bench(run_shared, url, **options)
