"""`memtier install`: install MemTier into a host, and test it with one turn."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.core.paths import make_home
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.hosts import install as installing
from memtier_plugin.hosts import user_service, yaml_settings
from memtier_plugin.hosts.config_files import diff_file
from memtier_plugin.hosts.presence import find_hosts
from memtier_plugin.hosts.project import CODING_AGENTS, DEFAULT_PROJECT
from memtier_plugin.memory import MemTier

if TYPE_CHECKING:
    from memtier_plugin.hosts.canary import CanaryResult

_HOSTS = (*installing.HOSTS, *CODING_AGENTS)
_DIFF_COLOURS = {"+": "green", "-": "red"}


@click.command(
    cls=CliCommand,
    epilog=f"HOST is one of {', '.join(_HOSTS)}.",
    example="openclaw",
)
@click.argument("host", metavar="[HOST]", required=False, type=click.Choice(_HOSTS))
@click.option("--dry-run", is_flag=True, help="Show what would change, without changing it.")
@click.option("--uninstall", "undo", is_flag=True, help="Uninstall; the memory itself is kept.")
@click.option(
    "--use-host-model/--no-host-model",
    default=None,
    help="Extract facts with the host's own model, or not; its caps are shown.",
)
@click.option(
    "--call-reminders/--no-call-reminders",
    default=None,
    help="Hold up a tool call once to remind the agent of a rule about it, or not.",
)
@click.option("--service", is_flag=True, help="Start the resident at login instead.")
@click.option("--no-canary", is_flag=True, help="Skip the test turn.")
@click.pass_context
def install(
    ctx: click.Context,
    /,
    host: str | None,
    dry_run: bool,
    undo: bool,
    service: bool,
    no_canary: bool,
    **options: bool | None,
) -> None:
    """Connect HOST to MemTier and test it; without HOST, list hosts."""
    scope: Scope = ctx.obj
    chosen = any(value is not None for value in options.values())
    if service and (host or chosen):
        raise click.UsageError("name a host or use --service, not both")
    if not (service or host) and (undo or dry_run or chosen):
        raise click.UsageError("name a HOST; `memtier install` lists those on this machine")
    if service:
        scope.show(_set_up_service(scope.path, dry_run=dry_run, undo=undo), _service_view)
        return
    if host is None:
        present = [host._asdict() for host in find_hosts(scope.path)]
        scope.show({"hosts": present}, _hosts_view)
        if not scope.as_json and sys.stdin.isatty():
            for row in present:
                if not row["project"] and click.confirm(f"Set up {row['host']}?"):
                    ctx.invoke(install, host=row["host"], no_canary=no_canary)
        return
    project = scope.project or os.environ.get("MEMTIER_PROJECT") or DEFAULT_PROJECT
    document: dict[str, Any] = {"host": host, "home": str(scope.path), "project": project}
    if undo:
        changes = installing.uninstall_host(host, scope.path, dry_run=True)
    else:
        changes = installing.plan_changes(host, scope.path, project, **options)
    document["changes"] = [
        {"path": str(c.path), "why": c.why, "diff": diff_file(c.path, c.before, c.text)}
        for c in changes
    ]
    if not scope.as_json:
        _print_diffs(document["changes"], diffs=dry_run)
    document |= {"done": not dry_run, "canary": None, "host_model": None}
    if not dry_run and undo:
        installing.uninstall_host(host, scope.path)
    elif not dry_run:
        make_home(scope.path)
        installing.install_host(host, scope.path, project, **options)
        MemTier.open(scope.path, project).close()  # so that `status` shows it before the first turn
        if not no_canary:
            with views.make_console(stderr=True).status(f"testing {host} with one turn"):
                document["canary"] = asdict(_prove(host, scope.path))
    if not (undo or host in CODING_AGENTS):
        document["host_model"] = _describe_consent(scope.path, project, options["use_host_model"])
    proof = document["canary"]
    failed = bool(proof and proof["ran"] and not proof["ok"])
    document["next"] = _next_step(document, undo, failed)
    scope.show(document, install_view)
    if failed:
        ctx.exit(1)


def _set_up_service(home: Path, *, dry_run: bool, undo: bool) -> dict[str, Any]:
    """Install or remove the user's service; return what was done and what remains."""
    service = user_service.describe_service(home)
    left = ""
    if not dry_run:
        make_home(home)
        act = user_service.uninstall_service if undo else user_service.install_service
        left = act(home)
    return {
        "service": str(service.path),
        "text": service.text,
        "done": not dry_run,
        "removed": undo,
        "left": left,
    }


