"""`memtier doctor`, `self-check` and `status`: check files, index and hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

import click
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memtier_plugin import __version__
from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar, scope_of
from memtier_plugin.cli.views import (
    LEVEL_COLOURS,
    LEVEL_MARKS,
    Document,
    escape_controls,
    format_time,
    format_value,
    make_console,
    name_value_table,
    one_line,
    safe_text,
    table_view,
)
from memtier_plugin.core.errors import HomeTooNew, NotFound
from memtier_plugin.hosts import doctor as hosts_doctor
from memtier_plugin.hosts.presence import describe_silent_hosts
from memtier_plugin.hosts.self_check import check_installation
from memtier_plugin.operations.background import HealthFinding
from memtier_plugin.providers.pricing import format_cost
from memtier_plugin.storage.protocol import describe_usage

# -- `memtier doctor`: check files, index, settings and hosts


@click.command(cls=CliCommand, example="--fix")
@click.option("--fix", is_flag=True, help="First apply every repair that loses no data.")
@click.option("--skip-hosts", is_flag=True, help="Skip asking the hosts, which takes seconds.")
@click.pass_context
def doctor(ctx: click.Context, fix: bool, skip_hosts: bool) -> None:
    """Check files, index, settings and hosts; exit 1 on an error."""
    scope = scope_of(ctx)
    results, fixed = hosts_doctor.check_hosts(scope.path), []
    if not skip_hosts:
        with make_console(stderr=True).status(
            "asking the hosts which plugin owns the memory tools"
        ):
            results += [*hosts_doctor.ask_hosts(), *hosts_doctor.try_agents(scope.path)]
    try:
        with scope.open() as memory:
            if fix:
                with progress_bar() as report:
                    for repair in memory.repair(partial(report, "reading the ledgers")):
                        fixed.append(asdict(repair))
                        click.echo(
                            f"fixed: {repair.what}: {escape_controls(repair.where)}", err=True
                        )
            results = [*memory.doctor(), *results]
    except HomeTooNew as error:
        what, _, remedy = str(error).rpartition(": ")
        results.append(HealthFinding("error", what, str(scope.path), remedy))
    except NotFound as error:
        if not results:
            raise
        results.append(
            HealthFinding("warn", str(error), str(scope.path), "created by a host's first turn")
        )
    findings = [asdict(finding) for finding in results]
    scope.show({"findings": findings, **({"fixed": fixed} if fix else {})}, doctor_view)
    if any(finding["level"] == "error" for finding in findings):
        ctx.exit(1)


def doctor_view(document: Document) -> RenderableType:
    """Render findings; each problem with its location and remedy."""
    parts: list[RenderableType] = []
    for finding in document["findings"]:
        level = finding["level"]
        parts.append(
            Text.assemble(
                (LEVEL_MARKS[level] + " ", LEVEL_COLOURS[level]), safe_text(finding["what"])
            )
        )
        if level != "ok":
            rows = [(key, finding[key]) for key in ("where", "remedy") if finding[key]]
            parts.append(Padding(name_value_table(rows), (0, 0, 0, 4), expand=False))
    return Group(*parts)


# -- `memtier self-check`: check this installation, independent of any project


@click.command("self-check", cls=CliCommand, example="--json")
@click.pass_context
def self_check(ctx: click.Context) -> None:
    """Check this installation in a temporary home; 1 on an error."""
    with make_console(stderr=True).status("checking the installation"):
        findings = [asdict(finding) for finding in check_installation()]
    ok = not any(finding["level"] == "error" for finding in findings)
    scope_of(ctx).show({"version": __version__, "ok": ok, "findings": findings}, doctor_view)
    if not ok:
        ctx.exit(1)


# -- `memtier status`: what is stored, when hooks and jobs ran, what is degraded


@click.command(cls=CliCommand, example="--project shop")
@click.pass_obj
def status(scope: Scope) -> None:
    """Show what is stored, the last hook calls, and any problems."""
    with scope.open() as memory:
        report = memory.status()
    report["degraded"] += describe_silent_hosts(scope.path, datetime.now(UTC))
    scope.show(report, status_view)


def status_view(document: Document) -> RenderableType:
    """Render a project's status."""
    first = ("project", "home", "paused", "entries", "facts", "summaries", "index")
    rows = [
        *((name, format_value(document[name])) for name in first if name in document),
        *_shared_rows(document),
        *_consolidation_rows(document),
        ("embedding", describe_embedding(document.get("embedding", {}))),
        *_plugin_rows(document),
        ("disk", describe_usage(document.get("disk", {}))),
    ]
    parts: list[RenderableType] = [name_value_table(rows)]
    for table in (_jobs_table(document), _hooks_table(document), _waits_table(document)):
        if isinstance(table, Table) or table.plain:
            parts += ["", table]
    for host, count in document.get("prompts", {}).items():
        line = "{unanswered} of {prompts} prompts got no response ({share:.1%})".format(**count)
        parts.append(safe_text(f"{host}: {line}", "yellow" if count["unanswered"] else "dim"))
    for agent, seen in document.get("agents", {}).items():
        if injected := seen.get("injected"):
            line = "{tokens_a_turn} tokens injected a turn, {repeats_avoided} repeats avoided"
            counts = f"{line.format(**injected)} in {injected['turns']} turns"
            counts += f", and {injected['late']} were late" * bool(injected.get("late"))
            if blocks := injected.get("blocks"):
                counts += f" ({', '.join(f'{n} {name}' for name, n in sorted(blocks.items()))})"
            parts.append(safe_text(f"{agent}: {counts}", "dim"))
    for name in ("degraded", "warnings"):
        parts += [
            safe_text(f"{name}: {format_value(line)}", "yellow") for line in document.get(name, ())
        ]
    return Group(*parts)


