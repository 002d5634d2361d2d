"""`memtier log`, `record`, `remember` and `private`: show and write entries."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import chain
from typing import IO, Any, Final

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliCommand, Scope, complete_sessions
from memtier_plugin.cli.views import (
    LEVEL_COLOURS,
    LEVEL_MARKS,
    Document,
    parse_optional_time,
    print_paged,
    safe_text,
    short_id,
    written_option,
)
from memtier_plugin.core.errors import ImportFileError, MessageError, NotFound
from memtier_plugin.core.formats import to_iso
from memtier_plugin.ingest.messages import parse_messages, unknown_keys
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.views.history import sparkline
from memtier_plugin.views.journal import LogLine, add_headings, summarise
from memtier_plugin.views.reading import find_newest_day, follow_log, read_log_lines

_SHOWN_IDS: Final = 3  # of recorded messages

# -- `memtier log`: show entries, interleaved with journal events


@click.command(cls=CliCommand, example="--date 2026-03-14")
@click.option("--date", metavar="DAY", help="A day such as 2026-03-14, or all [the newest].")
@written_option
@click.option(
    "--session",
    metavar="ID",
    shell_complete=complete_sessions,
    help="Only this session, on all days.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Print new lines as they are written; with --json, one per line.",
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
        if session and not lines and not follow:
            _refuse_unknown(memory, session)
        if scope.as_json and not follow:
            scope.show({"lines": lines})
            return
        if follow:
            last = max((line["id"] for line in lines), default=None)
            _follow(scope, chain(lines, follow_log(memory, last, **chosen)), written=written)
            return
    shown = map(log_view, add_headings(iter(lines), written=written))
    end = [summary_view(lines)] if lines and views.draws() else []
    print_paged(chain(shown, end), paged=not scope.no_pager)
    if not lines:
        when = f"on {day}" if day else "yet"
        click.echo(f"Nothing was recorded {when} in {scope.project_name}.", err=True)


def _refuse_unknown(memory: MemTier, session: str) -> None:
    """Reject an unknown session, suggesting similar ones."""
    with memory.store.session() as reader:
        known = dict.fromkeys(span.session for span in reader.session_spans())
    near = get_close_matches(session, known, n=3) or [*known][:3]
    hint = f"; did you mean {', '.join(near)}?" if near else ";"
    raise NotFound(
        f"there is no session {session!r} in {memory.project}{hint} `memtier sessions` lists them"
    )


def _follow(scope: Scope, stream: Iterator[LogLine], *, written: bool) -> None:
    """Print lines as they arrive, until interrupted."""
    console = views.make_console()
    try:
        for line in stream if scope.as_json else add_headings(stream, written=written):
            if scope.as_json:
                click.echo(json.dumps(line))
            else:
                console.print(log_view(line))
    except KeyboardInterrupt:
        return  # how --follow ends


def _day(text: str | None) -> str | None:
    if text in (None, "all"):
        return text
    moment = parse_optional_time(text)
    return to_iso(moment)[:10] if moment else None


def summary_view(lines: Sequence[LogLine]) -> RenderableType:
    """Render statistics of the shown log, with its distribution over the day."""
    summary = summarise(lines)
    counts = {
        "entries": summary.entries,
        "recalls": summary.recalls,
        "of them silent": summary.silent,
        "credits": summary.credits,
    }
    figures = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    drawn = f"  00 {sparkline(summary.hours, 0)} 24" if summary.entries else ""
    return Group("", safe_text(f"{figures}{drawn}", "dim"))


def log_view(line: Document) -> RenderableType:
    """Render one line of the log: an entry, a heading or an event."""
    kind = line["kind"]
    if kind == "heading":
        return Group("", safe_text(line["text"], "bold"))
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
    speaker = entry["speaker"] or entry["sender"] or tool.get("name") or entry["role"]
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
        safe_text(speaker, "cyan" if entry["role"] == "user" else "blue"),
        safe_text(short_id(entry["id"]), "dim"),
        content,
        marks,
    )


# -- `memtier record`, `remember` and `private`: write messages or a fact, keep a session private


@click.command(cls=CliCommand, example="messages.jsonl --session session-17")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--session", required=True, metavar="ID", help="The session of the messages.")
@click.option(
    "--run", metavar="ID", help="The run's id; recording it again adds only new messages."
)
@click.pass_obj
def record(scope: Scope, file: IO[str], session: str, run: str | None) -> None:
    """Record messages (JSON or JSON Lines; - for stdin)."""
    placed = _read_messages(file)
    _check_messages(placed)
    messages = [message for _, message in placed]
    with scope.open(create=True) as memory:
        entries = memory.record(messages, session_id=session, run_id=run)
    report = {"recorded": len(entries), "given": len(messages), "ids": [e.id for e in entries]}
    ignored = unknown_keys(messages)
    report |= {"ignored_keys": [*ignored]} if ignored else {}
    scope.show(report, recorded_view)


def recorded_view(document: views.Document) -> RenderableType:
    """Render how many messages were recorded, under which ids, and what was not."""
    new, given = document["recorded"], document["given"]
    text = f"{views.count_words({'messages': new}, empty=True)} recorded"
    ids = [views.short_id(each) for each in document["ids"]]
    text += f": {', '.join(ids[:_SHOWN_IDS])}" + ", ..." * (len(ids) > _SHOWN_IDS) if ids else ""
    text += f"; {given - new} were there already" if new < given else ""
    if ignored := document.get("ignored_keys"):
        text += f"; these keys mean nothing here: {', '.join(ignored)}"
    return views.safe_text(f"{text}.")


def _check_messages(placed: list[tuple[str, Any]]) -> None:
    """Reject messages that would be silently dropped, naming the line.

    Raises:
        MessageError: it is not a message, or has neither content nor tool calls.
    """
    for where, message in placed:
        try:
            parsed = parse_messages([message])
        except MessageError as error:
            raise MessageError(f"{where}: {str(error).removeprefix('message 0: ')}") from None
        if not any(
            message_read.content.strip() or message_read.tool_calls for message_read in parsed
        ):
            raise MessageError(f"{where}: a message without content; nothing was recorded")


def _read_messages(file: IO[str]) -> list[tuple[str, Any]]:
    """Read a list of messages, an object with `messages`, or one message per line.

    Each is paired with its position.
    """
    try:
        content = file.read()
    except UnicodeDecodeError as error:
        raise ImportFileError(f"{file.name}: expected UTF-8 text: {error}") from None
    try:
        document = json.loads(content)
    except RecursionError:
        raise ImportFileError(f"{file.name}: JSON nested too deeply") from None
    except ValueError:
        return [*_read_lines(file.name, content)]
    if isinstance(document, dict):
        document = document.get("messages", [document])
    if not isinstance(document, list):
        raise ImportFileError(f"{file.name}: expected a list of messages, found {document!r:.60}")
    return [(f"{file.name}: message {n}", message) for n, message in enumerate(document, 1)]


def _read_lines(name: str, content: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(content.split("\n"), 1):
        try:
            if line.strip():
                yield f"{name}:{number}", json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ImportFileError(f"{name}:{number}: not JSON: {error}") from None


@click.command(cls=CliCommand, example='"The staging host is called heron."')
@click.argument("text")
@click.pass_obj
def remember(scope: Scope, text: str) -> None:
    """Store a fact for all agents of the project."""
    with scope.open(create=True) as memory:
        fact = memory.remember(text)
    text = f"Remembered for all agents of {scope.project_name}: {fact.text} "
    document = {"fact": fact.id, "text": fact.text}
    scope.show(document, views.sentence_view(f"{text}[{views.short_id(fact.id)}]"))


@click.command(cls=CliCommand, example="session-17")
@click.argument("session", shell_complete=complete_sessions)
@click.pass_obj
def private(scope: Scope, session: str) -> None:
    """Keep a session private to its agent, for good."""
    with scope.open() as memory:
        entries = memory.make_private(session)
    document = {"session": session, "agent": memory.agent_id, "private": len(entries)}
    lines = views.count_words({"entries": len(entries)}, empty=True)
    text = f"Session {session} ({lines}) is private to {memory.agent_id} from now on."
    scope.show(document, views.sentence_view(text))
