"""`memtier` alone, which shows where one stands, and `memtier status`, which adds the details."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.cli.views import (
    LEVEL_COLOURS,
    LEVEL_MARKS,
    Document,
    count_words,
    describe_report,
    format_age,
    format_time,
    format_value,
    name_value_table,
    one_line,
    safe_text,
    table_view,
)
from memtier_plugin.core.errors import MemTierError, NotFound, SettingsError
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import INJECTING
from memtier_plugin.hosts.presence import describe_silent_hosts, find_connected, find_hosts
from memtier_plugin.hosts.project import DEFAULT_PROJECT
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import is_failing, list_calls
from memtier_plugin.providers.pricing import format_cost
from memtier_plugin.storage.protocol import describe_usage
from memtier_plugin.views.journal import newest_recall, why_silent

_PROBLEM_CHARS: Final = 60  # of a problem beside the other lines

Rows = Iterator[tuple[str, str]]

# -- `memtier` alone: at most ten lines, whatever is missing or broken


def show_overview(scope: Scope) -> None:
    """Show where one stands, and the next command."""
    now = datetime.now(UTC)
    scope.show(read_overview(scope, now), partial(overview_view, now=now))


def read_overview(scope: Scope, now: datetime) -> dict[str, Any]:
    """Return the overview as JSON; what cannot be read is among its problems."""
    document: dict[str, Any] = {
        "project": None,
        "home": None,
        "exists": False,
        "paused": False,
        "stored": {},
        "hosts": [],
        "last_run": None,
        "last_recall": None,
        "waiting": {},
        "problems": [],
    }
    try:
        document["home"] = str(scope.path)
        document["hosts"] = _list_hosts(scope)
        document["project"] = scope.project_name
        with scope.open() as memory:
            report = _read_status(memory, now)
            document |= {
                "exists": True,
                "paused": report["paused"],
                "stored": {name: report[name] for name in ("entries", "facts", "summaries")},
                "last_run": _last_run(report),
                "last_recall": _last_recall(memory),
                "waiting": _count_waiting(report),
                "problems": [*report["degraded"], *report["warnings"]],
            }
    except NotFound:
        pass  # the project does not exist yet
    except (MemTierError, OSError) as error:
        document["problems"].append(str(error))
        fix = "memtier config check" if isinstance(error, SettingsError) else "memtier doctor"
        return {**document, "next": fix}
    return {**document, "next": _next_command(document)}


def _list_hosts(scope: Scope) -> list[dict[str, Any]]:
    connected = find_connected(scope.path)
    names = dict.fromkeys([*connected, *(host.host for host in find_hosts(scope.path))])
    return [
        {
            "host": name,
            "connected": name in connected,
            "called": to_iso(called) if (called := connected.get(name)) else None,
        }
        for name in names
    ]


def _last_run(report: Mapping[str, Any]) -> dict[str, str] | None:
    """Return when the newest entry was written, and by which agent."""
    runs = [
        (seen["last_stored"], agent)
        for agent, seen in report["agents"].items()
        if "last_stored" in seen
    ]
    return {"at": max(runs)[0], "agent": max(runs)[1]} if runs else None


def _last_recall(memory: MemTier) -> dict[str, Any] | None:
    """Return the newest recall for a prompt, or else the newest of all."""
    try:
        with memory.store.session() as reader:
            newest = newest_recall(reader)
    except MemTierError:
        return None  # the status reports the index's problem
    if newest is None:
        return None
    event, recall = newest
    return {
        "at": to_iso(event.timestamp),
        "agent": event.agent_id,
        "id": event.id,
        "purpose": recall.purpose,
        "lines": len(recall.injected),
        "tokens": recall.tokens,
        "silent": why_silent(recall.to_json()),
    }


def _count_waiting(report: Mapping[str, Any]) -> dict[str, int]:
    return {
        **report["review"],
        "entries": max(report["consolidation"]["backlog"].values(), default=0),
        "runs": report["queue"]["waiting"] + report["queue"]["refused"],
    }


def _next_command(document: Mapping[str, Any]) -> str:
    """Return the command that helps most now."""
    waiting = document["waiting"]
    if not document["exists"]:
        return "memtier init"
    if document["problems"]:
        return "memtier status"
    if document["paused"]:
        return "memtier on"
    if any(waiting[kind] for kind in ("facts", "forgets", "conflicts")):
        return "memtier review"
    if not any(host["connected"] for host in document["hosts"]) and not document["last_run"]:
        return "memtier install"
    if document["last_run"]:
        return "memtier log"
    # A host is set up and no turn has ended yet: give this folder a memory of its own, or look.
    return "memtier init" if document["project"] == DEFAULT_PROJECT else "memtier doctor"


def overview_view(document: Document, now: datetime) -> RenderableType:
    """Render the overview; each row is meant for one line of a terminal."""
    project, exists = document["project"] or "unknown", document["exists"]
    location = f"{project}, in {document['home']}"
    missing = not exists and not document["problems"]
    rows = [("project", f"{location}: not set up yet" if missing else location)]
    if exists:
        rows.append(("stored", _describe_stored(document["stored"], document["paused"])))
    rows.append(("hosts", _describe_hosts(document["hosts"], now)))
    if run := document["last_run"]:
        rows.append(("last run", f"{format_age(run['at'], now)}, by {run['agent']}"))
    if recall := document["last_recall"]:
        rows.append(("last recall", _describe_recall(recall, now)))
    if any(document["waiting"].values()):
        rows.append(("waiting", describe_waiting(document["waiting"])))
    if problems := document["problems"]:
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        text = one_line(problems[0], _PROBLEM_CHARS if exists else 2 * _PROBLEM_CHARS)
        rows.append(("problem", f"{text}{more}"))
    rows += [("next", document["next"]), ("all commands", "memtier --help")]
    return name_value_table(rows)


def _describe_stored(stored: Mapping[str, int], paused: bool) -> str:
    counts = count_words({"entries": stored["entries"], "facts": stored["facts"]}, empty=True)
    return f"{counts}; switched off: nothing is recorded or recalled" if paused else counts


def _describe_hosts(hosts: list[dict[str, Any]], now: datetime) -> str:
    called = [
        f"{host['host']} (called {format_age(host['called'], now)})"
        for host in hosts
        if host["connected"]
    ]
    others = len(hosts) - len(called)
    more = f"; {others} more on this machine: `memtier install`" if others else ""
    return f"{', '.join(called) or 'none connected'}{more}"


def _describe_recall(recall: Mapping[str, Any], now: datetime) -> str:
    lines = f"{count_words({'lines': recall['lines']})}, {recall['tokens']} tokens"
    outcome = lines if recall["lines"] else f"silent: {recall['silent']}"
    what = "for a prompt" if recall["purpose"] in INJECTING else "by command"
    return f"{format_age(recall['at'], now)}, {what} of {recall['agent']}: {outcome}"


# -- `memtier status`: problems first, then what is stored, what runs and what waits


@click.command(cls=CliCommand, example="--project shop")
@click.pass_obj
def status(scope: Scope) -> None:
    """Show what is stored, the last hook calls, and any problems."""
    now = datetime.now(UTC)
    with scope.open() as memory:
        report = _read_status(memory, now)
    scope.show(report, partial(status_view, now=now))


def _read_status(memory: MemTier, now: datetime) -> dict[str, Any]:
    report = memory.status()
    report["degraded"] += describe_silent_hosts(memory.home, now)
    return report


def status_view(document: Document, now: datetime) -> RenderableType:
    """Render a project's status."""
    parts: list[RenderableType] = [*_problem_lines(document)]
    parts += [""] if parts else []
    rows = [
        ("project", f"{document['project']}, in {document['home']}"),
        ("stored", describe_stored(document)),
        *_shared_rows(document),
        *_waiting_rows(document, now),
        *_background_rows(document, now),
        *_model_rows(document),
        ("vectors", describe_embedding(document["embedding"])),
        *_plugin_rows(document),
        *_prompt_rows(document),
    ]
    return Group(*parts, name_value_table(rows), "", _hooks_table(document, now))


