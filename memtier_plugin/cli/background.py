"""`memtier daemon` and `serve`: the background of a home, and the server that hosts talk to."""

from __future__ import annotations

import sys

import click

from memtier_plugin.cli.scope import CliCommand, scope_of


@click.command(cls=CliCommand)
@click.option("--once", is_flag=True, help="Do every job once and end.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Overrides the configured value.",
)
@click.option("--all", "everything", is_flag=True, help="Every project of the home.")
@click.pass_context
def daemon(ctx: click.Context, once: bool, interval: float | None, everything: bool) -> None:
    """Run the background jobs: entries become facts."""
    scope = scope_of(ctx)
    arguments = ["--home", str(scope.path), *(["--once"] if once else [])]
    arguments += ["--all"] if everything else ["--project", scope.project_name]
    arguments += ["--interval", str(interval)] if interval else []
    from memtier_plugin.daemon.__main__ import main

    code = main(arguments)
    if scope.as_json and not code:
        scope.show({"project": scope.project_name, "ended": True})
    ctx.exit(code)


@click.command(cls=CliCommand)
@click.option("--socket/--no-socket", default=True, help="Also listen on a Unix socket.")
@click.pass_context
def serve(ctx: click.Context, socket: bool) -> None:
    """Answer JSON-RPC of hosts, on stdin/stdout and a socket."""
    from memtier_plugin.server import rpc

    home = scope_of(ctx).path
    ctx.exit(rpc.serve(home, sys.stdin.buffer, sys.stdout.buffer, socket=socket))
