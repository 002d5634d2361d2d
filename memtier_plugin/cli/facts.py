"""`memtier facts`, `diff` and `revert`: show facts, compare two moments, undo a run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.review import review, source_lines
from memtier_plugin.cli.scope import CliCommand, CliGroup, Scope, complete_facts, limit_option
from memtier_plugin.cli.views import (
    Document,
    format_time,
    format_value,
    name_value_table,
    one_line,
    parse_span,
    safe_text,
    short_id,
    written_option,
)
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import Fact
from memtier_plugin.facts.own_words import Closing
from memtier_plugin.facts.rollback import Rollback
from memtier_plugin.facts.service import FactService
from memtier_plugin.facts.views import FactView
from memtier_plugin.lifecycle.edit import UndoneRun
from memtier_plugin.memory import MemTier
from memtier_plugin.views.history import FactTimeline, fact_timeline, span, state_of

# -- `memtier facts`: list, search, show and review the project's facts

CHANGE_SIGNS: Final = {
    "added": ("+", "green"),
    "proposed": ("?", "yellow"),
    "updated": ("~", "cyan"),
    "superseded": ("-", "dim"),
    "accepted": ("✓", "green"),
    "rejected": ("✗", "red"),
    "reverted": ("<", "red"),
    "restored": (">", "green"),
    "forgotten": ("x", "red"),
    "unforgotten": (">", "green"),
    "withdrawn": ("x", "red"),
    "reinstated": (">", "green"),
}
_SPAN: Final = 16  # columns of the line of time beside a fact
_STATES: Final = {"active": "", "proposed": "yellow", "held back": "yellow"}


@click.group(cls=CliGroup, example="list")
def facts() -> None:
    """List, search and review the project's facts."""


@facts.command("list", example="--subject Ines")
@click.option("--all", "everything", is_flag=True, help="Include inactive facts and summaries.")
@click.option("--proposed", is_flag=True, help="Only facts awaiting review.")
@click.option("--subject", metavar="NAME", help="Only facts about NAME.")
@click.pass_obj
def facts_list(scope: Scope, everything: bool, proposed: bool, subject: str | None) -> None:
    """List the facts, newest first."""
    with scope.open() as memory:
        person = memory.knowledge.person
        views = (
            person.proposals()
            if proposed
            else person.facts(include_superseded=everything, subject=subject, shelves=everything)
        )
    subject_key = None if subject is None else subject.strip().casefold()
    shown = [view for view in views if subject_key in (None, view.fact.subject.casefold())]
    ordered = sorted(shown, key=lambda view: view.fact.id, reverse=True)
    scope.show({"facts": [view.to_json() for view in ordered]}, fact_list_view)


@facts.command("search", example='"staging host" --limit 3')
@click.argument("query")
@limit_option(10, "The most facts to show.")
@click.pass_obj
def facts_search(scope: Scope, query: str, limit: int) -> None:
    """Find facts relevant to QUERY, best first."""
    with scope.open() as memory:
        recall = memory.knowledge.person.search(query, limit)
    hits = [{**_fact_json(hit.item), "score": round(hit.score, 4)} for hit in recall.hits]
    scope.show({"query": query, "label": recall.label, "facts": hits}, fact_list_view)


def _fact_json(item: object) -> dict[str, Any]:
    assert isinstance(item, Fact)
    return FactView(item, "active").to_json()


@facts.command("show", example="5H61N2FJ")
@click.argument("fact_id", shell_complete=complete_facts)
@click.pass_obj
def facts_show(scope: Scope, fact_id: str) -> None:
    """Show a fact and its source lines."""
    with scope.open() as memory:
        person = memory.knowledge.person
        view = person.fact(person.full_id(fact_id))
    scope.show(view.to_document(), fact_view)


facts.add_command(review)  # an alias of `memtier review`


@click.command("rules", cls=CliCommand, example="--json")
@click.pass_obj
def rules(scope: Scope) -> None:
    """List rules set by corrections, and how often each was shown."""
    with scope.open() as memory:
        document = {"rules": [rule.to_json() for rule in memory.knowledge.person.rules()]}
    scope.show(document, rules_view)


# -- what happened ---------------------------------------------------------------------------


@facts.command("diff", example="2026-03-01 2026-04-01")
@click.argument("since")
@click.argument("until", required=False)
@written_option
@click.pass_obj
def facts_diff(scope: Scope, since: str, until: str | None, written: bool) -> None:
    """Show how the facts changed between two times (2d, 2026-03-14)."""
    start, end = parse_span(since, until)
    with scope.open() as memory:
        changes = memory.knowledge.person.diff(start, end, written=written)
    document = {
        "since": to_iso(start),
        "until": to_iso(end),
        "changes": [change.to_json() for change in changes],
    }
    scope.show(document, fact_diff_view)


@facts.command("runs", example="--limit 5")
@limit_option(20, "The most runs to show, newest first.")
@click.pass_obj
def facts_runs(scope: Scope, limit: int) -> None:
    """List the consolidations with their statistics."""
    with scope.open() as memory:
        runs = memory.knowledge.person.runs(limit)
    scope.show({"runs": [run.to_json() for run in reversed(runs)]}, consolidations_view)


