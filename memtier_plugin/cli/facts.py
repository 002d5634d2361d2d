"""`memtier facts`: list, search, show and review the project's facts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliGroup, Scope
from memtier_plugin.cli.times import parse_time
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

_CONTEXT_CHARS: Final = 160  # characters of a source line shown on either side of the quote
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
    "withdrawn": ("x", "red"),
    "reinstated": (">", "green"),
}
_STATES: Final = {"active": "", "proposed": "yellow", "held back": "yellow"}


@click.group(cls=CliGroup)
def facts() -> None:
    """List, search and review the project's facts."""


@facts.command("list")
@click.option("--all", "everything", is_flag=True, help="Also what does not hold; summaries too.")
@click.option("--proposed", is_flag=True, help="Only what waits for review.")
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
@click.option("--limit", default=10, show_default=True, help="How many facts to show.")
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
@click.argument("fact_id")
@click.pass_obj
def facts_show(scope: Scope, fact_id: str) -> None:
    """Show one fact and the lines it rests on."""
    with scope.open() as memory:
        person = memory.knowledge.person
        view = person.fact(person.full_id(fact_id))
    scope.show(view.to_document(), fact_view)


# -- review ----------------------------------------------------------------------------------


@facts.command("review")
@click.option("--accept", "accepted", multiple=True, metavar="ID", help="Let this fact hold.")
@click.option("--reject", "rejected", multiple=True, metavar="ID", help="Let it not.")
@click.option("--why", default="", metavar="TEXT", help="Why, for those rejected.")
@click.pass_obj
def facts_review(
    scope: Scope, accepted: tuple[str, ...], rejected: tuple[str, ...], why: str
) -> None:
    """Decide on the facts that wait for review, one by one on a terminal."""
    with scope.open() as memory:
        person = memory.knowledge.person
        yes = [person.full_id(item) for item in accepted]
        no = [person.full_id(item) for item in rejected]
        waiting = [] if yes or no else [person.fact(k.fact.id) for k in person.proposals()]
        if waiting and not scope.as_json and sys.stdin.isatty():
            yes, no = _ask_each(waiting)
            waiting = [view for view in waiting if view.fact.id not in {*yes, *no}]
        decided = [*person.accept(yes), *person.reject(no, why)]
        held = {run.run: run.why for run in person.runs() if run.why and run.reverted}
    document = {
        "decided": [asdict(view) for view in decided],
        "waiting": [view.to_document() for view in waiting],
        "held_back": {run: why for run, why in held.items() if run and _is_held_back(waiting, run)},
    }
    scope.show(document, review_view)


def _is_held_back(waiting: Iterable[FactView], run: str) -> bool:
    return any(view.fact.run == run and view.state == "held back" for view in waiting)


def _ask_each(waiting: Sequence[FactView]) -> tuple[list[str], list[str]]:
    """Prompt for a decision on each fact; return the ids accepted and rejected."""
    yes: list[str] = []
    no: list[str] = []
    out = views.make_console(stderr=True)
    for number, view in enumerate(waiting, 1):
        out.print(safe_text(f"\n{number} of {len(waiting)}", "bold"))
        out.print(proposal_view(view.to_document()))
        answer = click.prompt(
            "Let it hold? yes, no, skip or quit",
            type=click.Choice(["y", "n", "s", "q"], case_sensitive=False),
            default="s",
            err=True,
        )
        if answer.lower() == "q":
            break
        if answer.lower() != "s":
            (yes if answer.lower() == "y" else no).append(view.fact.id)
    return yes, no


# -- what happened ---------------------------------------------------------------------------


@facts.command("diff")
@click.option("--since", required=True, metavar="WHEN", help="A time, or as long ago as 2d, 3h.")
@click.option("--until", metavar="WHEN", help="The end; now when left out.")
@click.pass_obj
def facts_diff(scope: Scope, since: str, until: str | None) -> None:
    """Show what happened to the facts since a moment."""
    now = datetime.now(UTC)
    start, end = parse_time(since, now), parse_time(until, now) if until else None
    with scope.open() as memory:
        changes = memory.knowledge.person.diff(start, end)
    document = {
        "since": to_iso(start),
        "until": to_iso(end) if end else None,
        "changes": [change.to_json() for change in changes],
    }
    scope.show(document, fact_diff_view)


@facts.command("runs")
@click.option("--limit", default=20, show_default=True, help="How many, the newest.")
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
    scope.show({"subject": subject, "facts": [view.to_json() for view in views]}, timeline_view)


# -- views -----------------------------------------------------------------------------------


def fact_list_view(document: Document) -> RenderableType:
    """Render facts, each with its source agents and state."""
    table = views.column_table("date", "id", "fact", "from", "status", wide=["fact"])
    for fact in document["facts"]:
        origins = dict.fromkeys(source["agent"] for source in fact["sources"])
        table.add_row(
            format_time(fact["valid_from"] or fact["timestamp"])[:10],
            short_id(fact["id"]),
            safe_text(one_line(fact["text"], 300)),
            safe_text(", ".join(origins)),
            safe_text(fact["state"], _STATES.get(fact["state"], "dim")),
        )
    if table.row_count:
        return table
    return safe_text("No facts found." if "query" in document else "No facts yet.", "dim")


def fact_view(document: Document) -> RenderableType:
    """Render one fact in full, with its reviews and source lines."""
    fact = document["fact"]
    names = ("id", "text", "subject", "relation", "value", "confidence", "origin", "extractor")
    more = [name for name in ("model", "run", "reason", "superseded_by") if fact[name]]
    private = [("private to", format_value(fact["private_to"]))] if fact["private_to"] else []
    rows = [(name, format_value(fact[name])) for name in (*names, *more)] + private
    rows += [(name, format_time(fact[name])) for name in ("valid_from", "valid_to")]
    rows += [(review["what"], _describe_review(review)) for review in document["reviews"]]
    state = ("state", safe_text(fact["state"], _STATES.get(fact["state"], "dim")))
    heading = safe_text("sources", "bold")
    return Lines(name_value_table([state, *rows]), "", heading, *_source_lines(document["sources"]))