def _problem_lines(document: Document) -> Iterator[Text]:
    """Yield what does not work, then what needs attention."""
    if document["paused"]:
        line = "! The project is off: nothing is recorded or recalled until `memtier on`."
        yield safe_text(line, "yellow")
    for level, name in (("error", "degraded"), ("warn", "warnings")):
        for problem in document[name]:
            yield safe_text(f"{LEVEL_MARKS[level]} {problem}", LEVEL_COLOURS[level])


def describe_stored(document: Document) -> str:
    """Describe how much is stored: entries, facts, sessions, bytes."""
    index = document["index"]
    counts = {name: document[name] for name in ("entries", "facts", "summaries")}
    stored = count_words(counts, empty=True)
    if sessions := index.get("sessions"):
        stored += f" from {count_words({'sessions': sessions})}"
    forgotten = f"; {index['forgotten']} forgotten" if index.get("forgotten") else ""
    return f"{stored}{forgotten}; {describe_usage(document['disk'])}"


def _shared_rows(document: Document) -> Rows:
    """Yield the row on the server that machines share the project through."""
    if shared := document.get("shared"):
        synced = format_time(shared["synced"]) if shared["synced"] else "never"
        lines = f"{shared['waiting']:,} lines not delivered yet"
        yield "shared", f"{shared['project']} at {shared['server']}, synchronised {synced}; {lines}"


