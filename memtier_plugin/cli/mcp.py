"""`memtier mcp`: serve the project's memory over the Model Context Protocol."""

from __future__ import annotations

import os
from pathlib import Path

import click

from memtier_plugin.cli.scope import CliCommand, Scope, scope_of
from memtier_plugin.core.errors import SettingsError
from memtier_plugin.hosts.requirements import require_mcp
from memtier_plugin.mcp.opening import Opening

DEFAULT_AGENT = "mcp.main"


@click.command(cls=CliCommand, example="--project shop")
@click.option("--http", is_flag=True, help="Serve HTTP on 127.0.0.1 instead of stdin and stdout.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8766,
    show_default=True,
    help="The port of --http; 0 for any that is free.",
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
            "the folder that a client starts this in is no sign of it"
        )
    home = _absolute_home(scope)
    opening = None if http else Opening.on_stdio()  # before the SDK is loaded
    from memtier_plugin.mcp import server
    from memtier_plugin.mcp.calls import Binding

    binding = Binding(home, project, scope.agent or DEFAULT_AGENT)
    if opening:
        server.serve_stdio(binding, opening)
    else:
        server.serve_http(binding, port, _announce)


def _absolute_home(scope: Scope) -> Path:
    """Return the home, unless it depends on the working directory."""
    named = scope.home or os.environ.get("MEMTIER_HOME")
    if named and not Path(named).expanduser().is_absolute():
        raise SettingsError(f"the home {named!r} is relative; name it from the root: {scope.path}")
    return scope.path


def _announce(address: str, token_file: Path) -> None:
    click.echo(f"MemTier's MCP server: {address} (the token is in {token_file})", err=True)
