"""`memtier facts`: list, search, show and review the project's facts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.console import Group as Lines
from rich.console import RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.completion import complete_facts
from memtier_plugin.cli.review import review, source_lines
from memtier_plugin.cli.scope import CliGroup, Scope, limit_option
from memtier_plugin.cli.times import parse_span, written_option
from memtier_plugin.cli.views import (
    Document,
    format_time,
    format_value,
    name_value_table,
    one_line,
    safe_text,
    short_id,
)
from memtier_plugin.core.records import Fact
from memtier_plugin.core.times import to_iso
from memtier_plugin.facts.views import FactView
from memtier_plugin.views.sparklines import span
from memtier_plugin.views.timelines import Timeline, fact_timeline, state_of

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


@click.group(cls=CliGroup)
def facts() -> None:
    """List, search and review the project's facts."""


@facts.command("list")
@click.option("--all", "everything", is_flag=True, help="Include inactive facts and summaries.")
@click.option("--proposed", is_flag=True, help="Only facts that await review.")
@click.option("--subject", metavar="NAME", help="Only about this one.")
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
    shown = [view for view in views if subject is None or _is_about(view, subject)]
    ordered = sorted(shown, key=lambda view: view.fact.id, reverse=True)
    scope.show({"facts": [view.to_json() for view in ordered]}, fact_list_view)


def _is_about(view: FactView, subject: str) -> bool:
    return view.fact.subject.casefold() == subject.strip().casefold()


@facts.command("search")
@click.argument("query")
@limit_option(10, "How many facts to show.")
@click.pass_obj
def facts_search(scope: Scope, query: str, limit: int) -> None:
    """Find the facts that QUERY asks for, best first."""
    with scope.open() as memory:
        recall = memory.knowledge.person.search(query, limit)
    hits = [{**_fact_json(hit.item), "score": round(hit.score, 4)} for hit in recall.hits]
    scope.show({"query": query, "label": recall.label, "facts": hits}, fact_list_view)


def _fact_json(item: object) -> dict[str, Any]:
    assert isinstance(item, Fact)
    return FactView(item, "active").to_json()


@facts.command("show")
@click.argument("fact_id", shell_complete=complete_facts)
@click.pass_obj
def facts_show(scope: Scope, fact_id: str) -> None:
    """Show one fact and the lines it rests on."""
    with scope.open() as memory:
        person = memory.knowledge.person
        view = person.fact(person.full_id(fact_id))
    scope.show(view.to_document(), fact_view)


facts.add_command(review)  # an alias of `memtier review`


# -- what happened ---------------------------------------------------------------------------


@facts.command("diff")
@click.argument("since")
@click.argument("until", required=False)
@written_option
@click.pass_obj
def facts_diff(scope: Scope, since: str, until: str | None, written: bool) -> None:
    """Show what happened to the facts between two moments (2d, 2026-03-14)."""
    start, end = parse_span(since, until)
    with scope.open() as memory:
        changes = memory.knowledge.person.diff(start, end, written=written)
    document = {
        "since": to_iso(start),
        "until": to_iso(end),
        "changes": [change.to_json() for change in changes],
    }
    scope.show(document, fact_diff_view)


@facts.command("runs")
@limit_option(20, "How many, the newest.")
@click.pass_obj
def facts_runs(scope: Scope, limit: int) -> None:
    """List the consolidations, with their figures."""
    with scope.open() as memory:
        runs = memory.knowledge.person.runs(limit)
    scope.show({"runs": [run.to_json() for run in reversed(runs)]}, consolidations_view)


@facts.command("timeline")
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
    """Render facts, each with its source agents and state."""
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
    return Lines(name_value_table([state, *rows]), "", heading, *source_lines(document["sources"]))


def _describe_owner(fact: Document) -> str:
    """Return whose a fact is: a person's, or the project's, and who said it."""
    who = fact["person"] or "the user"
    if fact["personal"]:
        return f"{who}, told to nobody else"
    return "the project" if fact["person"] is None else f"the project; {who} said it"


def _describe_review(review: Document) -> str:
    why = f": {review['why']}" if review["why"] else ""
    return f"{format_time(review['at'])} by {review['agent']}{why}"


def fact_diff_view(document: Document) -> RenderableType:
    """Render changes of facts, oldest first, with counts."""
    rows: list[tuple[object, ...]] = []
    counts: dict[str, int] = {}
    for change in document["changes"]:
        what = change["what"]
        counts[what] = counts.get(what, 0) + 1
        sign, style = CHANGE_SIGNS[what]
        fact = safe_text(one_line(change["fact"]["text"], 300) if change["fact"] else "-")
        if change["by"]:
            fact.append_text(safe_text(f"  → {one_line(change['by']['text'], 200)}", "dim"))
        if change["why"]:
            fact.append_text(safe_text(f"  ({one_line(change['why'], 200)})", "dim"))
        label = safe_text(f"{sign} {what}", style)
        run = safe_text(change["run"] or change["agent"] or "", "dim")
        rows.append((format_time(change["at"]), label, short_id(change["id"]), fact, run))
    if not counts:
        return safe_text("No facts changed.", "dim")
    table = views.table_view(("when", "", "id", "fact", ""), rows, wide=["fact"])
    return Lines(table, safe_text(format_value(counts), "dim"))


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


def timeline_view(timeline: Timeline) -> RenderableType:
    """Render each relation's values over time; superseded ones with their end."""
    parts: list[RenderableType] = [safe_text(timeline.subject, "bold")]
    for relation in timeline.relations:
        parts += ["", safe_text(relation.name, "cyan")]
        for held in relation.facts:
            start = format_time(held.since)[:10]
            still = "now" if held.state == "active" else "?"
            end = format_time(held.until)[:10] if held.until else f"{still:<10}"
            drawn = f"{span(held.start, held.end, _SPAN)}  " if views.draws() else ""
            mark = "  " if held.state == "active" else "× "
            words = f"{mark}{one_line(held.text, 200)}  {short_id(held.id)}"
            line = f"  {start} – {end}  {drawn}{words}"
            parts.append(safe_text(line, "" if held.state == "active" else "dim"))
    return Lines(*parts)
