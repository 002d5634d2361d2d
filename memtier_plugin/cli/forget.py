"""`memtier forget`, `unforget` and `purge`: hide lines, restore them, or erase them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import (
    CliCommand,
    Scope,
    combine_options,
    complete_forgotten,
    complete_items,
    complete_sessions,
    progress_bar,
    scope_of,
)
from memtier_plugin.cli.views import (
    Document,
    format_value,
    name_value_table,
    one_line,
    parse_time,
    safe_text,
    short_id,
    table_view,
)
from memtier_plugin.lifecycle.selection import Selection, select_items
from memtier_plugin.memory import MemTier

_MOST_HIDDEN: Final = 200  # newest lines that `unforget` lists
_COUNTS: Final = (
    "entries",
    "facts",
    "experiences",
    "summaries",
    "answers",
    "quotes",
    "journal",
    "unreadable",
    "vectors",
    "ngrams",
    "pages",
    "queue",
)

_selection_options: Final = combine_options(
    click.argument("ids", nargs=-1, shell_complete=complete_items),
    click.option("--query", metavar="WORDS", help="Lines that contain all of these words."),
    click.option(
        "--session",
        metavar="ID",
        shell_complete=complete_sessions,
        help="Lines of this session.",
    ),
    click.option("--sender", metavar="ID", help="Lines of this sender."),
    click.option("--run", metavar="ID", help="Lines of this run."),
    click.option("--since", metavar="WHEN", help="Lines said since a time, such as 2d."),
    click.option("--until", metavar="WHEN", help="Lines said before a time."),
    click.option("--all-of-agent", is_flag=True, help="Every line of --agent."),
)


def _build_selection(scope: Scope, memory: MemTier, options: dict[str, Any]) -> Selection:
    """Build the selection from the options; --agent alone requires --all-of-agent."""
    now = datetime.now(UTC)
    person = memory.knowledge.person
    conditions = {name: options[name] for name in ("query", "session", "sender", "run")}
    conditions |= {
        name: parse_time(options[name], now) if options[name] else None
        for name in ("since", "until")
    }
    narrowed = options["all_of_agent"] or any(value is not None for value in conditions.values())
    if options["all_of_agent"] and not scope.agent:
        raise click.UsageError("--all-of-agent needs --agent NAME")
    return Selection(
        ids=tuple(person.full_id(item) for item in options["ids"]),
        agent=scope.agent if narrowed else None,
        **conditions,
    )


@click.command(cls=CliCommand, example='--query "old staging host" --dry-run')
@_selection_options
@click.option("--dry-run", is_flag=True, help="Show what would be forgotten, without hiding it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def forget(scope: Scope, /, dry_run: bool, yes: bool, **options: Any) -> None:
    """Hide lines by id, words, session, sender or time."""
    with scope.open() as memory:
        selection = _build_selection(scope, memory, options)
        if not selection:
            raise click.UsageError("name the ids to forget, or --session ID")
        person = memory.knowledge.person
        memory.store.catch_up_all()
        entries, facts = select_items(memory.store, selection)
        chosen = [*entries, *facts]
        plan = person.forget(ids=chosen, dry_run=True)
        removed = {*plan.ids, *plan.facts}
        document = {
            "forgotten": not dry_run,
            "entries": [e.to_json() for e in memory.entries() if e.id in removed],
            "facts": [view.fact.to_json() for view in person.facts_by_id(plan.facts)],
        }
        if not dry_run:
            if not yes:
                if scope.as_json or not sys.stdin.isatty():
                    raise click.UsageError(
                        "give --yes, or --dry-run to see the lines: there is no terminal to ask at"
                    )
                views.make_console(stderr=True).print(forget_view(document))
                click.confirm(f"Forget these {len(removed)}?", abort=True, err=True)
            person.forget(ids=chosen)
    scope.show(document, forget_view)


@click.command(cls=CliCommand, example="5H61N2FJ")
@click.argument("ids", nargs=-1, shell_complete=complete_forgotten)
@click.option("--dry-run", is_flag=True, help="Show what would be restored, without restoring it.")
@click.pass_obj
def unforget(scope: Scope, /, ids: Sequence[str], dry_run: bool) -> None:
    """Restore what `forget` hid; without IDS, list it."""
    with scope.open() as memory:
        if not ids:
            memory.store.catch_up_all()
            with memory.store.session() as reader:
                hidden = reader.list_items(reader.newest_ids(_MOST_HIDDEN, forgotten=True))
            scope.show({"forgotten": [item._asdict() for item in hidden]}, hidden_view)
            return
        full_ids = [memory.knowledge.person.full_id(item, forgotten=True) for item in ids]
        brought_back = memory.unforget(full_ids, dry_run=dry_run)
        scope.show({"brought_back": not dry_run, **asdict(brought_back)}, unforget_view)


@click.command(cls=CliCommand, example='--text "the old password" --dry-run')
@_selection_options
@click.option("--text", "words", metavar="TEXT", help="Every occurrence of this text.")
@click.option(
    "--text-stdin",
    is_flag=True,
    help="Read the text from stdin, to keep it out of the shell history.",
)
@click.option("--delete-exports", is_flag=True, help="Also delete exported files that contain it.")
@click.option("--resume", is_flag=True, help="Complete an interrupted purge.")
@click.option("--dry-run", is_flag=True, help="List every copy, without deleting it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_context
def purge(
    ctx: click.Context,
    /,
    words: str | None,
    text_stdin: bool,
    delete_exports: bool,
    resume: bool,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Erase lines, or a text, from every file, with a receipt."""
    scope = scope_of(ctx)
    words = sys.stdin.read().strip("\r\n") if text_stdin else words
    with scope.open() as memory, progress_bar() as report:
        target = words if words is not None else _build_selection(scope, memory, options)
        if resume:
            memory.purger.complete(report)
            scope.show({"whole": not memory.store.project_folder.purge_plan.exists()})
            return
        if not target:
            raise click.UsageError("name what to purge: ids, --text-stdin, --session ID ...")
        if not dry_run and not yes:
            plan = memory.purge(target, dry_run=True, delete_exports=delete_exports)
            if text_stdin or scope.as_json or not sys.stdin.isatty():
                raise click.UsageError(
                    "a purge cannot be undone: preview it with --dry-run, confirm with --yes"
                )
            views.make_console(stderr=True).print(receipt_view(plan.to_json()))
            click.confirm(f"Permanently purge these {plan.copies.found}?", abort=True, err=True)
        receipt = memory.purge(
            target, dry_run=dry_run, delete_exports=delete_exports, progress=report
        )
    scope.show(receipt.to_json(), receipt_view)
    if not dry_run and not receipt.gone:
        ctx.exit(1)


