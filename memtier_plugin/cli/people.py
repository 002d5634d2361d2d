"""`memtier people`: list the people of a project, and say which senders are one person."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliGroup, Scope
from memtier_plugin.cli.views import Document, safe_text
from memtier_plugin.facts.people import THE_USER


@click.group(cls=CliGroup, example="list")
def people() -> None:
    """List the people who spoke, and say which senders are one."""


@people.command("list")
@click.pass_obj
def people_list(scope: Scope) -> None:
    """List everybody who spoke, by the id of the sender."""
    with scope.open() as memory:
        document = {"people": [person.to_json() for person in memory.people.everybody()]}
    scope.show(document, people_view)


@people.command("show", example="ines")
@click.argument("name", required=False, metavar="[PERSON]")
@click.pass_obj
def people_show(scope: Scope, name: str | None) -> None:
    """Show what is known of a person, or of everybody: with counts, sources and times."""
    with scope.open() as memory:
        everybody = memory.people.profiles(name)
        document = {"profiles": [profile.to_json() for profile in everybody]}
    scope.show(document, profiles_view)


@people.command("link", example="telegram:4711 ines")
@click.argument("names", nargs=-1, required=True, metavar="PERSON PERSON...")
@click.pass_obj
def people_link(scope: Scope, names: tuple[str, ...]) -> None:
    """Say that these senders (ids or names of `memtier people list`) are one person."""
    with scope.open() as memory:
        ids = memory.people.link(names)
    scope.show({"linked": [person or THE_USER for person in ids]}, _linked_view)


@people.command("unlink", example="telegram:4711")
@click.argument("names", nargs=-1, required=True, metavar="PERSON...")
@click.pass_obj
def people_unlink(scope: Scope, names: tuple[str, ...]) -> None:
    """Say that these senders are not whom they were linked with."""
    with scope.open() as memory:
        ids = memory.people.unlink(names)
    scope.show({"unlinked": [person or THE_USER for person in ids]}, _linked_view)


def people_view(document: Document) -> RenderableType:
    """Render people with their names and links."""
    table = views.column_table(
        "person", "called", "one with", "lines", "own facts", right=["lines", "own facts"]
    )
    for person in document["people"]:
        table.add_row(
            safe_text(person["id"]),
            safe_text(", ".join(person["names"])),
            safe_text(", ".join(person["linked"])),
            safe_text(person["lines"]),
            safe_text(person["facts"]),
        )
    return table if table.row_count else safe_text("Nobody spoke yet.", "dim")


def profiles_view(document: Document) -> RenderableType:
    """Render profiles, each with its attributes and the newest line that each rests on."""
    parts: list[RenderableType] = []
    for profile in document["profiles"]:
        days = f"{profile['first'][:10]} to {profile['last'][:10]}"
        scope = f"{profile['agent']}, {profile['sender'] or THE_USER}"
        head = f"{profile['person']}: {profile['lines']} lines, {days} ({scope})"
        table = views.column_table("what", "value", "times", "last", "line", right=["times"])
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


def _linked_view(document: Document) -> RenderableType:
    [(what, ids)] = document.items()
    return safe_text(f"{what}: {', '.join(ids)}")
