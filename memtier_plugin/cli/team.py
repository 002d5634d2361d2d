"""`memtier share`: a team's facts in files of its git repository."""

from __future__ import annotations

from typing import Any, Final

import click
from rich.console import RenderableType

from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.cli.views import Document, done_view
from memtier_plugin.core.errors import SettingsError
from memtier_plugin.transfer.team import BroughtIn, SharedFile, Team
from memtier_plugin.transfer.team_files import FOLDER

_MOST_BAD: Final = 20  # unreadable lines shown


@click.command(cls=CliCommand, example="--git")
@click.option(
    "--git", "in_git", is_flag=True, help="Use this folder's repository, and commit after."
)
@click.pass_obj
def share(scope: Scope, in_git: bool) -> None:
    """Share the project's facts with a team, in its git repository."""
    if not in_git:
        raise click.UsageError("say where: --git, or `memtier shared` for a server")
    if scope.project_name != scope.folder_project:  # what hosts said elsewhere is in it
        raise SettingsError("this folder has no project of its own: run `memtier init` first")
    with scope.open() as memory:
        team = Team(memory)
        document = _document(team.bring_in(), team.write())
    scope.show(document, _view)


def _view(document: Document) -> RenderableType:
    """Render what there is to tell."""
    return done_view({name: value for name, value in document.items() if value})


def _document(came: BroughtIn, wrote: SharedFile) -> dict[str, Any]:
    document: dict[str, Any] = {
        "commit": came.commit[:12] or None,
        "brought_in": len(came.new),
        "known": came.known,
        "ended_here": len(came.ended),
        "back_again": len(came.returned),
        "asked_to_end": len(came.asked),
        "unreadable": len(came.bad),
        "why": came.bad[:_MOST_BAD],
        "file": str(wrote.path),
        "facts": wrote.facts,
        "ended": wrote.ended,
        "left_out": dict(wrote.left_out),
        "changed": wrote.changed,
    }
    steps = []
    if came.new or came.asked:
        steps.append("memtier review")
    if not wrote.committed:
        steps.append(f"git add {FOLDER} && git commit -m 'Share facts' {FOLDER}")
    return {**document, "next": steps}
