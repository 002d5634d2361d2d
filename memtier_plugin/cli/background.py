"""`memtier daemon`, `serve`, `consolidate` and `embed`: the background of a home."""

from __future__ import annotations

import faulthandler
import os
import sys
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar, scope_of
from memtier_plugin.cli.views import Document, LengthOfTime, safe_text
from memtier_plugin.core.errors import MemTierError, Unsupported
from memtier_plugin.core.paths import socket_path
from memtier_plugin.core.records import Extractor
from memtier_plugin.core.residents import (
    Address,
    Claim,
    find_owner,
    parse_address,
    stop_resident,
    wait_for_claim,
)
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.core.settings.schema import Resident
from memtier_plugin.facts.consolidation import ConsolidationReport, list_extractors
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.hosts.presence import DEFAULT_PROJECT
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.reembed import EmbeddingState, read_embedding_state
from memtier_plugin.providers.pricing import format_cost

if TYPE_CHECKING:
    from ssl import SSLContext


# -- `memtier daemon` and `serve`: the background of a home, and the server that hosts talk to

STATUS_SECONDS: Final = 2.0  # that a resident gets to say how it is
STOP_SECONDS: Final = 15.0  # that it gets to finish
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=CliCommand, example="--once")
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
    """Run the background jobs that turn entries into facts."""
    scope = scope_of(ctx)
    arguments = ["--home", str(scope.path), *(["--once"] if once else [])]
    arguments += ["--all"] if everything else ["--project", scope.project_name]
    arguments += ["--interval", str(interval)] if interval else []
    from memtier_plugin.daemon.__main__ import main

    code = main(arguments)
    if scope.as_json and not code:
        scope.show({"project": scope.project_name, "ended": True})
    ctx.exit(code)


@click.command(cls=CliCommand, example="--tcp 127.0.0.1:7420")
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


# -- `memtier consolidate`: consolidate new entries into facts, or preview that

_SHOWN_FIELDS = (
    "read",
    "facts",
    "proposed",
    "promoted",
    "superseded",
    "updated",
    "ignored",
    "left",
)


@click.command(cls=CliCommand, example="--dry-run")
@click.option("--limit", type=click.IntRange(1), help="How many entries to read, at most.")
@click.option("--all", "everything", is_flag=True, help="Continue until every entry has been read.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written and superseded.")
@click.option(
    "--extractor",
    type=click.Choice(["rules", "model"]),
    help="Only this one's pass [both, if consolidation.model is set].",
)
@click.pass_obj
def consolidate(
    scope: Scope,
    limit: int | None,
    everything: bool,
    dry_run: bool,
    extractor: Extractor | None,
) -> None:
    """Consolidate new entries into facts now."""
    if everything and (limit or dry_run):
        raise click.UsageError("--all goes with neither --limit nor --dry-run")
    with scope.open() as memory:
        if everything:
            report = _consolidate_all(memory, extractor)
        else:
            report = memory.consolidate(limit, extractor=extractor, dry_run=dry_run)
    scope.show(report_document(report, dry_run), report_view)


def _consolidate_all(memory: MemTier, extractor: Extractor | None) -> ConsolidationReport:
    """Consolidate batch by batch until nothing is left, showing how far it is."""
    overall = ConsolidationReport()
    with progress_bar() as show:
        for name in [extractor] if extractor else list_extractors(memory.store):
            done, left = 0, 1
            while left:

                def tell(read: int, total: int, name: str = name, done: int = done) -> None:
                    show(f"consolidating by {name}", done + read, done + total)

                step = memory.consolidate(extractor=name, progress=tell)
                done, left = done + step.read, step.left if step.read else 0
                # The journal has what each batch made; a report of them all would grow without end.
                overall = replace(overall + step, left=step.left, runs=(), drafts=(), replaced=())
    return overall


