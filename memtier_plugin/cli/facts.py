"""`memtier facts`: what the project knows, where it comes from, and what a person decides on it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import Group, Scope
from memtier_plugin.cli.views import Document, one_line, pairs, said, short, stamp, text
from memtier_plugin.core.records import Fact
from memtier_plugin.core.times import from_iso, to_iso
from memtier_plugin.facts.views import Known

_AGO: Final = re.compile(r"(\d+)\s*(m|min|h|d|w)", re.IGNORECASE)
_UNITS: Final = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AROUND: Final = 160  # characters of a source line shown on either side of the quote
SIGNS: Final = {
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


@click.group(cls=Group)
def facts() -> None:
    """What the project knows, and what becomes of it."""


@facts.command("list")
@click.option("--all", "everything", is_flag=True, help="Also what does not hold; summaries too.")
@click.option("--proposed", is_flag=True, help="Only what waits for review.")
@click.option("--subject", metavar="NAME", help="Only about this one.")
@click.pass_obj
def facts_list(scope: Scope, everything: bool, proposed: bool, subject: str | None) -> None:
    """List the facts, newest first."""
    with scope.open() as memory:
        person = memory.knowledge.person
        known = (
            person.proposals()
            if proposed
            else person.facts(include_superseded=everything, subject=subject, shelves=everything)
        )
    shown = [one for one in known if subject is None or _about(one, subject)]
    ordered = sorted(shown, key=lambda one: one.fact.id, reverse=True)
    scope.show({"facts": [one.to_json() for one in ordered]}, list_view)


def _about(one: Known, subject: str) -> bool:
    return one.fact.subject.casefold() == subject.strip().casefold()


@facts.command("search")
@click.argument("query")
@click.option("--limit", default=10, show_default=True, help="How many facts to show.")
@click.pass_obj
def facts_search(scope: Scope, query: str, limit: int) -> None:
    """Find the facts that QUERY asks for, best first."""
    with scope.open() as memory:
        found = memory.knowledge.person.search(query, limit)
    hits = [{**_fact_json(hit.item), "score": round(hit.score, 4)} for hit in found.hits]
    scope.show({"query": query, "label": found.label, "facts": hits}, list_view)


def _fact_json(item: object) -> dict[str, Any]:
    assert isinstance(item, Fact)
    return Known(item, "active").to_json()


@facts.command("show")
@click.argument("fact_id")
@click.pass_obj
def facts_show(scope: Scope, fact_id: str) -> None:
    """Show one fact and the lines it rests on."""
    with scope.open() as memory:
        person = memory.knowledge.person
        found = person.fact(person.full_id(fact_id))
    scope.show(found.to_document(), show_view)


# -- review ----------------------------------------------------------------------------------


@facts.command("review")
@click.option("--accept", "accepted", multiple=True, metavar="ID", help="Let this fact hold.")
@click.option("--reject", "rejected", multiple=True, metavar="ID", help="Let it not.")
@click.option("--why", default="", metavar="TEXT", help="Why, for those rejected.")
@click.pass_obj
def facts_review(
    scope: Scope, accepted: tuple[str, ...], rejected: tuple[str, ...], why: str
) -> None:
    """Decide on the facts that wait: one by one on a terminal."""
    with scope.open() as memory:
        person = memory.knowledge.person
        yes = [person.full_id(item) for item in accepted]
        no = [person.full_id(item) for item in rejected]
        waiting = [] if yes or no else [person.fact(k.fact.id) for k in person.proposals()]
        if waiting and not scope.as_json and sys.stdin.isatty():
            yes, no = _asked(waiting)
            waiting = [one for one in waiting if one.fact.id not in {*yes, *no}]
        decided = [*person.accept(yes), *person.reject(no, why)]
        held = {run.run: run.why for run in person.runs() if run.why and run.reverted}
    document = {
        "decided": [asdict(one) for one in decided],
        "waiting": [one.to_document() for one in waiting],
        "held_back": {run: why for run, why in held.items() if run and _holds(waiting, run)},
    }
    scope.show(document, review_view)


def _holds(waiting: Iterable[Known], run: str) -> bool:
    return any(one.fact.run == run and one.state == "held back" for one in waiting)


def _asked(waiting: Sequence[Known]) -> tuple[list[str], list[str]]:
    """Ask a person about each fact in turn; return those accepted and those rejected."""
    yes: list[str] = []
    no: list[str] = []
    out = views.console(stderr=True)
    for number, one in enumerate(waiting, 1):
        out.print(text(f"\n{number} of {len(waiting)}", "bold"))
        out.print(waiting_view(one.to_document()))
        answer = click.prompt(
            "Let it hold? yes, no, skip or quit",
            type=click.Choice(["y", "n", "s", "q"], case_sensitive=False),
            default="s",
            err=True,
        )
        if answer.lower() == "q":
            break
        if answer.lower() != "s":
            (yes if answer.lower() == "y" else no).append(one.fact.id)
    return yes, no


# -- what happened ---------------------------------------------------------------------------


@facts.command("diff")
@click.option("--since", required=True, metavar="WHEN", help="A time, or as long ago as 2d, 3h.")
@click.option("--until", metavar="WHEN", help="The end; now when left out.")
@click.pass_obj
def facts_diff(scope: Scope, since: str, until: str | None) -> None:
    """Show what happened to the facts since a moment."""
    now = datetime.now(UTC)
    start, end = moment(since, now), moment(until, now) if until else None
    with scope.open() as memory:
        changes = memory.knowledge.person.diff(start, end)
    document = {
        "since": to_iso(start),
        "until": to_iso(end) if end else None,
        "changes": [change.to_json() for change in changes],
    }
    scope.show(document, diff_view)


def moment(said: str, now: datetime) -> datetime:
    """Return the moment that a person means, also as long ago as "2d"."""
    if ago := _AGO.fullmatch(said.strip()):
        try:
            return now - timedelta(**{_UNITS[ago[2].lower()]: int(ago[1])})
        except OverflowError:
            raise click.BadParameter(f"{said!r} is longer ago than there are years") from None
    try:
        return from_iso(said)
    except ValueError:
        raise click.BadParameter(
            f"{said!r} is neither a time like 2026-03-14 or 2026-03-14T09:00, nor as long ago "
            "as 30m, 3h, 2d or 1w"
        ) from None


@facts.command("runs")
@click.option("--limit", default=20, show_default=True, help="How many, the newest.")
@click.pass_obj
def facts_runs(scope: Scope, limit: int) -> None:
    """List the consolidations, with their figures."""
    with scope.open() as memory:
        found = memory.knowledge.person.runs(limit)
    scope.show({"runs": [run.to_json() for run in reversed(found)]}, runs_view)


@facts.command("timeline")
@click.argument("subject")
@click.pass_obj
def facts_timeline(scope: Scope, subject: str) -> None:
    """Show how what is known of SUBJECT changed over time."""
    with scope.open() as memory:
        found = memory.knowledge.person.timeline(subject)
    scope.show({"subject": subject, "facts": [one.to_json() for one in found]}, timeline_view)


# -- views -----------------------------------------------------------------------------------


def list_view(document: Document) -> RenderableType:
    """Show facts, each with who is behind it and how it stands."""
    table = views.columns("date", "id", "fact", "from", "status", wide=["fact"])
    for fact in document["facts"]:
        origins = dict.fromkeys(source["agent"] for source in fact["sources"])
        table.add_row(
            stamp(fact["valid_from"] or fact["timestamp"])[:10],
            short(fact["id"]),
            text(one_line(fact["text"], 300)),
            text(", ".join(origins)),
            text(fact["state"], _STATES.get(fact["state"], "dim")),
        )
    if table.row_count:
        return table
    return text("No facts found." if "query" in document else "No facts yet.", "dim")


def show_view(document: Document) -> RenderableType:
    """Show one fact whole, what was decided on it, and the lines it rests on."""
    fact = document["fact"]
    names = ("id", "text", "subject", "relation", "value", "confidence", "origin", "extractor")
    more = [name for name in ("model", "run", "reason", "superseded_by") if fact[name]]
    private = [("private to", said(fact["private_to"]))] if fact["private_to"] else []
    rows = [(name, said(fact[name])) for name in (*names, *more)] + private
    rows += [(name, stamp(fact[name])) for name in ("valid_from", "valid_to")]
    rows += [(review["what"], _decided(review)) for review in document["reviews"]]
    state = ("state", text(fact["state"], _STATES.get(fact["state"], "dim")))
    heading = text("sources", "bold")
    return Lines(pairs([state, *rows]), "", heading, *_source_lines(document["sources"]))


def _decided(review: Document) -> str:
    why = f": {review['why']}" if review["why"] else ""
    return f"{stamp(review['at'])} by {review['agent']}{why}"


def _source_lines(sources: Iterable[Document]) -> Iterator[Text]:
    """Yield each line that a fact rests on: when, whose, where it stands, and its words."""
    for source in sources:
        entry = source["line_of"]
        place = f"{source['agent']}/{source['session']}"
        if entry is None:
            yield text(f"  {place}  {source['entry']}\n    (forgotten, or another agent's)", "dim")
            continue
        where = f"{source['file']}:{source['line']}"
        head = text(f"  {stamp(entry['observed_at'])}  {place}  {where}  {source['entry']}\n    ")
        who = entry["speaker"] or entry["role"]
        yield Text.assemble(
            head, text(f"{who}: ", "dim"), _marked(entry["content"], source["mark"])
        )


def _marked(content: str, mark: Sequence[int] | None) -> Text:
    """Return a line with the quote in it marked, cut to what is around it."""
    if mark is None:
        return text(one_line(content, 2 * _AROUND))
    start, end = mark
    before, after = content[max(0, start - _AROUND) : start], content[end : end + _AROUND]
    parts = [text("…" if start > _AROUND else ""), text(_flat(before))]
    parts += [text(f"⟦{_flat(content[start:end])}⟧", "bold"), text(_flat(after))]
    return Text.assemble(*parts, text("…" if len(content) > end + _AROUND else ""))


def _flat(part: str) -> str:
    return re.sub(r"\s+", " ", part)


def waiting_view(document: Document) -> RenderableType:
    """Show one fact that waits: what it says, why it waits, and the lines it rests on."""
    fact = document["fact"]
    head = Text.assemble(
        text(fact["text"], "bold"),
        text(f"  {short(fact['id'])}  {fact['state']}", "dim"),
    )
    why = fact["reason"] or next((r["why"] for r in reversed(document["reviews"])), "")
    reason = [text(f"  {why} (origin: {fact['origin']})", "yellow")] if why else []
    return Lines(head, *reason, *_source_lines(document["sources"]))


def review_view(document: Document) -> RenderableType:
    """Show what was decided, and what waits."""
    parts: list[RenderableType] = []
    for one in document["decided"]:
        gone = f", in the place of {', '.join(map(short, one['superseded']))}"
        parts.append(text(f"{short(one['id'])} {one['now']}{gone if one['superseded'] else ''}"))
    for run, why in document["held_back"].items():
        parts += [text(f"{run} was held back: {why}", "yellow")]
    for one in document["waiting"]:
        parts += ["", waiting_view(one)]
    if document["waiting"]:
        count = len(document["waiting"])
        parts += ["", text(f"{count} wait; --accept ID and --reject ID decide on them", "dim")]
    return Lines(*(parts or [text("Nothing waits for review.", "dim")]))


def diff_view(document: Document) -> RenderableType:
    """Show what happened to the facts, oldest first, and how often."""
    table = views.columns("when", "", "id", "fact", "", wide=["fact"])
    counts: dict[str, int] = {}
    for change in document["changes"]:
        what = change["what"]
        counts[what] = counts.get(what, 0) + 1
        sign, style = SIGNS[what]
        fact = text(one_line(change["fact"]["text"], 300) if change["fact"] else "-")
        if change["by"]:
            fact.append_text(text(f"  → {one_line(change['by']['text'], 200)}", "dim"))
        if change["why"]:
            fact.append_text(text(f"  ({one_line(change['why'], 200)})", "dim"))
        told = text(f"{sign} {what}", style)
        run = text(change["run"] or change["agent"] or "", "dim")
        table.add_row(stamp(change["at"]), told, short(change["id"]), fact, run)
    if not counts:
        return text("Nothing happened to the facts.", "dim")
    return Lines(table, text(said(counts), "dim"))


def runs_view(document: Document) -> RenderableType:
    """Show the consolidations, newest first."""
    numbers = ("read", "facts", "proposed", "superseded")
    table = views.columns("when", "run", *numbers, "rejected", "", right=numbers, wide=["rejected"])
    for run in document["runs"]:
        undone = f"undone {stamp(run['reverted'])}: {run['why']}" if run["reverted"] else ""
        figures = [text(run.get(name, "-")) for name in numbers]
        rejected = text(said(run.get("rejected", {})))
        table.add_row(stamp(run["at"]), text(run["run"] or "-"), *figures, rejected, text(undone))
    return table if table.row_count else text("No consolidation yet.", "dim")


def timeline_view(document: Document) -> RenderableType:
    """Show each relation's values over time; what was superseded with its end."""
    parts: list[RenderableType] = [text(document["subject"], "bold")]
    relation = None
    for fact in document["facts"]:
        if fact["relation"] != relation:
            relation = fact["relation"]
            parts += ["", text(relation, "cyan")]
        start = stamp(fact["valid_from"] or fact["timestamp"])[:10]
        end = stamp(fact["valid_to"])[:10] if fact["valid_to"] else "now" + " " * 7
        held = "  " if fact["state"] == "active" else "× "
        line = f"  {start} – {end}  {held}{one_line(fact['text'], 200)}  {short(fact['id'])}"
        parts.append(text(line, "" if fact["state"] == "active" else "dim"))
    return Lines(*parts)
