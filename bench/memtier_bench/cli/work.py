"""`memtier bench work`: what the next task of a project needs, and what would mislead it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memtier_bench.cli.answers import LOCAL, open_reader
from memtier_bench.cli.options import FILE, OUTPUTS, WORK_SET, count_option, run_bench
from memtier_plugin.cli.scope import ExampleCommand, Scope
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
@click.option(
    "--reader",
    metavar="local|endpoint:NAME/MODEL",
    help="Also have a model do what probes of corrections ask: the one that `memtier bench model` "
    f"brings ({LOCAL}), or one of your config.yaml. Does it keep the rules?",
)
@click.option("--replies", type=FILE, metavar="FILE.jsonl", help="Keep each of its replies there.")
@count_option("--threads", 1, "On how many idle cores the local model runs")
@OUTPUTS
@click.pass_obj
def work(
    scope: Scope, /, reader: str | None, replies: Path | None, threads: int, **options: Any
) -> None:
    """Measure whether a block has what the next task needs, and nothing that misleads."""
    from memtier_bench.work.obedience import ANSWER_TOKENS, INSTRUCTION
    from memtier_bench.work.run import run_work

    with open_reader(scope, reader, threads, INSTRUCTION, replies, ANSWER_TOKENS) as model:
        run_bench(run_work, reader=model, **options)
