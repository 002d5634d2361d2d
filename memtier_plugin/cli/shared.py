"""`memtier shared`: one project on many machines, through PostgreSQL or NATS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
from rich.console import RenderableType

from memtier_plugin.cli.scope import CliCommand, CliGroup, OptionDecorator, Scope, progress_bar
from memtier_plugin.cli.views import Document, column_table, format_time, safe_text
from memtier_plugin.core.errors import LedgerError, SettingsError
from memtier_plugin.core.files import release_lock
from memtier_plugin.core.paths import ProjectFolder, make_project_folder, shared_name
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.core.settings.schema import NOWHERE
from memtier_plugin.daemon import child
from memtier_plugin.storage.home_files import remove_abandoned_restores
from memtier_plugin.storage.shared import sharing as engines
from memtier_plugin.storage.shared.bootstrap import is_joining, make_own, remove_copy
from memtier_plugin.storage.shared.bootstrap import join as make_shared
from memtier_plugin.storage.shared.protocol import MachineGrant
from memtier_plugin.storage.shared.sharing import Sharing
from memtier_plugin.storage.store import Store
from memtier_plugin.transfer.bootstrap import join_by_snapshot, write_snapshot


@click.group(cls=CliGroup, example="status")
def shared() -> None:
    """Share the project's ledgers among machines, via a server."""


def _url_option() -> OptionDecorator:
    return click.option(
        "--url",
        metavar="URL",
        help="The server's URL for its owner [ledger.shared]; PGPASSWORD or NATS_PASSWORD.",
    )


def _name_option() -> OptionDecorator:
    return click.option(
        "--name", metavar="NAME", help="The project's name on the server [its name here]."
    )


@shared.command(cls=CliCommand, example="--url postgresql://owner@db.example.org/memtier")
@_name_option()
@_url_option()
@click.pass_obj
def init(scope: Scope, name: str | None, url: str | None) -> None:
    """Create the shared ledger's tables in a database, or its stream in NATS."""
    _prepare(scope, name, url)


@shared.command(cls=CliCommand, example="--url postgresql://owner@db.example.org/memtier")
@_name_option()
@_url_option()
@click.pass_obj
def migrate(scope: Scope, name: str | None, url: str | None) -> None:
    """Migrate the shared ledger on the server to this version."""
    _prepare(scope, name, url)


def _prepare(scope: Scope, name: str | None, url: str | None) -> None:
    where = url or _server(scope)
    done = engines.prepare(where, name or scope.project_name)
    scope.show({"server": engines.address(where), **done})


@shared.command(cls=CliCommand, example="laptop --password-env LAPTOP_PASSWORD")
@click.argument("machine")
@_name_option()
@click.option("--only-agent", metavar="AGENT", help="Only this agent's private ledgers.")
@click.option("--read-only", is_flag=True, help="Grant read access only.")
@click.option(
    "--password-env", metavar="VARIABLE", help="Set the password from the environment VARIABLE."
)
@_url_option()
@click.pass_obj
def grant(
    scope: Scope,
    machine: str,
    name: str | None,
    only_agent: str | None,
    read_only: bool,
    password_env: str | None,
    url: str | None,
) -> None:
    """Grant MACHINE, a database role or NATS user, access to the project."""
    password = os.environ.get(password_env) if password_env else None
    if password_env and not password:
        raise SettingsError(f"the environment variable {password_env} is empty")
    machine_grant = MachineGrant(machine, name or scope.project_name, only_agent, read_only)
    scope.show(engines.grant(url or _server(scope), machine_grant, password))


@shared.command(cls=CliCommand, example="laptop")
@click.argument("machine")
@_name_option()
@click.option("--only-agent", metavar="AGENT", help="Only the grant for this agent.")
@_url_option()
@click.pass_obj
def revoke(
    scope: Scope, machine: str, name: str | None, only_agent: str | None, url: str | None
) -> None:
    """Revoke MACHINE's access; what it copied stays there."""
    project = name or scope.project_name
    scope.show(engines.revoke(url or _server(scope), machine, project, only_agent))


@shared.command(cls=CliCommand)
@_name_option()
@click.option(
    "--snapshot",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Start from a snapshot that `memtier shared snapshot` wrote elsewhere.",
)
@click.pass_obj
def join(scope: Scope, name: str | None, snapshot: Path | None) -> None:
    """Share the project from this machine: deliver its lines, and fetch the others'."""
    url, project = _server(scope), scope.project_name
    folder = ProjectFolder.of(scope.path, project)
    joined = shared_name(folder.path)
    copied: dict[str, int] = {}
    if joined is None or is_joining(folder.path):
        name = joined or name or project
        ledger = engines.open_ledger(url, name)
        try:
            ledger.heads()  # before anything changes here
            make_project_folder(scope.path, project)
            with _alone(scope.path, project), progress_bar() as report:
                remove_abandoned_restores(scope.path)  # from an interrupted join
                if snapshot is None:
                    make_shared(folder, name)
                else:
                    step = partial(report, "reading the snapshot")
                    done = join_by_snapshot(folder, project, name, ledger, snapshot, step)
                    copied = asdict(done)
        finally:
            ledger.close()
    elif snapshot is not None:
        raise SettingsError("this project is already shared; run `memtier shared drain`")
    _synchronise(scope, **copied)


