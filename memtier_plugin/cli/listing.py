"""`memtier projects`, `sessions` and `agents`: list what there is, and when it last spoke."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memtier_plugin.cli.scope import CliCommand, Scope, limit_option
from memtier_plugin.cli.views import Document, format_time, table_view
from memtier_plugin.core.paths import list_projects
from memtier_plugin.core.times import to_iso
from memtier_plugin.storage.index.item_reader import SessionSpan
from memtier_plugin.storage.project_folder import ProjectFolder


@click.command(cls=CliCommand)
@click.pass_obj
def projects(scope: Scope) -> None:
    """List the projects of the home, and which one is this folder's."""
    current = scope.project_name
    rows = [
        _describe_project(ProjectFolder.of(scope.path, name), name, current)
        for name in list_projects(scope.path)
    ]
    scope.show({"projects": rows}, projects_view)


def _describe_project(folder: ProjectFolder, name: str, current: str) -> dict[str, Any]:
    """Return what the files of a project tell; no index is opened for it."""
    files = [path for path in folder.path.glob("*/**/*.jsonl") if path.name[0] != "."]
    sizes = [path.stat() for path in files]
    written = max((size.st_mtime for size in sizes), default=None)
    return {
        "project": name,
        "current": name == current,
        "agents": len({path.parent for path in files if path.parts[-3] == "episodic"}),
        "bytes": sum(size.st_size for size in sizes),
        "written": to_iso(datetime.fromtimestamp(written, UTC)) if written else None,
        "folder": str(folder.path),
    }


@click.command(cls=CliCommand)
@limit_option(20, "How many.")
@click.pass_obj
def sessions(scope: Scope, limit: int) -> None:
    """List the sessions of the project, the last that spoke first."""
    spans = _read_spans(scope)
    rows = [
        {**span._asdict(), "first": to_iso(span.first), "last": to_iso(span.last)}
        for span in spans[:limit]
    ]
    scope.show({"sessions": rows, "in_all": len(spans)}, sessions_view)


@click.command(cls=CliCommand)
@click.pass_obj
def agents(scope: Scope) -> None:
    """List the agents of the project, the last that spoke first."""
    spans = _read_spans(scope)
    names = dict.fromkeys(span.agent for span in spans)
    rows = [_describe_agent(name, [span for span in spans if span.agent == name]) for name in names]
    scope.show({"agents": rows}, agents_view)


def _describe_agent(name: str, spans: list[SessionSpan]) -> dict[str, Any]:
    return {
        "agent": name,
        "sessions": len(spans),
        "entries": sum(span.entries for span in spans),
        "first": to_iso(min(span.first for span in spans)),
        "last": to_iso(max(span.last for span in spans)),
    }


def _read_spans(scope: Scope) -> list[SessionSpan]:
    with scope.open() as memory:
        memory.store.catch_up_all()
        with memory.store.session() as reader:
            return reader.session_spans(scope.agent)


# -- views -----------------------------------------------------------------------------------


def projects_view(document: Document) -> RenderableType:
    """Render the projects of a home."""
    rows = (
        (
            "▸" if row["current"] else "",
            row["project"],
            row["agents"],
            f"{row['bytes'] / 1000:,.0f}",
            format_time(row["written"]),
        )
        for row in document["projects"]
    )
    names = ("", "project", "agents", "kB", "last written")
    return table_view(names, rows, right=names[2:4], nothing="No projects yet.")


def sessions_view(document: Document) -> RenderableType:
    """Render sessions with their first and last line's time."""
    rows = document["sessions"]
    table = _span_view(rows, ("session", "agent", "entries"), "No sessions yet.")
    if isinstance(table, Table) and (hidden := document["in_all"] - len(rows)) > 0:
        table.caption = f"{hidden} more: --limit"
    return table


def agents_view(document: Document) -> RenderableType:
    """Render agents with their first and last line's time."""
    return _span_view(document["agents"], ("agent", "sessions", "entries"), "No agents yet.")


def _span_view(rows: Iterable[Document], keys: Sequence[str], nothing: str) -> Table | Text:
    """Render the values of these keys, and when the first and the last line was said."""
    cells = (
        (*(row[key] for key in keys), format_time(row["first"]), format_time(row["last"]))
        for row in rows
    )
    names = [*("lines" if key == "entries" else key for key in keys), "first said", "last said"]
    return table_view(names, cells, right=["sessions", "lines"], nothing=nothing)
