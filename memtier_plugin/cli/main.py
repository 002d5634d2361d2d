"""The `memtier` command: documents on stdout, everything else on stderr, exit 1 when refused."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import click

from memtier_plugin import __version__
from memtier_plugin.cli import views
from memtier_plugin.cli.ask import ask
from memtier_plugin.cli.bench import bench
from memtier_plugin.cli.consolidate import consolidate
from memtier_plugin.cli.embed import embed
from memtier_plugin.cli.facts import facts
from memtier_plugin.cli.forget import forget, purge
from memtier_plugin.cli.install import install
from memtier_plugin.cli.scope import CliGroup, Scope, common_options, progress_bar, scope_of
from memtier_plugin.cli.status import status_view
from memtier_plugin.cli.time_travel import diff, revert
from memtier_plugin.cli.transfer import backup, export, import_, restore
from memtier_plugin.core.errors import ImportFileError, NotFound
from memtier_plugin.core.paths import make_private_folder, write_private_file
from memtier_plugin.core.results import Depth
from memtier_plugin.core.settings.load import (
    bind_workspace,
    load_settings,
    resolve_project,
    setting_sources,
)
from memtier_plugin.core.times import from_iso, to_iso
from memtier_plugin.hosts import doctor as doctor_hosts
from memtier_plugin.operations.health import HealthFinding


@click.group(
    cls=CliGroup,
    params=common_options(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="memtier %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """A memory for agents: what was said, what helped, and where each line comes from."""
    scope_of(ctx)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@main.command()
@click.pass_obj
def init(scope: Scope) -> None:
    """Set up the home and this folder's project."""
    folder = Path.cwd()
    project = scope.project_name
    bound = resolve_project(scope.path, folder) == project and scope.project is None
    done = {"home": str(make_private_folder(scope.path)), "project": project}
    made = _create_file(scope.path / "config.yaml", "# Your settings; see `memtier config show`.\n")
    with scope.open(create=True) as memory:
        text = f"# Settings of the project {project!r}.\n"
        made += _create_file(memory.folder / "project.yaml", text)
        done["folder"] = str(memory.folder)
    if not bound:
        bind_workspace(scope.path, folder, project)
    scope.show({**done, "workspace": str(folder), "bound": not bound, "created": made})


def _create_file(path: Path, text: str) -> list[str]:
    if path.exists():
        return []
    write_private_file(path, text)
    return [str(path)]


@main.command()
@click.pass_obj
def status(scope: Scope) -> None:
    """Tell what is stored, which hook last ran, what is degraded."""
    with scope.open() as memory:
        scope.show(memory.status(), status_view)


@main.command()
@click.option("--fix", is_flag=True, help="First put right what loses nothing.")
@click.pass_context
def doctor(ctx: click.Context, fix: bool) -> None:
    """Check files, index, settings and hosts; exit 1 on an error."""
    scope = scope_of(ctx)
    found, fixed = doctor_hosts.check_hosts(scope.path), []
    try:
        with scope.open() as memory:
            if fix:
                with progress_bar() as report:
                    for repair in memory.repair(partial(report, "reading the ledgers")):
                        fixed.append(asdict(repair))
                        click.echo(
                            f"fixed: {repair.what}: {views.escape_controls(repair.where)}", err=True
                        )
            found = [*memory.doctor(), *found]
    except NotFound as error:
        if not found:
            raise
        found.append(
            HealthFinding("warn", str(error), str(scope.path), "a host's first turn makes it")
        )
    findings = [asdict(finding) for finding in found]
    scope.show({"findings": findings, **({"fixed": fixed} if fix else {})}, views.doctor_view)
    if any(finding["level"] == "error" for finding in findings):
        ctx.exit(1)


