"""`memtier metrics`: the project's metrics in Prometheus' text format."""

from __future__ import annotations

import click

from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.telemetry.journal_metrics import JournalMetrics


@click.command(cls=CliCommand)
@click.pass_obj
def metrics(scope: Scope) -> None:
    """Print the project's metrics for Prometheus: recalls, tokens, silence, credits, costs."""
    with scope.open() as memory:
        text = JournalMetrics(memory.store).render()
    if scope.as_json:
        scope.show({"metrics": text.splitlines()})
    else:
        click.echo(text, nl=False)
