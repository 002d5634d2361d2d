"""`memtier learn policy`: train what plans the searches of `ask.mode: tools`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memtier_plugin.cli.bench_options import (
    count_option,
    data_option,
    dataset_option,
    limit_option,
    sample_option,
)
from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar


@click.command(cls=CliCommand)
@dataset_option()
@data_option()
@count_option("--updates", 60, "Train by N batches of 32 questions")
@limit_option()
@sample_option("all")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the policy there [planner.json in the project's folder].",
)
@click.pass_obj
def policy(scope: Scope, /, output: Path | None, **options: Any) -> None:
    """Train a planner of the searches of `memtier ask` on a data set."""
    from memtier_plugin.bench.planner_training import train_planner

    with scope.open() as memory, memory.learned.exclusive(), progress_bar() as tell:
        path = (output or memory.learned.path.with_name("planner.json")).expanduser().resolve()
        document = train_planner(path, progress=tell, **options)
    if document["file"]:
        document["next"] = f"set ask.mode to tools and ask.planner to {path}"
    scope.show(document)
