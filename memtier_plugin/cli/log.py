"""`memtier log`: show entries, and between them the events of the journal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from heapq import merge
from itertools import chain
from typing import Any

import click
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memtier_plugin.cli import views
from memtier_plugin.cli.completion import complete_sessions
from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.cli.times import parse_optional_time, written_option
from memtier_plugin.cli.views import (
    LEVEL_COLOURS,
    LEVEL_MARKS,
    Document,
    one_line,
    safe_text,
    short_id,
)
from memtier_plugin.core.events import (
    ChatEvent,
    ConsolidateEvent,
    CreditEvent,
    EmbedEvent,
    RecallEvent,
    payload_of,
)
from memtier_plugin.core.records import Entry, JournalEvent
from memtier_plugin.core.times import to_iso
from memtier_plugin.facts.views import read_entries_said
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.pricing import format_cost
from memtier_plugin.retrieval.block import SHORT_ID_CHARS

LogLine = dict[str, Any]


@click.command(cls=CliCommand)
@click.option("--date", metavar="DAY", help="A day as 2026-03-14, or all [the newest].")
@written_option
@click.option(
    "--session",
    metavar="ID",
    shell_complete=complete_sessions,
    help="Only this session, of all days.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Follow new lines as they are written; with --json, one per line.",
)
@click.pass_obj
def log(scope: Scope, date: str | None, written: bool, session: str | None, follow: bool) -> None:
    """Read the daily log: who said what, and what happened to it."""
    with scope.open() as memory:
        newest = None if session else find_newest_day(memory, scope.agent, written=written)
        day = _day(date) or newest
        chosen = {"agent": scope.agent, "session": session}
        only = None if day == "all" else day
        lines = list(read_log_lines(memory, date=only, written=written, **chosen))
        if scope.as_json and not follow:
            scope.show({"lines": lines})
            return
        last = max((line["id"] for line in lines), default=None)
        stream: Iterable[dict[str, Any]] = lines
        if follow:
            stream = chain(lines, follow_log(memory, last, **chosen))
        console = views.make_console()
        try:
            for line in stream if scope.as_json else add_headings(iter(stream), written=written):
                if scope.as_json:
                    click.echo(json.dumps(line))
                else:
                    console.print(log_view(line))
        except KeyboardInterrupt:
            return  # the way to end --follow


def _day(text: str | None) -> str | None:
    if text in (None, "all"):
        return text
    moment = parse_optional_time(text)
    return to_iso(moment)[:10] if moment else None


def find_newest_day(memory: MemTier, agent: str | None, *, written: bool = False) -> str | None:
    """Return the newest day on which the agent, or any, said something, or it was written."""
    if written:
        segments = memory.store.log.segments("episodic", agent)
        return max((segment.day for segment in segments), default=None)
    memory.store.catch_up_all()
    with memory.store.session() as reader:
        times = [
            float(when)
            for name, what, when in reader.last_activity()
            if what == "stored" and agent in (None, name)
        ]
    return to_iso(datetime.fromtimestamp(max(times), UTC))[:10] if times else None


def read_log_lines(
    memory: MemTier,
    *,
    agent: str | None = None,
    date: str | None = None,
    session: str | None = None,
    after_id: str | None = None,
    written: bool = False,
) -> Iterator[LogLine]:
    """Yield entries and journal events, oldest first.

    A line has a ``kind`` ("entry", or the event's kind) and the fields of its record; the lines of
    events also have a ``text`` that describes them.

    Args:
        written: go by when an entry was written, not by when it was said.
    """
    entries = [
        {"kind": "entry", **entry.to_json()}
        for entry in _read_entries(memory, agent, date, session, after_id, written=written)
    ]
    runs = {entry["run_id"] for entry in entries} if session else None
    happened = (
        event
        for event in _read_events(memory, agent, date)
        if (after_id is None or event["id"] > after_id)
        and (runs is None or event["run_id"] in runs)
    )
    order = _by_id if written else _by_time_said
    return merge(sorted(entries, key=order), sorted(happened, key=order), key=order)


def _read_entries(
    memory: MemTier,
    agent: str | None,
    date: str | None,
    session: str | None,
    after_id: str | None,
    *,
    written: bool,
) -> Iterable[Entry]:
    """Return entries with their current values: of a day, by the index if it is the day said."""
    if written or date is None or after_id is not None:
        return memory.entries(agent=agent, date=date, session=session, after_id=after_id)
    memory.store.catch_up_all()
    with memory.store.session() as reader:
        return read_entries_said(reader, date, agent=agent, session=session)


def add_headings(lines: Iterator[LogLine], *, written: bool = False) -> Iterator[LogLine]:
    """Insert a heading wherever the day, session or agent changes."""
    last = ""
    time_of_entry = "timestamp" if written else "observed_at"
    for line in lines:
        heading = day = line[time_of_entry if line["kind"] == "entry" else "timestamp"][:10]
        if line["kind"] == "entry":
            heading = f"{day}  session {line['session_id']}  agent {line['agent_id']}"
        if heading != last and (line["kind"] == "entry" or not last.startswith(day)):
            yield {"kind": "heading", "text": heading}
            last = heading
        yield line


def follow_log(memory: MemTier, last: str | None, **chosen: str | None) -> Iterator[LogLine]:
    """Yield new lines as they are written, without end."""
    looked = _today()
    while True:
        for day in sorted({looked, looked := _today()}):  # both days just after midnight
            new = read_log_lines(memory, date=day, after_id=last, written=True, **chosen)
            for line in new:
                last = line["id"]
                yield line
        time.sleep(0.5)


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def _by_time_said(line: Mapping[str, Any]) -> tuple[str, str]:
    moment = line["observed_at"] if line["kind"] == "entry" else line["timestamp"]
    return str(moment), str(line["id"])


def _by_id(line: Mapping[str, Any]) -> str:
    return str(line["id"])


def _read_events(memory: MemTier, agent: str | None, date: str | None) -> Iterator[LogLine]:
    for event in memory.store.log.events(day=date):
        if agent in (None, event.agent_id):
            yield {**event.to_json(), "text": _describe_event(event)}


def _describe_event(event: JournalEvent) -> str:
    try:
        payload = payload_of(event)
    except (KeyError, ValueError):
        payload = None  # a damaged event is listed by its kind
    match payload:
        case RecallEvent():
            name = "recall" if payload.purpose == "inject" else "search"
            query, lines = one_line(payload.query, 60), len(payload.injected)
            outcome = f"{payload.label}, {payload.ms:.0f} ms"
            return f"{name} {short_id(event.id)} for “{query}”: {lines} lines ({outcome})"
        case CreditEvent():
            verb = "credited" if payload.delta > 0 else "blamed"
            return f"{short_id(payload.item)} {verb} {payload.delta:+.3f} by {event.run_id}"
        case ConsolidateEvent():
            return f"consolidation read {payload.read} entries"
        case EmbedEvent():
            return _describe_embedding(payload)
        case ChatEvent():
            return _describe_chat(payload)
    items = ", ".join(short_id(item) for item in event.data.get("items", ()))
    return f"{event.kind} {items}".rstrip()


def _describe_chat(event: ChatEvent) -> str:
    by = f"{event.purpose} by {event.model}"
    if event.reserves is not None:
        return f"{by}: asked, for up to {format_cost(event.reserves)}"
    tokens = f"{event.tokens or 0} tokens read, {event.output_tokens or 0} written"
    return f"{by}: {tokens}, for {format_cost(event.cost or 0.0)}"


def _describe_embedding(event: EmbedEvent) -> str:
    by = f"embedding by {event.model}"
    if event.approved is not None:
        return f"{by}: up to {format_cost(event.approved)} allowed"
    if event.reserves is not None:
        return f"{by}: up to {format_cost(event.reserves)} for the next requests"
    return f"{by}: {event.embedded or 0} items for {format_cost(event.cost or 0.0)}"


def log_view(line: Document) -> RenderableType:
    """Render one line of the log: an entry, a heading or an event."""
    kind = line["kind"]
    if kind == "heading":
        return Lines("", safe_text(line["text"], "bold"))
    grid = Table.grid(padding=(0, 1), expand=sys.stdout.isatty())
    for width in (5, 14, SHORT_ID_CHARS):
        grid.add_column(width=width, no_wrap=True, overflow="ellipsis")
    grid.add_column(ratio=1, overflow="fold")
    grid.add_column(width=7, justify="right", no_wrap=True)
    if kind == "entry":
        grid.add_row(*_entry_cells(line))
    else:
        happened = safe_text(line["text"], "dim italic")
        when = safe_text(line["timestamp"][11:16], "dim")
        grid.add_row(when, "", "", Text.assemble(("↳ ", "dim"), happened), "")
    return grid


def _entry_cells(entry: Document) -> Sequence[RenderableType]:
    tool = entry.get("tool") or {}
    who = entry["speaker"] or entry["sender"] or tool.get("name") or entry["role"]
    content = safe_text(entry["content"], "dim" if entry["role"] in ("tool", "system") else "")
    if tool.get("ok") is not None:
        level = "ok" if tool["ok"] else "error"
        content = Text.assemble((LEVEL_MARKS[level] + " ", LEVEL_COLOURS[level]), content)
    weight = entry["cognitive_weight"]
    marks = Text("★ " if entry["promoted"] else "", "yellow")
    if weight:
        marks.append(f"{weight:+.2f}", "green" if weight > 0 else "red")
    return (
        safe_text(entry["observed_at"][11:16], "dim"),
        safe_text(who, "cyan" if entry["role"] == "user" else "blue"),
        safe_text(short_id(entry["id"]), "dim"),
        content,
        marks,
    )
