"""`memtier tui`, `web`, `mcp` and `token`: show the memory, or serve it to clients."""

from __future__ import annotations

import os
import sys
import webbrowser
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from memtier_plugin.cli.scope import CliCommand, CliGroup, Scope, scope_of
from memtier_plugin.cli.views import LengthOfTime
from memtier_plugin.core.errors import SettingsError, Unsupported
from memtier_plugin.core.installation import install_command
from memtier_plugin.hosts.coding_agents import require_mcp
from memtier_plugin.hosts.project import project_in
from memtier_plugin.mcp.opening import Opening
from memtier_plugin.server.access import Grant, Tokens

# -- `memtier tui`: review and log on a full screen


@click.command(cls=CliCommand)
@click.pass_obj
def tui(scope: Scope) -> None:
    """Review pending items and read the log, full screen."""
    if find_spec("textual") is None:
        command = install_command("memtier[tui]")
        raise Unsupported(f"`memtier tui` needs Textual, which is missing: run `{command}`")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("this needs a terminal; `memtier review` and `memtier log` do not")
    from memtier_plugin.tui.app import MemTierApp

    with scope.open(everybody=True) as memory:
        MemTierApp(memory, scope.agent).run()


# -- `memtier web`: show the memory in a browser on this machine


@click.command(cls=CliCommand, example="--open")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8767,
    show_default=True,
    help="The port on 127.0.0.1; 0 for any free one.",
)
@click.option("--open", "opened", is_flag=True, help="Open the browser.")
@click.pass_obj
def web(scope: Scope, port: int, opened: bool) -> None:
    """Browse the memory: log, facts, review, recalls, health."""
    require_web("`memtier web`")
    from memtier_plugin.web.app import serve

    def announce(address: str) -> None:
        click.echo(f"MemTier's web view: {address}", err=True)
        if opened:
            webbrowser.open(address)

    with scope.open(everybody=True) as memory:
        serve(memory, port, announce)


def require_web(feature: str) -> None:
    """Check that the packages of the extra are installed.

    Raises:
        Unsupported: they are not.
    """
    if any(find_spec(package) is None for package in ("starlette", "jinja2", "uvicorn")):
        command = install_command("memtier[web]")
        raise Unsupported(f"{feature} needs more packages: run `{command}`")


# -- `memtier mcp`: serve the project's memory over the Model Context Protocol

DEFAULT_AGENT = "mcp.main"


@click.command(cls=CliCommand, example="--project shop")
@click.option("--http", is_flag=True, help="Serve HTTP on 127.0.0.1 instead of stdin and stdout.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8766,
    show_default=True,
    help="The port for --http; 0 for any free one.",
)
@click.pass_context
def mcp(ctx: click.Context, http: bool, port: int) -> None:
    """Serve the memory to clients of the Model Context Protocol."""
    require_mcp()
    scope = scope_of(ctx)
    project = scope.project or os.environ.get("MEMTIER_PROJECT")
    if not project:
        raise SettingsError(
            "name the project (`memtier --project NAME mcp`): "
            "the folder that a client starts it in does not determine it"
        )
    home = _absolute_home(scope)
    opening = None if http else Opening.on_stdio()  # before loading the SDK
    from memtier_plugin.mcp import server
    from memtier_plugin.mcp.server import Binding

    with suppress(FileNotFoundError):  # the folder was deleted
        project = project_in(home, project, os.getcwd())
    binding = Binding(home, project, scope.agent or DEFAULT_AGENT)
    if opening:
        server.serve_stdio(binding, opening)
    else:
        server.serve_http(binding, port, _announce)


def _absolute_home(scope: Scope) -> Path:
    """Return the home, unless it depends on the working directory."""
    named = scope.home or os.environ.get("MEMTIER_HOME")
    if named and not Path(named).expanduser().is_absolute():
        raise SettingsError(f"the home {named!r} is relative; use an absolute path: {scope.path}")
    return scope.path


def _announce(address: str, token_file: Path) -> None:
    click.echo(f"MemTier's MCP server: {address} (the token is in {token_file})", err=True)


# -- `memtier token`: which clients `memtier serve --tcp` admits, and to what

_MOST_DAYS: Final = 36_525  # a century; later dates may be invalid


@click.group(cls=CliGroup, example="list")
def token() -> None:
    """Manage tokens that admit clients of `memtier serve --tcp`."""


@token.command(cls=CliCommand, example="shop --name web-frontend")
@click.argument("projects", nargs=-1, metavar="[PROJECT...]")
@click.option("--name", default="", metavar="NAME", help="A name for the token.")
@click.option("--only-agent", metavar="AGENT", help="Restrict the token to this agent.")
@click.option("--only-sender", metavar="ID", help="Restrict the token to this sender.")
@click.option(
    "--days",
    type=LengthOfTime(min=0, min_open=True, max=_MOST_DAYS),
    help="Days until the token expires [never].",
)
@click.pass_obj
def new(
    scope: Scope,
    projects: tuple[str, ...],
    name: str,
    only_agent: str | None,
    only_sender: str | None,
    days: float | None,
) -> None:
    """Create a token for projects [this one], shown once; `shop-*` matches a prefix."""
    if "" in projects:
        raise click.UsageError("a project name is empty")
    expires = datetime.now(UTC) + timedelta(days=days) if days else None
    secret, grant = Tokens(scope.path).new(
        projects or (scope.project_name,),
        name=name,
        agent=only_agent,
        sender=only_sender,
        expires=expires,
    )
    scope.show({"token": secret, **_document(grant)})


@token.command("list", cls=CliCommand)
@click.pass_obj
def list_tokens(scope: Scope) -> None:
    """List the tokens and their scopes, never the tokens themselves."""
    now = datetime.now(UTC)
    grants = Tokens(scope.path).grants()
    scope.show({"tokens": [{**_document(grant), "over": grant.is_over(now)} for grant in grants]})


@token.command(cls=CliCommand, example="web-frontend")
@click.argument("key", metavar="ID")
@click.pass_obj
def revoke(scope: Scope, key: str) -> None:
    """Revoke a token by id or name; its clients are refused from their next call on."""
    scope.show({"revoked": _document(Tokens(scope.path).revoke(key))})


def _document(grant: Grant) -> dict[str, Any]:
    return {**asdict(grant), "projects": [*grant.projects]}
