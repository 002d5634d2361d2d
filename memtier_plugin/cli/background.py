"""`memtier daemon` and `serve`: the background of a home, and the server that hosts talk to."""

from __future__ import annotations

import faulthandler
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import RenderableType

from memtier_plugin.cli.scope import CliCommand, scope_of
from memtier_plugin.cli.times import LengthOfTime
from memtier_plugin.cli.views import Document, safe_text
from memtier_plugin.core.errors import MemTierError, Unsupported
from memtier_plugin.core.paths import socket_path
from memtier_plugin.core.resident_socket import Claim, find_owner, stop_resident, wait_for_claim
from memtier_plugin.core.residents import Address, parse_address
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.core.settings.schema import Resident
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.hosts.configured import DEFAULT_PROJECT

if TYPE_CHECKING:
    from ssl import SSLContext

STATUS_SECONDS: Final = 2.0  # that a resident gets to say how it is
STOP_SECONDS: Final = 15.0  # that it gets to finish
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=CliCommand)
@click.option("--once", is_flag=True, help="Do every job once and end.")
@click.option(
    "--interval",
    type=LengthOfTime(min=0, min_open=True),
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
@click.option("--status", "show", is_flag=True, help="Tell which process serves the home.")
@click.option("--stop", is_flag=True, help="End that process; the next host starts another.")
@click.option(
    "--socket/--no-socket",
    default=True,
    help="The home's socket; without, a client on stdin and stdout alone, until it ends.",
)
@click.option(
    "--tcp", metavar="HOST:PORT", help="Also clients that bring a token of `memtier token new`."
)
@click.option(
    "--certificate", type=_FILE, metavar="FILE", help="For TLS: the chain of certificates (PEM)."
)
@click.option("--key", type=_FILE, metavar="FILE", help="Its private key, if FILE has none.")
@click.option("--claimed", type=click.IntRange(min=0), nargs=2, hidden=True, help="A taken lock.")
@click.pass_context
def serve(
    ctx: click.Context,
    show: bool,
    stop: bool,
    socket: bool,
    tcp: str | None,
    certificate: Path | None,
    key: Path | None,
    claimed: tuple[int, int] | None,
) -> None:
    """Answer JSON-RPC of hosts, as the one resident of a home."""
    scope = scope_of(ctx)
    home = scope.path.absolute()
    if stop:
        stopped = stop_resident(home, STOP_SECONDS)
        state = {"home": str(home), "stopped": stopped.pid if stopped else None}
        scope.show(state, _stopped_view)
        return
    if show:
        scope.show(_describe(home), _resident_view)
        return
    if tcp is None and (certificate or key):
        raise click.UsageError("--certificate and --key are for --tcp")
    if key and not certificate:
        raise click.UsageError("--key needs --certificate")
    claim = owner = None
    if claimed:
        claim = Claim.inherit(home, *claimed)
    elif socket:
        claim, owner = wait_for_claim(home)
    if claim:
        claim.note(ready=False)  # before anything is loaded
    elif socket:
        click.echo(f"process {owner.pid if owner else '?'} serves {home} already", err=True)
        if tcp is None:
            return
    from memtier_plugin.server import rpc

    if tcp is None and claim is None:
        ctx.exit(rpc.serve(home, sys.stdin.buffer, sys.stdout.buffer))
    if tcp is None:
        assert claim is not None
        faulthandler.enable()  # its log says where a crash was
        ctx.exit(rpc.serve_resident(home, claim, _idle_seconds(home)))
    address = parse_address(f"tls://{tcp}")
    tls = _load_tls(certificate, key)

    def announce(address: Address) -> None:
        if scope.as_json:
            scope.show({"address": str(address), "pid": os.getpid()})
        else:
            click.echo(f"MemTier serves {address}; SIGTERM or Ctrl-C ends it", err=True)

    try:
        ctx.exit(rpc.serve_tcp(home, address, tls, announce, claim))
    finally:
        if claim:
            claim.end()


def _load_tls(certificate: Path | None, key: Path | None) -> SSLContext | None:
    if any(find_spec(package) is None for package in ("starlette", "uvicorn")):
        raise Unsupported("`serve --tcp` needs some packages: pip install 'memtier[serve]'")
    from memtier_plugin.server.http import load_tls

    return load_tls(certificate, key) if certificate else None


def _idle_seconds(home: Path) -> float:
    """Return how long the resident of a home stays without a client, whatever its settings are."""
    try:
        resident = load_settings(home, DEFAULT_PROJECT).resident
    except MemTierError as error:  # which each call will say, too
        click.echo(f"memtier: {error}", err=True)
        resident = Resident()
    return 60 * resident.idle_minutes


def _describe(home: Path) -> dict[str, Any]:
    """Describe the resident of a home."""
    owner = find_owner(home)
    state: dict[str, Any] = {"home": str(home), "socket": str(socket_path(home)), "running": False}
    if owner is None:
        return state
    state |= {"running": True, "pid": owner.pid, "version": owner.version, "ready": owner.ready}
    with suppress(MemTierError):
        client = ResidentClient((), home)
        state["clients"] = client.call("ping", {}, STATUS_SECONDS)["clients"] - 1  # not this one
        client.close()
    return state


def _stopped_view(document: Document) -> RenderableType:
    """Render which process was ended."""
    if document["stopped"] is None:
        return _resident_view({**document, "running": False})
    return safe_text(f"Process {document['stopped']} has ended; the next host starts another.")


def _resident_view(document: Document) -> RenderableType:
    """Render which process serves a home."""
    if not document["running"]:
        return safe_text(f"No resident runs for {document['home']}; the next host starts one.")
    text = "Process {pid}, version {version}, serves {home} at {socket}".format(**document)
    if "clients" in document:
        return safe_text(f"{text}; {document['clients']} clients are connected.")
    return safe_text(f"{text}; it {'does not answer' if document['ready'] else 'is being loaded'}.")