def _waiting_rows(document: Document, now: datetime) -> Rows:
    """Yield the rows on what waits for the person, a job or a host."""
    yield "waiting", describe_waiting(_count_waiting(document))
    if since := document["proposals"]["oldest"]:
        yield "oldest", f"a fact proposed {format_age(since, now)}"
    for run in document["held_back"]:
        yield "held back", f"{format_time(run['at'])} {run['run']}: {format_value(run['why'])}"


def describe_waiting(waiting: Mapping[str, int]) -> str:
    """Describe what waits, and for what."""
    review = {kind: waiting[kind] for kind in ("facts", "forgets", "conflicts")}
    parts = (
        (count_words(review), "for `memtier review`"),
        (count_words({"entries": waiting["entries"]}), "to become facts"),
        (count_words({"runs": waiting["runs"]}), "to be stored"),
    )
    return "; ".join(f"{counts} {what}" for counts, what in parts if counts) or "nothing"


def _background_rows(document: Document, now: datetime) -> Rows:
    """Yield the rows on the daemon and its jobs."""
    background, state = document["background"], document["consolidation"]
    by = "a daemon is running" if background["served"] else "no daemon; the next session starts one"
    due = f", next at {format_time(state['next'])}" if state.get("next") else ""
    due = ", due now" if state["due"] else due
    yield "consolidated", f"{format_age(state['last'], now)}{due}; {by}"
    if report := state.get("report"):
        yield "last report", describe_report(report)
    jobs = {name: job for name, job in background["jobs"].items() if name != "consolidation"}
    if jobs:
        ages = (f"{name} {format_age(job['ok'], now)}" for name, job in jobs.items())
        yield "other jobs", ", ".join(ages)


def _model_rows(document: Document) -> Rows:
    """Yield the rows on the model that extracts facts, and what it may spend today."""
    spending = document["spending"]
    if spending.get("model", "none") == "none" and not spending.get("asked"):
        return
    calls = f"{spending['calls']} of {spending['most_calls']} calls today"
    tokens = f"{spending['tokens']} of {spending['most_tokens']} tokens"
    cost = f"spent {format_cost(spending['cost'])} of {format_cost(spending['most_cost'])}"
    answers = f"{spending['asked']} to answer"
    yield "model", f"{spending['model']}: {calls}, {answers}, {tokens}, {cost}"
    if spending["waits"]:
        yield "model waits", format_value(spending["waits"])


def describe_embedding(state: Document) -> str:
    """Describe the embedding progress in one line."""
    if not state["model"]:
        return "none"
    done = f"{state['items'] - state['missing']} of {state['items']} items"
    cost = (
        f", spent {format_cost(state['spent'])} of {format_cost(state['allowed'])}"
        if state["paid"]
        else ""
    )
    more = f", the rest {format_cost(state['cost'])}" if state["paid"] and state["missing"] else ""
    return f"{done}, by {state['model']}{cost}{more}"


def _plugin_rows(document: Document) -> Rows:
    """Yield the rows of plugins (`memtier_status`)."""
    for name, value in document.items():
        if isinstance(value, Mapping) and "said" in value:
            yield name, value["said"]


def _prompt_rows(document: Document) -> Rows:
    """Yield the rows on the hosts' prompts and what was injected into them."""
    for host, count in document["prompts"].items():
        answered = count["prompts"] - count["unanswered"]
        yield "prompts", f"{host}: {answered} of {count['prompts']} answered"
    for agent, seen in document["agents"].items():
        if injected := seen.get("injected"):
            line = "{tokens_a_turn} tokens injected a turn, {repeats_avoided} repeats avoided"
            counts = f"{line.format(**injected)} in {injected['turns']} turns"
            counts += f", and {injected['late']} were late" * bool(injected.get("late"))
            if blocks := injected.get("blocks"):
                counts += f" ({', '.join(f'{n} {name}' for name, n in sorted(blocks.items()))})"
            yield "injected", f"{agent}: {counts}"


def _hooks_table(document: Document, now: datetime) -> Table | Text:
    """Render each hook's last call, its latency, and how many calls failed."""
    rows = []
    for agent, hook, mark in list_calls(document["hooks"], document["waits"]):
        calls = [mark.get(key) or "" for key in ("last_ok", "last_error", "last")]
        cells = [agent, hook, format_age(max(calls), now)]
        cells += [mark.get("last_ms", ""), mark.get("slowest_ms", "")]
        failed = mark.get("failed") or ("the last" if is_failing(mark) else "")
        rows.append([*cells, mark.get("calls") or mark["runs"], failed])
    names = ("agent", "hook", "last call", "last ms", "slowest ms", "calls", "failed")
    nothing = (
        "No host has called a hook for this project; `memtier install` lists and sets up hosts."
    )
    return table_view(names, rows, right=names[3:], nothing=nothing)
