"""`memtier daemon` and `serve`: the background of a home, and the server that hosts talk to."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click

from memtier_plugin.cli.scope import CliCommand, scope_of
from memtier_plugin.core.residents import Address, parse_address

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


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
@click.option(
    "--tcp",
    metavar="HOST:PORT",
    help="Serve clients that bring a token of `memtier token new`, instead of stdin.",
)
@click.option(
    "--certificate", type=_FILE, metavar="FILE", help="For TLS: the chain of certificates (PEM)."
)
@click.option("--key", type=_FILE, metavar="FILE", help="Its private key, if FILE has none.")
@click.pass_context
def serve(
    ctx: click.Context, socket: bool, tcp: str | None, certificate: Path | None, key: Path | None
) -> None:
    """Answer JSON-RPC of hosts, on stdin/stdout and a socket."""
    from memtier_plugin.server import rpc

    scope = scope_of(ctx)
    if tcp is None:
        if certificate or key:
            raise click.UsageError("--certificate and --key are for --tcp")
        ctx.exit(rpc.serve(scope.path, sys.stdin.buffer, sys.stdout.buffer, socket=socket))
    if key and not certificate:
        raise click.UsageError("--key needs --certificate")
    from memtier_plugin.server.tcp import tls_of

    address = parse_address(f"tls://{tcp}")
    tls = tls_of(certificate, key) if certificate else None

    def announce(address: Address) -> None:
        if scope.as_json:
            scope.show({"address": str(address), "pid": os.getpid()})
        else:
            click.echo(f"MemTier serves {address}; SIGTERM or Ctrl-C ends it", err=True)

    ctx.exit(rpc.serve_tcp(scope.path, address, tls, announce, socket=socket))
