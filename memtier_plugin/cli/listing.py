"""`memtier projects`, `sessions`, `agents` and `people`: list what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memtier_plugin.cli.scope import CliCommand, CliGroup, Scope, limit_option
from memtier_plugin.cli.views import Document, format_time, safe_text, table_view
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.paths import ProjectFolder, list_projects
from memtier_plugin.facts.persons import THE_USER
from memtier_plugin.storage.index.item_reader import SessionSpan

# -- `memtier projects`, `sessions` and `agents`: list them with their last activity


@click.command(cls=CliCommand)
@click.pass_obj
def projects(scope: Scope) -> None:
    """List the projects of the home, marking this folder's."""
    current = scope.project_name
    rows = [
        _describe_project(ProjectFolder.of(scope.path, name), name, current)
        for name in list_projects(scope.path)
    ]
    scope.show({"projects": rows}, projects_view)


def _describe_project(folder: ProjectFolder, name: str, current: str) -> dict[str, Any]:
    """Describe a project from its files, without opening its index."""
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


@click.command(cls=CliCommand, example="--limit 5")
@limit_option(20, "The most sessions to show.")
@click.pass_obj
def sessions(scope: Scope, limit: int) -> None:
    """List the project's sessions, most recently active first."""
    spans = _read_spans(scope)
    rows = [
        {**span._asdict(), "first": to_iso(span.first), "last": to_iso(span.last)}
        for span in spans[:limit]
    ]
    scope.show({"sessions": rows, "in_all": len(spans)}, sessions_view)


@click.command(cls=CliCommand)
@click.pass_obj
def agents(scope: Scope) -> None:
    """List the project's agents, most recently active first."""
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
    """Render the values of these keys, and the times of the first and last line."""
    cells = (
        (*(row[key] for key in keys), format_time(row["first"]), format_time(row["last"]))
        for row in rows
    )
    names = [*("lines" if key == "entries" else key for key in keys), "first said", "last said"]
    return table_view(names, cells, right=["sessions", "lines"], nothing=nothing)


# -- `memtier people`: list the people of a project, and merge their senders


@click.group(cls=CliGroup, example="list")
def people() -> None:
    """List the people who spoke, and merge their senders."""


@people.command("list")
@click.pass_obj
def people_list(scope: Scope) -> None:
    """List everyone who spoke, by sender id."""
    with scope.open() as memory:
        document = {"people": [person.to_json() for person in memory.people.everybody()]}
    scope.show(document, people_view)


@people.command("link", example="telegram:4711 ines")
@click.argument("names", nargs=-1, required=True, metavar="PERSON PERSON...")
@click.pass_obj
def people_link(scope: Scope, names: tuple[str, ...]) -> None:
    """Merge senders (ids or names from `memtier people list`) into one person."""
    with scope.open() as memory:
        ids = memory.people.link(names)
    scope.show({"linked": [person or THE_USER for person in ids]}, _linked_view)


@people.command("unlink", example="telegram:4711")
@click.argument("names", nargs=-1, required=True, metavar="PERSON...")
@click.pass_obj
def people_unlink(scope: Scope, names: tuple[str, ...]) -> None:
    """Undo the merging of these senders."""
    with scope.open() as memory:
        ids = memory.people.unlink(names)
    scope.show({"unlinked": [person or THE_USER for person in ids]}, _linked_view)


def people_view(document: Document) -> RenderableType:
    """Render people with their names and links."""
    rows = (
        (
            person["id"],
            ", ".join(person["names"]),
            ", ".join(person["linked"]),
            person["lines"],
            person["facts"],
        )
        for person in document["people"]
    )
    names = ("person", "names", "linked to", "lines", "own facts")
    return table_view(names, rows, right=names[3:], nothing="Nobody has spoken yet.")


def _linked_view(document: Document) -> RenderableType:
    [(verb, ids)] = document.items()
    return safe_text(f"{verb}: {', '.join(ids)}")
