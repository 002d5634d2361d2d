"""`memtier people show`: what is known about people, with counts, sources and times."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.cli.views import Document, column_table, safe_text
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
        table = column_table("what", "value", "times", "last", "line", right=["times"])
        for attribute in profile["attributes"]:
            table.add_row(
                safe_text(attribute["name"].replace("_", " ")),
                safe_text(attribute["value"]),
                safe_text(attribute["count"]),
                safe_text(attribute["last"][:10]),
                safe_text(attribute["sources"][-1]["entry"]),
            )
        parts += [safe_text(head, "bold"), table]
    return Group(*parts) if parts else safe_text("Nobody has said enough yet.", "dim")