@facts.command("timeline", example="Ines")
@click.argument("subject")
@click.pass_obj
def facts_timeline(scope: Scope, subject: str) -> None:
    """Show how the facts about SUBJECT changed over time."""
    with scope.open() as memory:
        views = memory.knowledge.person.timeline(subject)
    timeline = fact_timeline(subject, views, datetime.now(UTC))
    document = {**timeline.to_json(), "facts": [view.to_json() for view in views]}
    scope.show(document, lambda _: timeline_view(timeline))


# -- views -----------------------------------------------------------------------------------


def fact_list_view(document: Document) -> RenderableType:
    """Render facts with their source agents and state."""
    rows = (
        (
            format_time(fact["valid_from"] or fact["timestamp"])[:10],
            short_id(fact["id"]),
            one_line(fact["text"], 300),
            ", ".join(dict.fromkeys(source["agent"] for source in fact["sources"])),
            safe_text(state := _state_of(fact), _STATES.get(state, "dim")),
        )
        for fact in document["facts"]
    )
    nothing = "No facts found." if "query" in document else "No facts yet."
    names = ("date", "id", "fact", "from", "status")
    return views.table_view(names, rows, wide=["fact"], nothing=nothing)


@click.command("todo", cls=CliCommand, example="--done 5H61N2FJ")
@click.option("--done", metavar="ID", multiple=True, help="Close an intention that is done.")
@click.option("--dismiss", metavar="ID", multiple=True, help="Close one that is not wanted.")
@click.pass_obj
def todo(scope: Scope, done: tuple[str, ...], dismiss: tuple[str, ...]) -> None:
    """List what users want to be reminded of, or close items."""
    with scope.open() as memory:
        person = memory.knowledge.person
        closing: list[tuple[str, Closing]] = [(each, "done") for each in done]
        closing += [(each, "dismissed") for each in dismiss]
        closed = [
            {**person.close(person.full_id(each), why).to_json(), "why": why}
            for each, why in closing
        ]
        document = {
            "closed": closed,
            "todo": [each.to_json() for each in person.todo()],
            "kept": memory.store.settings.facts.intentions,
        }
    scope.show(document, partial(todo_view, config=scope.path / "config.yaml"))


def todo_view(document: Document, config: Path) -> RenderableType:
    """Render intentions with what each waits for, after those that were just closed."""
    closed = [safe_text(f"{each['why']}: {each['text']}", "dim") for each in document["closed"]]
    rows = (
        (
            each["date"][:10],
            short_id(each["id"]),
            one_line(each["text"], 300),
            each["due"] or "",
            "yes" if each["shown"] else "",
        )
        for each in document["todo"]
    )
    names = ("date", "id", "to be reminded of", "due", "shown")
    table = views.table_view(names, rows, wide=["to be reminded of"], nothing="Nothing to do.")
    if document["kept"]:
        return Group(*closed, table)
    off = f"Reminders are off: set `facts.intentions: true` in {config} to keep new ones."
    return Group(*closed, *([table] if document["todo"] else []), safe_text(off, "yellow"))


def rules_view(document: Document) -> RenderableType:
    """Render rules: who set each, and how often it was said, shown, repeated, and reminded of."""
    rows = (
        (
            rule["date"][:10],
            short_id(rule["id"]),
            one_line(rule["text"], 300),
            rule["who"],
            str(rule["times"]),
            str(rule["shown"]),
            *(str(rule[count] or "") for count in ("again", "reminded", "insisted")),
        )
        for rule in document["rules"]
    )
    names = ("date", "id", "rule", "from", "said", "shown", "repeated", "reminded", "insisted")
    return views.table_view(names, rows, wide=["rule"], nothing="No rules yet.")


def _state_of(fact: Mapping[str, Any]) -> str:
    return state_of(fact, datetime.now(UTC))


def fact_view(document: Document) -> RenderableType:
    """Render one fact in full, with its reviews and source lines."""
    fact = document["fact"]
    names = ("id", "text", "subject", "relation", "value", "confidence", "origin", "extractor")
    more = [name for name in ("model", "run", "reason", "superseded_by") if fact[name]]
    private = [("private to", format_value(fact["private_to"]))] if fact["private_to"] else []
    rows = [(name, format_value(fact[name])) for name in (*names, *more)] + private
    rows += [("belongs to", _describe_owner(fact))]
    rows += [(name, format_time(fact[name])) for name in ("valid_from", "valid_to")]
    rows += [(review["what"], _describe_review(review)) for review in document["reviews"]]
    state = ("state", safe_text(_state_of(fact), _STATES.get(_state_of(fact), "dim")))
    heading = safe_text("sources", "bold")
    return Group(name_value_table([state, *rows]), "", heading, *source_lines(document["sources"]))


def _describe_owner(fact: Document) -> str:
    """Return who owns a fact, a person or the project, and who said it."""
    person = fact["person"] or "the user"
    if fact["personal"]:
        return f"{person}, not shared with others"
    return "the project" if fact["person"] is None else f"the project; {person} said it"