def forget_view(document: Document) -> RenderableType:
    """Render lines that were, or would be, forgotten."""
    rows = [
        (short_id(entry["id"]), entry["speaker"] or entry["role"], one_line(entry["content"]))
        for entry in document["entries"]
    ]
    rows += [(short_id(fact["id"]), "fact", one_line(fact["text"])) for fact in document["facts"]]
    verb = "forgotten" if document["forgotten"] else "would be forgotten"
    table = table_view(("id", "who", "text"), rows, wide=["text"])
    return Group(table, safe_text(f"{len(rows)} {verb}", "dim"))


def hidden_view(document: Document) -> RenderableType:
    """Render forgotten lines, each with the id that restores it."""
    rows = (
        (short_id(item["id"]), item["agent"] or item["tier"], one_line(item["text"]))
        for item in document["forgotten"]
    )
    return table_view(("id", "of", "text"), rows, wide=["text"], nothing="Nothing is forgotten.")


def unforget_view(document: Document) -> RenderableType:
    """Render the ids that were, or would be, restored."""
    verb = "restored" if document["brought_back"] else "would be restored"
    lines = [safe_text(short_id(item)) for item in (*document["ids"], *document["facts"])]
    return Group(*lines, safe_text(f"{len(lines)} {verb}", "dim"))


def receipt_view(document: Document) -> RenderableType:
    """Render a purge's receipt: copies found, remaining, and out of reach."""
    copies = document["copies"]
    rows = [(name, format_value(copies[name])) for name in _COUNTS if copies[name]]
    rows += [("agents", format_value(copies["agents"]))] if copies["agents"] else []
    rows += [("file", path) for path in copies["files"]]
    rows += [("export", f"{item['path']}: {item['what']}") for item in copies["exports"]]
    rows += [("left", f"{item['path']}: {item['why']}") for item in copies["left"]]
    title = "Purged:" if document["done"] else "Would be purged:"
    parts: list[RenderableType] = [safe_text(title, "bold")]
    parts.append(name_value_table(rows) if rows else safe_text("  nothing found", "dim"))
    if document["done"]:
        after = document["found_after"]
        counts = ", ".join(f"{name} {count}" for name, count in after.items())
        parts += [
            "",
            safe_text(f"Found afterwards: {counts}", "green" if document["gone"] else "red"),
        ]
        parts += [safe_text(f"  {path}", "red") for path in document["where_after"]]
        if not document["clean"]:
            parts.append(
                safe_text(
                    "Another process is still reading the index: `memtier purge --resume`", "red"
                )
            )
        pending = document.get("pending")
        for machine in pending or ():
            seen = f"last there {machine['seen']}" if machine["seen"] else "never there"
            parts.append(safe_text(f"Not yet purged on {machine['machine']}, {seen}", "red"))
        if pending:
            parts.append(safe_text("  `memtier shared purges` shows the progress", "dim"))
        elif pending is not None:
            parts.append(safe_text("Every other machine has confirmed.", "green"))
        parts.append(safe_text(f"receipt {document['purge']}", "dim"))
    parts += ["", safe_text("Out of reach:", "bold")]
    parts += [safe_text(f"  {item}", "dim") for item in document["cannot_reach"]]
    return Group(*parts)
