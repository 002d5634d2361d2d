"""`memtier bench serve`: measure a server of memories, `memtier serve --tcp`."""

from __future__ import annotations

from typing import Any

import click

from memtier_bench.cli.options import OUTPUTS, count_option, run_bench
from memtier_plugin.cli.scope import ExampleCommand
from memtier_plugin.cli.views import LengthOfTime


@click.command(cls=ExampleCommand)
@count_option("--tenants", 2000, "How many projects are asked")
@count_option("--clients", 8, "How many clients ask at once")
@count_option("--turns", 4000, "How many turns they make in each phase, a recall and a run each")
@count_option("--residents", 3, "How many residents share projects, of which one is killed")
@click.option(
    "--seconds",
    type=LengthOfTime(min=1),
    default=40.0,
    metavar="N",
    help="For the part with the kill [40].",
)
@click.option(
    "--url",
    metavar="URL",
    help="A PostgreSQL for that part, as a user that may create databases and roles [left out].",
)
@OUTPUTS
def serve(**options: Any) -> None:
    """Measure many tenants on one resident, and a resident killed among several."""
    from memtier_bench.serve import run_serve

    run_bench(run_serve, **options)