def _describe_review(review: Document) -> str:
    why = f": {review['why']}" if review["why"] else ""
    return f"{format_time(review['at'])} by {review['agent']}{why}"


def fact_diff_view(document: Document) -> RenderableType:
    """Render changes of facts, oldest first, with counts."""
    rows: list[tuple[object, ...]] = []
    counts: dict[str, int] = {}
    for change in document["changes"]:
        kind = change["what"]
        counts[kind] = counts.get(kind, 0) + 1
        sign, style = CHANGE_SIGNS[kind]
        fact = safe_text(one_line(change["fact"]["text"], 300) if change["fact"] else "-")
        if change["by"]:
            fact.append_text(safe_text(f"  → {one_line(change['by']['text'], 200)}", "dim"))
        if change["why"]:
            fact.append_text(safe_text(f"  ({one_line(change['why'], 200)})", "dim"))
        label = safe_text(f"{sign} {kind}", style)
        run = safe_text(change["run"] or change["agent"] or "", "dim")
        rows.append((format_time(change["at"]), label, short_id(change["id"]), fact, run))
    if not counts:
        return safe_text("No facts changed.", "dim")
    table = views.table_view(("when", "", "id", "fact", ""), rows, wide=["fact"])
    return Group(table, safe_text(format_value(counts), "dim"))


def consolidations_view(document: Document) -> RenderableType:
    """Render the consolidations, newest first."""
    numbers = ("read", "facts", "proposed", "superseded")
    rows = (
        (
            format_time(run["at"]),
            run["run"] or "-",
            *(run.get(name, "-") for name in numbers),
            format_value(run.get("rejected", {})),
            f"undone {format_time(run['reverted'])}: {run['why']}" if run["reverted"] else "",
        )
        for run in document["runs"]
    )
    return views.table_view(
        ("when", "run", *numbers, "rejected", ""),
        rows,
        right=numbers,
        wide=["rejected"],
        nothing="No consolidation yet.",
    )


def timeline_view(timeline: FactTimeline) -> RenderableType:
    """Render each relation's values over time, with the end of superseded ones."""
    parts: list[RenderableType] = [safe_text(timeline.subject, "bold")]
    for relation in timeline.relations:
        parts += ["", safe_text(relation.name, "cyan")]
        for fact in relation.facts:
            start = format_time(fact.since)[:10]
            still = "now" if fact.state == "active" else "?"
            end = format_time(fact.until)[:10] if fact.until else f"{still:<10}"
            drawn = f"{span(fact.start, fact.end, _SPAN)}  " if views.draws() else ""
            mark = "  " if fact.state == "active" else "× "
            words = f"{mark}{one_line(fact.text, 200)}  {short_id(fact.id)}"
            line = f"  {start} – {end}  {drawn}{words}"
            parts.append(safe_text(line, "" if fact.state == "active" else "dim"))
    return Group(*parts)


# -- `memtier diff` and `memtier revert`: compare two times, and undo a run


@click.command(cls=CliCommand, example="2d 1d")
@click.argument("since")
@click.argument("until", required=False)
@written_option
@click.pass_obj
def diff(scope: Scope, since: str, until: str | None, written: bool) -> None:
    """Show what changed between two times (2d, 2026-03-14)."""
    start, end = parse_span(since, until)
    with scope.open() as memory:
        difference = memory.history.diff(start, end, written=written)
    scope.show(difference.to_json(), difference_view)


@click.command(cls=CliCommand, example="--run rules-1-8a72b8b7 --dry-run")
@click.option("--run", required=True, metavar="ID", help="The run to undo, of either kind.")
@click.option("--undo", is_flag=True, help="Redo it instead.")
@click.option("--dry-run", is_flag=True, help="Show what would be undone, without undoing it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
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
    """Render new entries, changed facts and changed weights between two times."""
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
    return Group(*(parts or [safe_text("No changes.", "dim")]))


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
    return Group(*parts, safe_text(f"{document['run']}: {_describe_effect(document)}", "dim"))


def _describe_effect(document: Document) -> str:
    """Describe the effect of undoing or redoing a consolidation."""
    if document["undo"]:
        count = len(document["restored"])
        verb = "restored" if document["undone"] else "would be restored"
        return f"{count} facts {verb}" if count else "nothing left to redo"
    entries = document["entries"]
    verb = "undone" if document["reverted"] else "would be undone"
    tail = f", {entries} entries no longer marked as promoted" if entries else ""
    return f"{len(document['facts'])} facts {verb}{tail}"


def _recording_view(document: Document) -> RenderableType:
    done = document["reverted"] or document["undone"]
    names = ("entries", "facts", "credited", "restored")
    counts = {name: len(document[name]) for name in names if document[name]}
    verb = "restored" if document["undo"] else "taken back"
    head = f"{document['run']} of {document['agent']} {'is' if done else 'would be'} {verb}"
    return safe_text(
        f"{head}: {format_value(counts)}" if counts else f"{document['run']}: nothing left to do"
    )
