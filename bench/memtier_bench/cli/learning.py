"""`memtier bench gate-check` and `bench learners`: measure what guards and what learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memtier_bench.cli.options import (
    EXISTING,
    OUTPUTS,
    count_option,
    data_option,
    run_bench,
    sample_option,
)
from memtier_plugin.cli.scope import ExampleCommand


@click.command("gate-check", cls=ExampleCommand)
@data_option()
@count_option("--draws", 20, "How many bad and how many harmless weights are drawn")
@click.option(
    "--entries", type=click.IntRange(0), default=0, metavar="N", help="Made-up entries beside it."
)
@OUTPUTS
def gate_check(**options: Any) -> None:
    """Measure whether `memtier gate` refuses weights that do harm, and only those."""
    from memtier_bench.gate_check import run_gate_check

    run_bench(run_gate_check, **options)


@click.command(cls=ExampleCommand)
@click.argument("data", type=EXISTING, nargs=-1, required=True)
@click.option(
    "--scale",
    "scales",
    type=click.Choice(["raw", "minmax", "recall_first"]),
    multiple=True,
    help="Only these signals; can be given again [all].",
)
@sample_option("all")
@OUTPUTS
def learners(data: tuple[Path, ...], **options: Any) -> None:
    """Measure what learned weights gain on conversations or sets left out."""
    from memtier_bench.learners import run_learners

    run_bench(run_learners, data, **options)
