"""`memtier learn log` and `learn revert`: what was learned, and how it is undone."""

from __future__ import annotations

import click
from rich.console import RenderableType

from memtier_papers.learn_log import LearnLog
from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.cli.views import (
    Document,
    column_table,
    format_time,
    format_value,
    safe_text,
    short_id,
)


@click.command(cls=CliCommand)
@click.pass_obj
def log(scope: Scope) -> None:
    """Show what was learned and applied, newest first."""
    with scope.open() as memory:
        document = {"learned": [entry.to_json() for entry in LearnLog(memory.actor).entries()]}
    scope.show(document, _log_view)


@click.command(cls=CliCommand)
@click.argument("entry", metavar="[ID]", required=False)
@click.pass_obj
def revert(scope: Scope, entry: str | None) -> None:
    """Undo what was learned last, or the line with this ID of the log."""
    with scope.open() as memory, LearnLog(memory.actor).exclusive():
        undone = LearnLog(memory.actor).revert(entry)
        document = {"reverted": undone.event.id, "what": undone.payload.what}
    scope.show(document)


def _log_view(document: Document) -> RenderableType:
    table = column_table("when", "what", "id", "in effect", "why", wide=["why"])
    for line in document["learned"]:
        description = f"undone {short_id(line['reverts'])}" if line["reverts"] else line["what"]
        table.add_row(
            format_time(line["timestamp"]),
            safe_text(description),
            short_id(line["id"]),
            format_value(line["applied"]),
            safe_text(format_value(line["figures"])),
        )
    return table