@contextmanager
def _alone(home: Path, project: str) -> Iterator[None]:
    """Keep hosts and daemons out."""
    lock = child.acquire(home, project)
    if lock is None:
        raise SettingsError("stop the hosts and `memtier daemon` of this project first")
    try:
        yield
    finally:
        release_lock(lock)


@shared.command(cls=CliCommand, example="harbor.tar")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--only-agent",
    "agents",
    metavar="AGENT",
    multiple=True,
    help="Include only this agent's private ledgers; repeatable.",
)
@click.pass_obj
def snapshot(scope: Scope, file: Path, agents: tuple[str, ...]) -> None:
    """Write this machine's copy and index to FILE, for `join --snapshot` elsewhere."""
    with scope.open() as memory, progress_bar() as report:
        sharing, step = _sharing(memory.store), partial(report, "copying")
        streams, lines = write_snapshot(
            memory.store, sharing, file, agents, datetime.now(UTC), step
        )
    figures = {"streams": streams, "lines": lines, "bytes": file.stat().st_size}
    scope.show({"file": str(file), "agents": [*agents] or None, **figures})


@shared.command(cls=CliCommand)
@click.pass_obj
def drain(scope: Scope) -> None:
    """Deliver pending lines to the server, and fetch new ones."""
    _synchronise(scope)


@shared.command(cls=CliCommand)
@click.option("--forget", is_flag=True, help="Delete this machine's copy of the project.")
@click.option(
    "--undelivered", is_flag=True, help="Leave even if lines are pending; they stay here only."
)
@click.pass_obj
def leave(scope: Scope, forget: bool, undelivered: bool) -> None:
    """Stop sharing the project from this machine; its files stay as a local project."""
    if forget and undelivered:
        raise SettingsError("--forget would delete lines that nobody else has: deliver them first")
    folder = ProjectFolder.of(scope.path, scope.project_name)
    with _alone(scope.path, scope.project_name):
        away = None
        with scope.open() as memory:
            sharing = _sharing(memory.store)
            try:
                sharing.sync()
                sharing.ledger.leave()
            except LedgerError as error:
                away = str(error)
            waiting = sharing.shared_status()["waiting"]
        if not undelivered and (waiting or away):
            why = away or "the server did not accept everything"
            raise LedgerError(
                f"{waiting} lines wait here for the server ({why}): `memtier shared drain` when it"
                " answers, or leave with --undelivered, and they stay here alone"
            )
        if forget:
            remove_copy(folder)
        else:
            make_own(folder)
    scope.show(
        {
            "project": scope.project_name,
            "left": True,
            "forgotten": forget,
            "undelivered": waiting,
            "told_the_server": away is None,
        }
    )


def _synchronise(scope: Scope, **copied: int) -> None:
    with scope.open() as memory:
        sharing = _sharing(memory.store)
        synced = sharing.sync()
        if copied:
            memory.store.catch_up_all()  # the copied files are known by their content
        state = sharing.shared_status()
    done = {"fetched": synced.pulled, "delivered": synced.delivered, "purged": synced.purged}
    why = {"refused": synced.refused} if synced.refused else {}
    scope.show({**copied, **done, "waiting": state["waiting"], **why})


@shared.command(cls=CliCommand)
@click.pass_obj
def status(scope: Scope) -> None:
    """Show this machine's progress, and machines a purge has not reached."""
    with scope.open() as memory:
        sharing = _sharing(memory.store)
        state, heads = sharing.shared_status(), sharing.ledger.heads()
        behind = sum(head.offset - sharing.replica.offset(stream) for stream, head in heads.items())
        pending = {machine for machine, *_ in sharing.ledger.pending()}
    lines = sum(head.offset for head in heads.values())
    figures = {"streams": len(heads), "lines": lines, "behind": behind}
    scope.show({**state, **figures, "purge_pending": sorted(pending)})


@shared.command(cls=CliCommand)
@click.pass_obj
def purges(scope: Scope) -> None:
    """Show which machines each purge has reached."""
    with scope.open() as memory:
        _sharing(memory.store).sync()
        scope.show({"purges": memory.purges()}, _purges_view)


def _purges_view(document: Document) -> RenderableType:
    """Render which machines each purge has reached."""
    table = column_table("purge", "at", "by", "machine", "state", "reached", "last there")
    for purge in document["purges"]:
        heading = [purge["purge"], format_time(purge["at"]), purge["by"]]
        for machine, state in (purge["machines"] or {"-": {}}).items():
            times = (format_time(state.get(name)) for name in ("at", "seen"))
            table.add_row(*map(safe_text, (*heading, machine, state.get("state", ""), *times)))
            heading = [""] * 3
    return (
        table
        if table.row_count
        else safe_text("Nothing has been purged since sharing began.", "dim")
    )


def _sharing(store: Store) -> Sharing:
    if store.sharing is None:
        raise SettingsError("this project is not shared from this machine: `memtier shared join`")
    return store.sharing


def _server(scope: Scope) -> str:
    url = load_settings(scope.path, scope.project_name).ledger.shared
    if url == NOWHERE:
        raise SettingsError(f"set ledger.shared in {scope.path / 'config.yaml'}")
    return url