def _service_view(document: views.Document) -> RenderableType:
    """Render the service's file, and what remains to be done."""
    if not document["done"]:
        verb = "would remove" if document["removed"] else "would write"
    else:
        verb = "removed" if document["removed"] else "wrote"
    parts = [views.safe_text(f"{verb} {document['service']}")]
    if not document["removed"]:
        parts.append(views.safe_text(document["text"].rstrip(), "dim"))
    if document["left"]:
        parts.append(views.safe_text(f"Not done: {document['left']}", "yellow"))
    return Group(*parts)


def _prove(host: str, home: Path) -> CanaryResult:
    """Run a host's canary, importing it only here."""
    if host in CODING_AGENTS:
        from memtier_plugin.hosts.agent_canary import run_agent_canary

        return run_agent_canary(host, home)
    from memtier_plugin.hosts.canary import run_canary

    return run_canary(host, home)


def _describe_consent(home: Path, project: str, use_host_model: bool | None) -> str | None:
    """Describe what the user consents to by letting MemTier use the host's model."""
    used = yaml_settings.is_consented(home, project) if use_host_model is None else use_host_model
    if not used:
        return None
    caps = load_settings(home, project).consolidation
    return (
        "the host's own model reads what is said in this project, once and in the background: "
        f"at most {caps.max_calls_per_day} calls, {caps.max_tokens_per_day} tokens and "
        f"a cost of {caps.max_cost_per_day:g} a day, if the host reports its costs "
        "(consolidation.max_*_per_day); `--no-host-model` takes the consent back"
    )


def _next_step(document: Mapping[str, Any], undo: bool, failed: bool) -> str:
    host = document["host"]
    if failed:
        return f"{host} is set up but the test failed: fix that, then run this again"
    if not document["done"]:
        return "nothing was changed; run again without --dry-run to apply"
    if undo:
        return f"the memory in {document['home']} is untouched"
    if host == "openclaw":
        return "restart a running Gateway, then see `memtier status`"
    if host == "codex":
        return (
            "once, enter /hooks in Codex and trust those of memtier: until then it runs none and "
            "nothing is recorded; check with `memtier doctor`"
        )
    if host in CODING_AGENTS:
        own = "; `memtier init` gives a folder a memory of its own"
        own = own if document["project"] == DEFAULT_PROJECT else ""
        return f"the next session of {host} will use it{own}; see `memtier status`"
    return "the next `hermes` will use it; see `memtier status`"


def _hosts_view(document: views.Document) -> RenderableType:
    """Render this machine's hosts, each with its install command."""
    rows = (
        (
            row["host"],
            row["seen"],
            f"project {row['project']}" if row["project"] else f"memtier install {row['host']}",
        )
        for row in document["hosts"]
    )
    nothing = "No host was found; `memtier install --help` lists the supported ones."
    return views.table_view(("host", "seen", "MemTier"), rows, nothing=nothing)


def install_view(document: views.Document) -> RenderableType:
    """Render the consent, the canary's result and the next step, shown after the diffs."""
    parts: list[RenderableType] = []
    if not document["changes"]:
        parts.append(views.safe_text("No changes are needed."))
    if document["host_model"]:
        parts.append(views.safe_text(document["host_model"], "yellow"))
    proof = document["canary"]
    if proof:
        level = "ok" if proof["ok"] else "error" if proof["ran"] else "warn"
        took = f" ({proof['seconds']} s)" if proof["ran"] else ""
        line = f"{views.LEVEL_MARKS[level]} {proof['what']}{took}"
        parts.append(views.safe_text(line, views.LEVEL_COLOURS[level]))
        if proof["remedy"]:
            parts.append(views.safe_text(f"  {proof['remedy']}"))
        if proof["said"]:
            parts.append(views.safe_text(proof["said"], "dim"))
    parts.append(views.safe_text(document["next"], "dim"))
    return Group(*parts)


def _print_diffs(changes: Sequence[Mapping[str, Any]], *, diffs: bool) -> None:
    """Print the changed files, or with ``diffs`` their unwrapped diffs."""
    colour = False if "NO_COLOR" in os.environ else None  # None: only on a terminal
    for change in changes:
        click.secho(
            views.escape_controls(f"{change['path']}: {change['why']}"), bold=True, color=colour
        )
        for line in change["diff"].splitlines() if diffs else ():
            text = views.escape_controls(line)
            click.secho(text, fg=_DIFF_COLOURS.get(line[:1]), color=colour)
        if diffs:
            click.echo()