def _jobs_table(document: Document) -> Table | Text:
    background = document.get("background", {})
    rows = (
        (
            name,
            format_time(state["ok"]),
            format_time(state["failed"]),
            state["failures"] or "",
            format_time(state["next"]) if background["served"] else "",
        )
        for name, state in background.get("jobs", {}).items()
    )
    names = ("job", "last ok", "last error", "in a row", "next")
    return table_view(names, rows, right=["in a row"])


def _hooks_table(document: Document) -> Table | Text:
    rows = (
        (
            agent,
            hook,
            format_time(mark.get("last_ok")),
            format_time(mark.get("last_error")),
            one_line(mark.get("error") or ""),
        )
        for agent, by_hook in document.get("hooks", {}).items()
        for hook, mark in by_hook.items()
    )
    names = ("agent", "hook", "last ok", "last error", "error")
    return table_view(names, rows, wide=["error"], nothing="No host has called a hook yet.")


def _waits_table(document: Document) -> Table | Text:
    figures = ("last ms", "slowest ms", "calls", "no answer")
    rows = (
        (
            agent,
            hook,
            mark["last_ms"],
            mark["slowest_ms"],
            format_time(mark["slowest_at"]),
            mark.get("calls") or mark["runs"],
            mark.get("failed") or "",
        )
        for agent, hook, mark in _hook_waits(document)
    )
    return table_view(("agent", "hook", *figures[:2], "on", *figures[2:]), rows, right=figures)


def _hook_waits(document: Document) -> Iterator[tuple[str, str, Document]]:
    """Yield each hook's latency, preferring what the host itself measured."""
    noted, waits = document.get("hooks", {}), document.get("waits", {})
    for agent in sorted({*noted, *waits}):
        seen = {hook: mark for hook, mark in noted.get(agent, {}).items() if "last_ms" in mark}
        for hook, mark in {**seen, **waits.get(agent, {})}.items():
            yield agent, hook, mark


def _consolidation_rows(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the rows on consolidation: backlog, schedule and last report."""
    state = document.get("consolidation", {})
    served = document.get("background", {}).get("served")
    left = state.get("backlog", {})
    waits = ", ".join(f"{number} for the {name}" for name, number in left.items() if number)
    by = "a daemon is running" if served else "no daemon; the next session starts one"
    due = "due now" if state.get("due") else f"next {format_time(state.get('next'))}"
    yield "backlog", f"{waits} (entries)" if waits else "nothing"
    yield "consolidation", f"last {format_time(state.get('last'))}, {due}; {by}"
    if report := state.get("report"):
        yield "last report", format_value(report)
    spending = document.get("spending", {})
    if spending.get("model", "none") != "none" or spending.get("asked"):
        calls = f"{spending['calls']} of {spending['most_calls']} calls today"
        tokens = f"{spending['tokens']} of {spending['most_tokens']} tokens"
        cost = f"spent {format_cost(spending['cost'])} of {format_cost(spending['most_cost'])}"
        answers = f"{spending['asked']} to answer"
        yield "model", f"{spending['model']}: {calls}, {answers}, {tokens}, {cost}"
        if spending["waits"]:
            yield "model waits", format_value(spending["waits"])
    counts = {kind: number for kind, number in document.get("review", {}).items() if number}
    if counts:
        oldest = document.get("proposals", {}).get("oldest")
        since = f", the oldest since {format_time(oldest)}" if oldest else ""
        yield "review", f"{describe_counts(counts)} wait{since}: memtier review"
    for run in document.get("held_back", ()):
        yield "held back", f"{format_time(run['at'])} {run['run']}: {format_value(run['why'])}"


def _plugin_rows(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the rows of plugins (`memtier_status`)."""
    for name, value in document.items():
        if isinstance(value, Mapping) and "said" in value:
            yield name, value["said"]


def _shared_rows(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the row on the server that machines share the project through."""
    if shared := document.get("shared"):
        synced = format_time(shared["synced"]) if shared["synced"] else "never"
        lines = f"{shared['waiting']:,} lines not delivered yet"
        yield "shared", f"{shared['project']} at {shared['server']}, synchronised {synced}; {lines}"


def describe_counts(counts: Mapping[str, int]) -> str:
    """Describe pending reviews: "1 fact, 2 conflicts"."""
    return ", ".join(
        f"{number} {kind.removesuffix('s') if number == 1 else kind}"
        for kind, number in counts.items()
    )


def describe_embedding(state: Document) -> str:
    """Describe the embedding progress in one line."""
    if not state.get("model"):
        return "none"
    done = f"{state['items'] - state['missing']} of {state['items']} items"
    cost = (
        f", spent {format_cost(state['spent'])} of {format_cost(state['allowed'])}"
        if state["paid"]
        else ""
    )
    more = f", the rest {format_cost(state['cost'])}" if state["paid"] and state["missing"] else ""
    return f"{state['model']}: {done}{cost}{more}"
