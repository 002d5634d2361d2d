"""`memtier serve`: the server that hosts talk to; loads only what a resident's start needs."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from memtier_plugin.cli.scope import CliCommand, scope_of
from memtier_plugin.core.errors import MemTierError, Unsupported
from memtier_plugin.core.installation import install_command
from memtier_plugin.core.paths import socket_path
from memtier_plugin.core.residents import (
    Address,
    SocketClaim,
    find_owner,
    parse_address,
    stop_resident,
    wait_for_claim,
)
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.core.settings.schema import Resident
from memtier_plugin.hosts.project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from ssl import SSLContext

    from rich.console import RenderableType

STATUS_SECONDS: Final = 2.0  # for a resident to report its state
STOP_SECONDS: Final = 15.0  # for it to finish
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=CliCommand, example="--tcp 127.0.0.1:7420")
@click.option("--status", "show", is_flag=True, help="Show which process serves the home.")
@click.option("--stop", is_flag=True, help="Stop that process; the next host starts another.")
@click.option(
    "--socket/--no-socket",
    default=True,
    help="Listen on the home's socket; otherwise serve one client on stdin and stdout.",
)
@click.option(
    "--tcp", metavar="HOST:PORT", help="Also serve clients with a token from `memtier token new`."
)
@click.option(
    "--certificate", type=_FILE, metavar="FILE", help="The certificate chain for TLS (PEM)."
)
@click.option(
    "--key", type=_FILE, metavar="FILE", help="The private key (PEM), if not in the same file."
)
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
    """Answer hosts' JSON-RPC as the resident process of a home."""
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
        raise click.UsageError("--certificate and --key require --tcp")
    if key and not certificate:
        raise click.UsageError("--key requires --certificate")
    claim = owner = None
    if claimed:
        claim = SocketClaim.inherit(home, *claimed)
    elif socket:
        claim, owner = wait_for_claim(home)
    if claim:
        claim.note(ready=False)  # before loading anything
    elif socket:
        click.echo(f"process {owner.pid if owner else '?'} already serves {home}", err=True)
        if tcp is None:
            return
    from memtier_plugin.server import rpc

    if tcp is None and claim is None:
        ctx.exit(rpc.serve(home, sys.stdin.buffer, sys.stdout.buffer))
    if tcp is None:
        assert claim is not None
        faulthandler.enable()  # the log shows where a crash happened
        ctx.exit(rpc.serve_resident(home, claim, _idle_seconds(home)))

    def announce(address: Address) -> None:
        if scope.as_json:
            scope.show({"address": str(address), "pid": os.getpid()})
        else:
            click.echo(f"MemTier serves {address}; SIGTERM or Ctrl-C ends it", err=True)

    try:
        tls = _load_tls(certificate, key)
        ctx.exit(rpc.serve_tcp(home, parse_address(f"tls://{tcp}"), tls, announce, claim))
    finally:
        if claim:
            claim.end()


def _load_tls(certificate: Path | None, key: Path | None) -> SSLContext | None:
    if any(find_spec(package) is None for package in ("starlette", "uvicorn")):
        command = install_command("memtier[serve]")
        raise Unsupported(f"`serve --tcp` needs more packages: run `{command}`")
    from memtier_plugin.server.http import load_tls

    return load_tls(certificate, key) if certificate else None


def _idle_seconds(home: Path) -> float:
    """Return how long a home's resident stays without a client, even with invalid settings."""
    try:
        resident = load_settings(home, DEFAULT_PROJECT).resident
    except MemTierError as error:  # each call will report it
        click.echo(f"memtier: {error}", err=True)
        resident = Resident()
    return 60 * resident.idle_minutes


def _describe(home: Path) -> dict[str, Any]:
    """Return the state of the resident of a home."""
    owner = find_owner(home)
    state: dict[str, Any] = {"home": str(home), "socket": str(socket_path(home)), "running": False}
    if owner is None:
        return state
    state |= {"running": True, "pid": owner.pid, "version": owner.version, "ready": owner.ready}
    from memtier_plugin.hooks.resident import ResidentClient

    with suppress(MemTierError):
        client = ResidentClient((), home)
        state["clients"] = (
            client.call("ping", {}, STATUS_SECONDS)["clients"] - 1
        )  # without this one
        client.close()
    return state


def _stopped_view(document: Mapping[str, Any]) -> RenderableType:
    """Render which process was stopped."""
    from memtier_plugin.cli.views import safe_text

    if document["stopped"] is None:
        return _resident_view({**document, "running": False})
    return safe_text(f"Process {document['stopped']} has stopped; the next host starts another.")


def _resident_view(document: Mapping[str, Any]) -> RenderableType:
    """Render which process serves a home."""
    from memtier_plugin.cli.views import safe_text

    if not document["running"]:
        return safe_text(f"No resident runs for {document['home']}; the next host starts one.")
    text = "Process {pid}, version {version}, serves {home} at {socket}".format(**document)
    if "clients" in document:
        return safe_text(f"{text}; {document['clients']} clients are connected.")
    return safe_text(
        f"{text}; it {'does not respond' if document['ready'] else 'is still loading'}."
    )
