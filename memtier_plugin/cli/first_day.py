"""What `memtier init` offers to import: it shows what there is, and asks once before it reads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import Scope
from memtier_plugin.cli.transfer import ImportJob, as_agent_of
from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.transfer.importers.discovery import ImportSource, find_sources, is_of_folder
from memtier_plugin.transfer.importers.reading import DEFAULT_MINUTES, TimeLimit


def offer_import(scope: Scope, folder: Path, agreed: bool | None) -> dict[str, Any]:
    """Import what there is for a folder if the user agrees; return what was found, and done.

    Args:
        agreed: None asks at a terminal, and elsewhere reads nothing.
    """
    if agreed is False:
        return {}
    sources = find_sources(folder)
    if not sources:
        return {}
    offered = [source.to_json() for source in sources]
    asks = agreed is None and not scope.as_json and sys.stdin.isatty()
    if asks:
        rows = [[views.format_value(value) for value in row.values()] for row in offered]
        columns = ("format", "items", "bytes", "first", "last")
        views.print_paged([views.table_view(columns, rows)], paged=False)
        click.echo("For `codex` only the sessions in this folder are kept; all are looked at.")
        agreed = click.confirm("Import these into the project's memory?", default=False)
    if not agreed:
        return {"to import": offered, "import with": "memtier init --import"}
    return {"imported": [_import_source(scope, folder.resolve(), source) for source in sources]}


def _import_source(scope: Scope, folder: Path, source: ImportSource) -> dict[str, Any]:
    """Import one source; what a file has of no use is counted, with the first reason."""
    left_out: list[str] = []
    recorded = proposed = 0
    scope = as_agent_of(scope, source.form)
    limit = TimeLimit(DEFAULT_MINUTES)

    def skip(location: str, why: str) -> None:
        left_out.append(f"{location}: {why}")

    with scope.open(create=True) as memory:
        for file in source.kept:
            if not is_of_folder(source, file, folder):
                continue
            job = ImportJob(scope, memory, file, source.form, False, skip, limit)
            try:
                done = job.transcript()
            except ImportFileError as error:
                left_out.append(str(error))
                continue
            recorded += done["recorded"]
            proposed += done.get("proposed", 0)
    counts = {"format": source.form, "recorded": recorded, "proposed": proposed}
    return {**counts, "left_out": len(left_out), "why": left_out[:1]}
