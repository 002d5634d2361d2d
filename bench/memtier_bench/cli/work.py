"""`memtier bench work`: what the next task of a project needs, and what would mislead it."""

from __future__ import annotations

from typing import Any

import click

from memtier_bench.cli.options import OUTPUTS, WORK_SET, run_bench
from memtier_plugin.cli.scope import ExampleCommand
from memtier_plugin.cli.views import parse_names


@click.command(cls=ExampleCommand)
@WORK_SET
@click.option(
    "--arms",
    callback=parse_names,
    metavar="NAME,NAME,...",
    help="Only these besides MemTier as it is, such as no-floor,bm25 [all].",
)
@click.option(
    "--failures",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Show MemTier's first N failures; none of `held` [0].",
)
@click.option("--seed", type=int, default=42, metavar="N", help="Of the resampled projects [42].")
@OUTPUTS
def work(**options: Any) -> None:
    """Measure whether a block has what the next task needs, and nothing that misleads."""
    from memtier_bench.work.run import run_work

    run_bench(run_work, **options)