def _describe_review(review: Document) -> str:
    why = f": {review['why']}" if review["why"] else ""
    return f"{format_time(review['at'])} by {review['agent']}{why}"


def _source_lines(sources: Iterable[Document]) -> Iterator[Text]:
    """Yield each source line of a fact: time, agent, location and text."""
    for source in sources:
        entry = source["line_of"]
        owner = f"{source['agent']}/{source['session']}"
        if entry is None:
            yield safe_text(
                f"  {owner}  {source['entry']}\n    (forgotten, or another agent's)", "dim"
            )
            continue
        where = f"{source['file']}:{source['line']}"
        head = safe_text(
            f"  {format_time(entry['observed_at'])}  {owner}  {where}  {source['entry']}\n    "
        )
        who = entry["speaker"] or entry["role"]
        yield Text.assemble(
            head, safe_text(f"{who}: ", "dim"), _mark_quote(entry["content"], source["mark"])
        )


def _mark_quote(content: str, mark: Sequence[int] | None) -> Text:
    """Return a line with its quote marked, truncated to the quote's context."""
    if mark is None:
        return safe_text(one_line(content, 2 * _CONTEXT_CHARS))
    start, end = mark
    before, after = (
        content[max(0, start - _CONTEXT_CHARS) : start],
        content[end : end + _CONTEXT_CHARS],
    )
    parts = [safe_text("…" if start > _CONTEXT_CHARS else ""), safe_text(_collapse_spaces(before))]
    parts += [
        safe_text(f"⟦{_collapse_spaces(content[start:end])}⟧", "bold"),
        safe_text(_collapse_spaces(after)),
    ]
    return Text.assemble(*parts, safe_text("…" if len(content) > end + _CONTEXT_CHARS else ""))


def _collapse_spaces(part: str) -> str:
    return re.sub(r"\s+", " ", part)


def proposal_view(document: Document) -> RenderableType:
    """Render one proposal: its text, why it waits, and its source lines."""
    fact = document["fact"]
    head = Text.assemble(
        safe_text(fact["text"], "bold"),
        safe_text(f"  {short_id(fact['id'])}  {fact['state']}", "dim"),
    )
    why = fact["reason"] or next((r["why"] for r in reversed(document["reviews"])), "")
    reason = [safe_text(f"  {why} (origin: {fact['origin']})", "yellow")] if why else []
    return Lines(head, *reason, *_source_lines(document["sources"]))


def review_view(document: Document) -> RenderableType:
    """Render the decisions made, and the proposals that remain."""
    parts: list[RenderableType] = []
    for item in document["decided"]:
        replaced = f", in the place of {', '.join(map(short_id, item['superseded']))}"
        parts.append(
            safe_text(
                f"{short_id(item['id'])} {item['now']}{replaced if item['superseded'] else ''}"
            )
        )
    for run, why in document["held_back"].items():
        parts += [safe_text(f"{run} was held back: {why}", "yellow")]
    for item in document["waiting"]:
        parts += ["", proposal_view(item)]
    if document["waiting"]:
        count = len(document["waiting"])
        parts += ["", safe_text(f"{count} wait; --accept ID and --reject ID decide on them", "dim")]
    return Lines(*(parts or [safe_text("Nothing waits for review.", "dim")]))


def fact_diff_view(document: Document) -> RenderableType:
    """Render changes of facts, oldest first, with counts."""
    table = views.column_table("when", "", "id", "fact", "", wide=["fact"])
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
        table.add_row(format_time(change["at"]), label, short_id(change["id"]), fact, run)
    if not counts:
        return safe_text("Nothing happened to the facts.", "dim")
    return Lines(table, safe_text(format_value(counts), "dim"))


def consolidations_view(document: Document) -> RenderableType:
    """Render the consolidations, newest first."""
    numbers = ("read", "facts", "proposed", "superseded")
    table = views.column_table(
        "when", "run", *numbers, "rejected", "", right=numbers, wide=["rejected"]
    )
    for run in document["runs"]:
        undone = f"undone {format_time(run['reverted'])}: {run['why']}" if run["reverted"] else ""
        figures = [safe_text(run.get(name, "-")) for name in numbers]
        rejected = safe_text(format_value(run.get("rejected", {})))
        table.add_row(
            format_time(run["at"]),
            safe_text(run["run"] or "-"),
            *figures,
            rejected,
            safe_text(undone),
        )
    return table if table.row_count else safe_text("No consolidation yet.", "dim")


def timeline_view(document: Document) -> RenderableType:
    """Render each relation's values over time; superseded ones with their end."""
    parts: list[RenderableType] = [safe_text(document["subject"], "bold")]
    relation = None
    for fact in document["facts"]:
        if fact["relation"] != relation:
            relation = fact["relation"]
            parts += ["", safe_text(relation, "cyan")]
        start = format_time(fact["valid_from"] or fact["timestamp"])[:10]
        end = format_time(fact["valid_to"])[:10] if fact["valid_to"] else "now" + " " * 7
        held = "  " if fact["state"] == "active" else "× "
        line = f"  {start} – {end}  {held}{one_line(fact['text'], 200)}  {short_id(fact['id'])}"
        parts.append(safe_text(line, "" if fact["state"] == "active" else "dim"))
    return Lines(*parts)