def report_document(report: ConsolidationReport, dry_run: bool) -> dict[str, Any]:
    """Return a report as a JSON document."""
    left_out = ("drafts", "replaced")
    document = {f.name: getattr(report, f.name) for f in fields(report) if f.name not in left_out}
    document |= {"rejected": dict(report.rejected), "dry_run": dry_run}
    if dry_run:
        document["drafts"] = [fact.to_json() for fact in report.drafts]
        document["replaced"] = [{"id": old, "by": new.id} for old, new in report.replaced]
    return document


def report_view(document: views.Document) -> RenderableType:
    """Render a report."""
    rows = [(name, str(document[name])) for name in _SHOWN_FIELDS]
    if document["tokens"]:
        rows += [("tokens", str(document["tokens"])), ("cost", format_cost(document["cost"]))]
    rows += [
        (name, views.format_value(document[name]))
        for name in ("problem", "waits", "held_back")
        if document[name]
    ]
    reasons = ", ".join(
        f"{count} {reason}" for reason, count in sorted(document["rejected"].items())
    )
    rows += [("rejected", reasons)] if reasons else []
    shown: list[RenderableType] = [views.name_value_table(rows)]
    if document["dry_run"] and document["drafts"]:
        replaced = {pair["by"]: pair["id"] for pair in document["replaced"]}
        drafts = [(f["text"], f["status"], replaced.get(f["id"], "")) for f in document["drafts"]]
        names = ("would be written", "status", "instead of")
        shown += ["", views.table_view(names, drafts, wide=names[:1])]
    return Group(*shown)


# -- `memtier embed`: estimate the cost of missing vectors, and make them


@click.command(cls=CliCommand)
@click.option("--estimate", is_flag=True, help="Only show what is missing and what it would cost.")
@click.option("--yes", is_flag=True, help="Accept the cost, and answers that got worse.")
@click.option(
    "--afresh", is_flag=True, help="Discard this model's vectors and compute all of them again."
)
@click.pass_context
def embed(ctx: click.Context, estimate: bool, yes: bool, afresh: bool) -> None:
    """Compute the missing vectors of embedding.model now."""
    scope: Scope = ctx.obj
    with scope.open() as memory:
        state = read_embedding_state(memory.store)
        if estimate or state.model is None:
            scope.show(state.to_json(), embedding_state_view)
            return
        job = memory.reembedding
        if state.paid and not yes and _needs_consent(scope, state):
            yes = click.confirm(f"{_describe_price(state)} Go on?", abort=True, err=True)
        if yes:
            job.approve()
        with progress_bar() as report:
            done = job.run(progress=partial(report, "embedding"), afresh=afresh, accept=yes)
        state = read_embedding_state(memory.store)
    scope.show({**asdict(done), "state": state.to_json()}, embedding_done_view)
    ctx.exit(int(bool(done.refused)))


def _needs_consent(scope: Scope, state: EmbeddingState) -> bool:
    enough = state.spent + state.cost <= state.allowed
    return bool(state.missing) and not enough and not scope.as_json and sys.stdin.isatty()


def _describe_price(state: EmbeddingState) -> str:
    return (
        f"{state.missing} items, about {state.tokens} tokens, "
        f"cost about {format_cost(state.cost)}; "
        f"spent {format_cost(state.spent)} of {format_cost(state.allowed)} allowed."
    )


def embedding_state_view(state: views.Document) -> RenderableType:
    """Render the embedding state."""
    names = ["model", "items", "missing", "tokens", *(["error"] if state["error"] else [])]
    rows = [(name, views.format_value(state[name])) for name in names]
    prices = ["cost", "spent", "allowed"] if state["paid"] else []
    return views.name_value_table([*rows, *((name, format_cost(state[name])) for name in prices)])


def embedding_done_view(document: views.Document) -> RenderableType:
    """Render the result of an embedding pass."""
    rows = [(name, views.format_value(document[name])) for name in ("embedded", "dropped", "left")]
    if document["refused"]:
        kept = "the vectors before are kept: set embedding.model back, or accept with --yes"
        rows.append(("refused", f"{document['refused']}; {kept}"))
    cost = [("cost", format_cost(document["cost"]))] if document["cost"] else []
    return views.name_value_table(
        [("model", views.format_value(document["state"]["model"])), *rows, *cost]
    )
