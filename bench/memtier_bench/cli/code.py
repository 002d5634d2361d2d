"""`memtier bench code`: the marks of lines that name code."""

from __future__ import annotations

from typing import Any

import click

from memtier_bench.cli.options import EXISTING_FILE, OUTPUTS, count_option, run_bench
from memtier_plugin.cli.scope import ExampleCommand


@click.command(cls=ExampleCommand)
@click.option(
    "--lines", type=EXISTING_FILE, metavar="FILE.yaml", help="Lines of your own [those that ship]."
)
@count_option("--repositories", 3, "Build N repositories")
@click.option("--seed", type=int, default=1, metavar="N", help="Of the repositories [1].")
@OUTPUTS
def code(**options: Any) -> None:
    """Measure the marks of lines that name files, symbols, branches or commands that are gone."""
    from memtier_bench.code_marks import run_code

    run_bench(run_code, **options)
