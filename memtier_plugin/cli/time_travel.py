"""`memtier diff` and `memtier revert`: compare two moments, and undo a run."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Group as Lines
from rich.console import RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.facts import fact_diff_view
from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.cli.times import parse_span, written_option
from memtier_plugin.cli.views import (
    Document,
    format_time,
    format_value,
    one_line,
    safe_text,
    short_id,
)
from memtier_plugin.facts.rollback_plan import Rollback
from memtier_plugin.facts.service import FactService
from memtier_plugin.lifecycle.undo_run import UndoneRun
from memtier_plugin.memory import MemTier


@click.command(cls=CliCommand, example="2d 1d")
@click.argument("since")
@click.argument("until", required=False)
@written_option
@click.pass_obj
def diff(scope: Scope, since: str, until: str | None, written: bool) -> None:
    """Show what changed between two moments (2d, 2026-03-14)."""
    start, end = parse_span(since, until)
    with scope.open() as memory:
        difference = memory.history.diff(start, end, written=written)
    scope.show(difference.to_json(), difference_view)


@click.command(cls=CliCommand, example="--run rules-1-8a72b8b7 --dry-run")
@click.option("--run", required=True, metavar="ID", help="The run to take back, of either kind.")
@click.option("--undo", is_flag=True, help="Bring it back instead.")
@click.option("--dry-run", is_flag=True, help="Only show what would be undone.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def revert(scope: Scope, run: str, undo: bool, dry_run: bool, yes: bool) -> None:
    """Undo one consolidation or recorded run, keeping later work."""
    with scope.open() as memory:
        document = _revert_document(memory, run, scope.agent, undo=undo, done=False)
        if not dry_run and not yes and not scope.as_json and sys.stdin.isatty():
            views.make_console(stderr=True).print(revert_view(document))
            click.confirm(f"{'Bring back' if undo else 'Undo'} {run}?", abort=True, err=True)
        if not dry_run:
            document = _revert_document(memory, run, scope.agent, undo=undo, done=True)
    scope.show(document, revert_view)


def _revert_document(
    memory: MemTier, run: str, agent: str | None, *, undo: bool, done: bool
) -> dict[str, Any]:
    plan = memory.history.revert(run, agent=agent, undo=undo, dry_run=not done)
    if isinstance(plan, UndoneRun):
        return {
            **plan.to_json(),
            "undo": undo,
            "reverted": done and not undo,
            "undone": done and undo,
        }
    return _consolidation_document(memory.knowledge.person, plan, done=done, undo=undo)


def _consolidation_document(
    person: FactService, plan: Rollback, *, done: bool, undo: bool
) -> dict[str, Any]:
    pairs_ = (*plan.superseded, *plan.lives_on)
    ids = {*plan.facts, *plan.kept, *plan.restored, *(item for pair in pairs_ for item in pair)}
    text_of = {item.fact.id: item.fact.text for item in person.facts_by_id(ids)}

    def texts(ids_of: Iterable[str]) -> list[dict[str, Any]]:
        return [{"id": item, "text": text_of[item]} for item in ids_of if item in text_of]

    return {
        "what": "consolidation",
        "run": plan.run,
        "undo": undo,
        "reverted": done and not undo,
        "undone": done and undo,
        "facts": texts(plan.facts),
        "kept": texts(plan.kept),
        "restored": texts(plan.restored),
        "entries": sum(item not in text_of for item in plan.restored),
        "superseded": [
            {"id": old, "text": text_of.get(old), "by": new, "by_text": text_of.get(new)}
            for old, new in plan.superseded
        ],
        "lives_on": [
            {"id": old, "as": new, "text": text_of.get(old)} for old, new in plan.lives_on
        ],
    }


# -- views -----------------------------------------------------------------------------------


def difference_view(document: Document) -> RenderableType:
    """Render new entries, changed facts and changed weights between two moments."""
    parts: list[RenderableType] = []
    if document["said"]:
        counts = ", ".join(f"{agent} {count}" for agent, count in document["said"].items())
        parts.append(safe_text(f"new entries: {counts}"))
    if document["facts"]:
        parts.append(fact_diff_view({"changes": document["facts"]}))
    if document["forgotten"]:
        parts.append(safe_text(f"x {len(document['forgotten'])} entries forgotten", "red"))
    for row in document["weights"]:
        style = "green" if row["after"] > row["before"] else "red"
        weight = safe_text(f"{row['before']:+.4f} → {row['after']:+.4f}  ", style)
        parts.append(weight + safe_text(f"{one_line(row['text'], 200)}  {short_id(row['id'])}"))
    parts += [
        safe_text(f"{format_time(row['at'])}  {row['what']} {row['run'] or ''}", "dim")
        for row in document["runs"]
    ]
    return Lines(*(parts or [safe_text("No changes.", "dim")]))


def revert_view(document: Document) -> RenderableType:
    """Render the effects of undoing a run."""
    if document["what"] == "recording":
        return _recording_view(document)
    parts: list[RenderableType] = []
    for name, sign, style in (
        ("facts", "-", "red"),
        ("kept", "= accepted, stays:", "green"),
        ("restored", "+ holds again:", "green"),
        ("superseded", "+ gives way to a later one:", "dim"),
        ("lives_on", "= found by a later one too, lives on:", "green"),
    ):
        for item in document[name]:
            line = f"{sign} {one_line(item['text'] or '-', 200)}  {short_id(item['id'])}"
            parts.append(safe_text(line, style))
    return Lines(*parts, safe_text(f"{document['run']}: {_describe_effect(document)}", "dim"))


def _describe_effect(document: Document) -> str:
    """Describe in words what undoing a consolidation, or bringing it back, does."""
    if document["undo"]:
        count = len(document["restored"])
        verb = "brought back" if document["undone"] else "would be brought back"
        return f"{count} facts {verb}" if count else "nothing left to bring back"
    entries = document["entries"]
    verb = "undone" if document["reverted"] else "would be undone"
    tail = f", {entries} entries no longer marked as promoted" if entries else ""
    return f"{len(document['facts'])} facts {verb}{tail}"


def _recording_view(document: Document) -> RenderableType:
    done = document["reverted"] or document["undone"]
    names = ("entries", "facts", "credited", "restored")
    counts = {name: len(document[name]) for name in names if document[name]}
    verb = "brought back" if document["undo"] else "taken back"
    head = f"{document['run']} of {document['agent']} {'is' if done else 'would be'} {verb}"
    return safe_text(
        f"{head}: {format_value(counts)}" if counts else f"{document['run']}: nothing left to do"
    )
