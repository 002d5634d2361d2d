"""`memtier people show`: what is known about people, with counts, sources and times."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.cli.views import Document, safe_text, table_view
from memtier_plugin.facts.persons import THE_USER


@click.command("show", cls=CliCommand, example="ines")
@click.argument("name", required=False, metavar="[PERSON]")
@click.pass_obj
def people_show(scope: Scope, name: str | None) -> None:
    """Show what is known about a person, or everyone, with counts, sources and times."""
    with scope.open() as memory:
        everybody = memory.people.profiles(name)
        document = {"profiles": [profile.to_json() for profile in everybody]}
    scope.show(document, profiles_view)


def profiles_view(document: Document) -> RenderableType:
    """Render profiles, each attribute with its newest source line."""
    parts: list[RenderableType] = []
    for profile in document["profiles"]:
        days = f"{profile['first'][:10]} to {profile['last'][:10]}"
        scope = f"{profile['agent']}, {profile['sender'] or THE_USER}"
        head = f"{profile['person']}: {profile['lines']} lines, {days} ({scope})"
        rows = (
            (
                attribute["name"].replace("_", " "),
                attribute["value"],
                attribute["count"],
                attribute["last"][:10],
                attribute["sources"][-1]["entry"],
            )
            for attribute in profile["attributes"]
        )
        names = ("what", "value", "times", "last", "line")
        parts += [safe_text(head, "bold"), table_view(names, rows, right=["times"])]
    return Group(*parts) if parts else safe_text("Nobody has said enough yet.", "dim")