@main.command()
@click.option("--date", metavar="DAY", help="A day as 2026-03-14, or all [the newest].")
@click.option("--session", metavar="ID", help="Only this session, of all days.")
@click.option("--follow", is_flag=True, help="Go on with what is written; --json: one line each.")
@click.pass_obj
def log(scope: Scope, date: str | None, session: str | None, follow: bool) -> None:
    """Read the daily log: who said what, and what came of it."""
    from memtier_plugin.cli import log as cli_log

    with scope.open() as memory:
        day = _parse_day(date) or (
            None if session else cli_log.find_newest_day(memory, scope.agent)
        )
        chosen = {"agent": scope.agent, "session": session}
        lines = list(cli_log.read_log_lines(memory, date=None if day == "all" else day, **chosen))
        if scope.as_json and not follow:
            scope.show({"lines": lines})
            return
        last = lines[-1]["id"] if lines else None
        stream: Iterable[dict[str, Any]] = lines
        if follow:
            stream = _chain(lines, cli_log.follow_log(memory, last, **chosen))
        console = views.make_console()
        try:
            for line in stream if scope.as_json else cli_log.add_headings(iter(stream)):
                if scope.as_json:
                    click.echo(json.dumps(line))
                else:
                    console.print(views.log_view(line))
        except KeyboardInterrupt:
            return  # the way to end --follow


def _parse_day(text: str | None) -> str | None:
    if text in (None, "all"):
        return text
    moment = _parse_time(text)
    return to_iso(moment)[:10] if moment else None


def _chain(first: Iterable[Any], then: Iterable[Any]) -> Iterator[Any]:
    yield from first
    yield from then


@main.command()
@click.argument("query")
@click.option("--k", type=click.IntRange(1), help="How many lines may be injected.")
@click.option(
    "--budget", type=click.IntRange(1), metavar="TOKENS", help="How many tokens, at most."
)
@click.option("--at", metavar="TIME", help="What now is, as 2026-03-14T09:00 (UTC).")
@click.option("--as-of", metavar="TIME", help="As if asked then: by what was written by then.")
@click.option(
    "--depth",
    type=click.Choice(["mixed", "facts", "raw", "auto"]),
    help="Facts, what was said, or both; auto decides by the question [retrieval.depth].",
)
@click.option("--limit", default=10, show_default=True, help="How many hits to show.")
@click.option("--explain", "signals", is_flag=True, help="Show the signals behind each score.")
@click.option("--inject-preview", is_flag=True, help="Show the block as a prompt would get it.")
@click.pass_obj
def recall(
    scope: Scope,
    query: str,
    k: int | None,
    budget: int | None,
    at: str | None,
    as_of: str | None,
    depth: Depth | None,
    limit: int,
    signals: bool,
    inject_preview: bool,
) -> None:
    """Find what matters for QUERY, each line with its source."""
    sized: dict[str, Any] = {"k": k, "token_budget": budget, "depth": depth}
    with scope.open() as memory:
        if then := _parse_time(as_of):
            with progress_bar() as report:
                step = partial(report, "reading the ledgers")
                found = memory.history.recall(query, then, progress=step, **sized)
        else:
            found = memory.recall(query, at=_parse_time(at), **sized)
    document = views.recall_document(found, limit)
    document |= {"signals": signals, "text": found.text if inject_preview else ""}
    scope.show(document, views.recall_view)


def _parse_time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return from_iso(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time like 2026-03-14 or 2026-03-14T09:00"
        ) from None


@main.command()
@click.argument("recall_id")
@click.option("--why", metavar="ID", help="Show why this entry or fact was left out.")
@click.pass_obj
def explain(scope: Scope, recall_id: str, why: str | None) -> None:
    """Show why a recall chose what it chose, and weights since."""
    with scope.open() as memory:
        scope.show(memory.explain(recall_id, why), views.explain_view)


@main.command()
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--session", required=True, metavar="ID", help="The session they belong to.")
@click.option("--run", metavar="ID", help="The run; recording it again adds only what is new.")
@click.pass_obj
def record(scope: Scope, file: IO[str], session: str, run: str | None) -> None:
    """Write messages (JSON or JSON Lines; - for stdin) to the log."""
    messages = _read_messages(file)
    with scope.open(create=True) as memory:
        entries = memory.record(messages, session_id=session, run_id=run)
    scope.show({"recorded": len(entries), "given": len(messages), "ids": [e.id for e in entries]})


