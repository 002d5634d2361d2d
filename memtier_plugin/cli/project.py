"""`memtier init`, `reindex`, `off` and `on`: set up a project, rebuild its index, pause it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar
from memtier_plugin.core.paths import make_home, write_private_file
from memtier_plugin.core.settings.load import bind_workspace, resolve_project


@click.command(cls=CliCommand)
@click.pass_obj
def init(scope: Scope) -> None:
    """Set up the home and this folder's project."""
    folder = Path.cwd()
    project = scope.folder_project
    bound = resolve_project(scope.path, folder) == project and scope.project is None
    done = {"home": str(make_home(scope.path)), "project": project}
    created = _new_file(scope.path / "config.yaml", "# Your settings; see `memtier config show`.\n")
    with scope.open(create=True) as memory:
        text = f"# Settings of the project {project!r}.\n"
        created += _new_file(memory.folder / "project.yaml", text)
        done["folder"] = str(memory.folder)
    if not bound:
        bind_workspace(scope.path, folder, project)
    scope.show({**done, "workspace": str(folder), "bound": not bound, "created": created})


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
        scope.show({"project": memory.project, "paused": True})


@click.command(cls=CliCommand)
@click.pass_obj
def on(scope: Scope) -> None:
    """Resume recording and recall."""
    with scope.open() as memory:
        memory.resume()
        scope.show({"project": memory.project, "paused": False})
