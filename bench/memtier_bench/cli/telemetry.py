"""`memtier bench telemetry`: measure what telemetry costs a recall."""

from __future__ import annotations

from typing import Any

import click

from memtier_bench.cli.options import OUTPUTS, count_option, run_bench
from memtier_plugin.cli.scope import ExampleCommand


@click.command(cls=ExampleCommand)
@count_option("--entries", 1000, "How many entries are searched")
@count_option("--recalls", 600, "How many recalls are made in each mode")
@OUTPUTS
def telemetry(**options: Any) -> None:
    """Measure what telemetry costs a recall: off, on, and with a collector that is down."""
    from memtier_bench.telemetry import run_telemetry

    run_bench(run_telemetry, **options)