def _read_messages(file: IO[str]) -> list[Any]:
    """Read a list of messages, an object that holds one, or a message a line."""
    try:
        content = file.read()
    except UnicodeDecodeError as error:
        raise ImportFileError(f"{file.name}: expected UTF-8 text: {error}") from None
    try:
        document = json.loads(content)
    except ValueError:
        document = []
        for number, line in enumerate(content.split("\n"), 1):
            try:
                document += [json.loads(line)] if line.strip() else []
            except ValueError as error:
                raise ImportFileError(f"{file.name}:{number}: not JSON: {error}") from None
    if isinstance(document, dict):
        document = document.get("messages", [document])
    if not isinstance(document, list):
        raise ImportFileError(f"{file.name}: expected a list of messages, found {document!r:.60}")
    return document


@main.command()
@click.argument("text")
@click.pass_obj
def remember(scope: Scope, text: str) -> None:
    """Tell the project a fact; all its agents recall it."""
    with scope.open(create=True) as memory:
        fact = memory.remember(text)
    scope.show({"fact": fact.id, "text": fact.text})


@main.command()
@click.option("--once", is_flag=True, help="Do every job once and end.")
@click.option("--interval", type=float, metavar="SECONDS", help="Instead of what is configured.")
@click.option("--all", "everything", is_flag=True, help="Every project of the home.")
@click.pass_context
def daemon(ctx: click.Context, once: bool, interval: float | None, everything: bool) -> None:
    """Turn entries into facts in the background."""
    scope = scope_of(ctx)
    arguments = ["--home", str(scope.path), *(["--once"] if once else [])]
    arguments += ["--all"] if everything else ["--project", scope.project_name]
    arguments += ["--interval", str(interval)] if interval else []
    code = import_module("memtier_plugin.daemon.__main__").main(arguments)
    if scope.as_json and not code:
        scope.show({"project": scope.project_name, "ended": True})
    ctx.exit(code)


@main.command()
@click.option("--socket/--no-socket", default=True, help="Also listen on a Unix socket.")
@click.pass_context
def serve(ctx: click.Context, socket: bool) -> None:
    """Answer JSON-RPC of hosts, on stdin/stdout and a socket."""
    rpc = import_module("memtier_plugin.server.rpc")
    home = scope_of(ctx).path
    ctx.exit(rpc.serve(home, sys.stdin.buffer, sys.stdout.buffer, socket=socket))


@main.command()
@click.pass_obj
def reindex(scope: Scope) -> None:
    """Rebuild the index from the ledgers."""
    with scope.open() as memory, progress_bar() as report:
        document = memory.reindex(partial(report, "reading the ledgers"))
    scope.show(document)


@main.group()
def config() -> None:
    """What is configured, and where it was set."""


@config.command("show")
@click.pass_obj
def config_show(scope: Scope) -> None:
    """List every value, and the file and line that set it."""
    known = setting_sources(scope.path, scope.project_name, Path.cwd())
    rows = [{"key": key, "value": v.value, "from": v.source} for key, v in known.items()]
    scope.show({"project": scope.project_name, "settings": rows}, views.settings_view)


@config.command("check")
@click.pass_obj
def config_check(scope: Scope) -> None:
    """Say what is wrong with the settings, if something is."""
    load_settings(scope.path, scope.project_name, Path.cwd())
    scope.show({"project": scope.project_name, "home": str(scope.path), "settings": "fine"})


@main.command()
@click.pass_obj
def off(scope: Scope) -> None:
    """Pause recording and recall of the project."""
    with scope.open() as memory:
        memory.pause()
        scope.show({"project": memory.project, "paused": True})


@main.command()
@click.pass_obj
def on(scope: Scope) -> None:
    """Resume recording and recall."""
    with scope.open() as memory:
        memory.resume()
        scope.show({"project": memory.project, "paused": False})


@main.command()
@click.pass_obj
def demo(scope: Scope) -> None:
    """Show it all on a small conversation, in ./memtier-demo."""
    from memtier_plugin.cli.demo import run

    out = views.make_console(stderr=scope.as_json)
    document = run(Path(scope.home or "memtier-demo"), out)
    if scope.as_json:
        scope.show(document)


main.add_command(ask)
main.add_command(bench)
main.add_command(consolidate)
main.add_command(facts)
main.add_command(forget)
main.add_command(purge)
main.add_command(diff)
main.add_command(revert)
main.add_command(embed)
main.add_command(install)
main.add_command(backup)
main.add_command(restore)
main.add_command(export)
main.add_command(import_)
