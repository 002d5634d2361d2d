"""`memtier bench facts`: the facts that a consolidation makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memtier_bench.cli.answers import open_reader
from memtier_bench.cli.options import (
    DATASETS,
    EXISTING,
    EXISTING_FILE,
    FILE,
    OUTPUTS,
    count_option,
    limit_option,
    run_bench,
)
from memtier_plugin.cli.scope import ExampleCommand, Scope


@click.command(cls=ExampleCommand)
@click.option(
    "--dataset",
    type=click.Choice([*DATASETS, "sets"]),
    default="locomo",
    help="What the file or folder is [locomo].",
)
@click.option(
    "--data",
    type=EXISTING,
    metavar="PATH",
    help="The data set as its authors publish it [none: score judgements of a sample file].",
)
@count_option("--sample", 100, "Draw N facts to be judged")
@click.option("--seed", type=int, default=42, metavar="N", help="Of the sample [42].")
@click.option(
    "--sample-file",
    type=FILE,
    metavar="FILE.jsonl",
    help="Write them there, to be judged by the rubric.",
)
@click.option(
    "--judgements",
    type=EXISTING_FILE,
    multiple=True,
    metavar="FILE.jsonl",
    help="Count these judgements of the sample; of a second judge, too, if given again.",
)
@limit_option()
@click.option(
    "--model",
    metavar="endpoint:NAME/MODEL",
    help="A model of an endpoint in your config.yaml extracts them, or 'local': the one that "
    "`memtier bench model` brings [none: the rules].",
)
@count_option("--threads", 1, "On how many idle cores the local model runs")
@OUTPUTS
@click.pass_obj
def facts(
    scope: Scope, /, data: Path | None, model: str | None, threads: int, **options: Any
) -> None:
    """Measure what a consolidation makes: facts, their truth, recall."""
    from memtier_bench.facts import run_facts, run_judged

    if data is not None:
        with open_reader(scope, model, threads) as reader:
            run_bench(run_facts, data=data, model=reader, **options)
    elif options["sample_file"] and options["judgements"]:
        for name in ("dataset", "sample", "seed", "limit"):
            del options[name]
        run_bench(run_judged, **options)
    else:
        raise click.UsageError("--data is missing, or --sample-file with --judgements of it")
