"""`memtier bench peers`: other memories on the same data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memtier_bench.cli.options import (
    FOLDER,
    OUTPUTS,
    WORK_SET,
    count_option,
    data_option,
    run_bench,
)
from memtier_plugin.cli.scope import ExampleCommand
from memtier_plugin.cli.views import parse_names


@click.command(cls=ExampleCommand)
@data_option()
@click.option(
    "--only",
    callback=parse_names,
    metavar="NAME,NAME,...",
    help="Only these besides MemTier, such as bm25,mem0 [all].",
)
@WORK_SET
@click.option(
    "--judgement", type=FOLDER, metavar="FOLDER", help="Its identity.yaml is asked too [none]."
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default="~/.cache/memtier-peers",
    metavar="FOLDER",
    help="Where the peers are installed, and stay [~/.cache/memtier-peers].",
)
@count_option("--conversations", 2, "Store the first N of LoCoMo")
@count_option("--sample", 150, "Ask N of their questions, of each category its share")
@OUTPUTS
def peers(**options: Any) -> None:
    """Install other memories, and measure them on the same turns and prompts."""
    from memtier_bench.peers.run import run_peers

    run_bench(run_peers, keeps=True, **options)
