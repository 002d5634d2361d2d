"""`memtier config`, `init`, `reindex`, `off` and `on`: set up a project, or pause it."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType

from memtier_plugin.cli.scope import CliCommand, CliGroup, Scope, progress_bar
from memtier_plugin.cli.views import Document, safe_text, sentence_view, table_view
from memtier_plugin.core.errors import LedgerWriteError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.paths import encode_file_name, make_home, register_long_name
from memtier_plugin.core.settings.load import (
    bind_workspace,
    bound_project,
    load_settings,
    resolve_project,
    setting_sources,
)
from memtier_plugin.operations.job_state import read_background

# -- `memtier config`: the settings, and where each was set


@click.group(cls=CliGroup, example="show")
def config() -> None:
    """Show and check the settings."""


@config.command("show")
@click.pass_obj
def config_show(scope: Scope) -> None:
    """List every value with the file and line that set it."""
    sources = setting_sources(scope.path, scope.project_name, Path.cwd())
    rows = [{"key": key, "value": v.value, "from": v.source} for key, v in sources.items()]
    scope.show({"project": scope.project_name, "settings": rows}, settings_view)


@config.command("check")
@click.pass_obj
def config_check(scope: Scope) -> None:
    """Check the settings and report mistakes."""
    load_settings(scope.path, scope.project_name, Path.cwd())
    scope.show({"project": scope.project_name, "home": str(scope.path), "settings": "fine"})


def settings_view(document: Document) -> RenderableType:
    """Render every key with its value and source."""
    rows = []
    for row in document["settings"]:
        style = "dim" if row["from"] == "default" else ""
        value = row["value"] if isinstance(row["value"], str) else json.dumps(row["value"])
        rows.append((safe_text(row["key"], style), safe_text(value, style), row["from"]))
    return table_view(("key", "value", "from"), rows, wide=["value"])


# -- `memtier init`, `reindex`, `off` and `on`: set up a project, rebuild its index, pause it


@click.command(cls=CliCommand, example="--project shop")
@click.option(
    "--import/--no-import",
    "imports",
    default=None,
    help="Import this folder's git history, notes to agents and agents' sessions [ask].",
)
@click.pass_obj
def init(scope: Scope, imports: bool | None) -> None:
    """Set up the home and this folder's project."""
    from memtier_plugin.cli.first_day import offer_import

    folder = Path.cwd()
    project, former = scope.folder_project, bound_project(scope.path, folder)
    bound = resolve_project(scope.path, folder) == project and scope.project is None
    done: dict[str, Any] = {"home": str(make_home(scope.path)), "project": project}
    if former and former != project:
        done["was"] = f"{former}, whose memory is kept: memtier --project {former}"
    elif not bound:
        done |= _adopt_unnamed(scope.path, resolve_project(scope.path, folder), project)
    created = _new_file(scope.path / "config.yaml", "# Your settings; see `memtier config show`.\n")
    with scope.open(create=True) as memory:
        text = f"# Settings of the project {project!r}.\n"
        created += _new_file(memory.folder / "project.yaml", text)
        done["folder"] = str(memory.folder)
    if not bound:
        bind_workspace(scope.path, folder, project)
    done |= {"workspace": str(folder), "bound": not bound, "created": created}
    scope.show({**done, **offer_import(scope, folder, imports)})


def _adopt_unnamed(home: Path, unnamed: str, project: str) -> dict[str, str]:
    """Rename the folder's unnamed project, if any, to the new name.

    Return a note for the user, empty if there was none.

    Raises:
        LedgerWriteError: the folder cannot be renamed.
    """
    source, dest = (home / "projects" / encode_file_name(name) for name in (unnamed, project))
    if unnamed == project or not source.is_dir():
        return {}
    if os.path.lexists(dest) or read_background(source).served:
        export = f"memtier --project {unnamed} export -o FILE; memtier import FILE"
        return {"recorded before": f"stays in {unnamed}: {export}"}
    try:
        register_long_name(dest.parent, dest.name, project)
        source.rename(dest)
    except OSError as error:
        raise LedgerWriteError(f"cannot rename {source}: {error}") from error
    return {"recorded before": f"is in {project} now; it was in {unnamed}"}


def _new_file(path: Path, text: str) -> list[str]:
    if path.exists():
        return []
    write_private_file(path, text)
    return [str(path)]


@click.command(cls=CliCommand)
@click.pass_obj
def reindex(scope: Scope) -> None:
    """Rebuild the index from the ledgers."""
    with scope.open() as memory, progress_bar() as report:
        document = memory.reindex(partial(report, "reading the ledgers"))
    scope.show(document)


@click.command(cls=CliCommand)
@click.pass_obj
def off(scope: Scope) -> None:
    """Pause recording and recall of the project."""
    with scope.open() as memory:
        memory.pause()
        text = f"{memory.project} is off: nothing is recorded or recalled until `memtier on`."
        scope.show({"project": memory.project, "paused": True}, sentence_view(text))


@click.command(cls=CliCommand)
@click.pass_obj
def on(scope: Scope) -> None:
    """Resume recording and recall."""
    with scope.open() as memory:
        memory.resume()
        text = f"{memory.project} is on: it records and recalls."
        scope.show({"project": memory.project, "paused": False}, sentence_view(text))
