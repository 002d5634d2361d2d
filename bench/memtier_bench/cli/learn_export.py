"""`memtier learn export`: rows for trainers of real models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memtier_bench.cli.options import (
    data_option,
    dataset_option,
    facts_option,
    limit_option,
    sample_option,
)
from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar


@click.command(cls=CliCommand)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@dataset_option()
@data_option()
@facts_option("dataset")
@limit_option()
@sample_option("all")
@click.pass_obj
def export(scope: Scope, /, folder: Path, **options: Any) -> None:
    """Write training data for other trainers, from a data set."""
    from memtier_bench.training_export import export_training_rows

    with progress_bar() as tell:
        rows = export_training_rows(folder.expanduser().resolve(), progress=tell, **options)
    scope.show({"folder": str(folder), "rows": rows})
